"""Models and tokenizers of transformers: a saved one from a folder or a hub, or a small one for the demo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.adapter import base_of, find_base, with_adapter
from ghar.llm.chat_template import freeze
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.gguf import KEY, local_model
from ghar.llm.model_facts import check_facts, read_facts
from ghar.privacy import HOW_TO_DOWNLOAD


def load_pretrained(
    path: str,
    dtype: str,
    arguments: Mapping[str, Any] | None = None,
    system: str | None = None,
    base: str | None = None,
    key: str = KEY,
) -> tuple[Any, Any]:
    """Model and tokenizer of transformers from a folder or hub name, with their facts and a frozen chat template.

    arguments, system: what the template is frozen with; base: where the base of an adapter's folder may be, besides
    the place that the folder names; key: that names it, for the sentence. BadInput when they cannot be loaded, or not
    be served.
    """
    from ghar.llm import import_transformers  # noqa: F401

    # isort: split
    from transformers import AutoTokenizer
    from transformers.utils import logging as bars

    bars.disable_progress_bar()  # "Loading weights", once for every model and checkpoint
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = _load_network(path, dtype, base)
    except BadInput:  # a ValueError, and a sentence of its own
        raise
    except (OSError, ValueError, LookupError, RuntimeError, SafetensorError) as error:  # a copy that was broken off
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise BadInput(
            f"{key}={path} cannot be loaded ({reason}): give a folder that holds the model{HOW_TO_DOWNLOAD}."
        ) from None
    freeze(tokenizer, arguments, system, path)
    facts = read_facts(model, tokenizer)
    if tokenizer.pad_token_id is None and facts.ends:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(facts.ends[-1])
    device: Any = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).eval()
    check_facts(model, tokenizer, facts, path)
    return model, tokenizer


def _load_network(path: str, dtype: str, base: str | None) -> Any:
    """The network alone, an adapter folded into its base in the dtype that it was trained in."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if (about := base_of(path)) is not None:
        trained = about.get("dtype", dtype)  # folders of earlier versions do not say
        return _in_dtype(with_adapter(_load_network(find_base(path, base), trained, None), Path(path)), dtype)
    config = AutoConfig.from_pretrained(path)
    # torch's own attention has no soft cap on its scores
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    how = {"attn_implementation": "eager"} if capped else {}
    load: Any = AutoModelForCausalLM.from_pretrained  # with this option it returns two
    model, about = load(path, dtype=getattr(torch, dtype), output_loading_info=True, **how)
    if missing := sorted(about["missing_keys"]):  # transformers would draw them at random
        others = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ValueError(f"it lacks the weights {missing[0]}{others}")
    return model


def _in_dtype(model: Any, dtype: str) -> Any:
    """A network with weights of another dtype, in place; its buffers stay, as transformers leaves them on loading."""
    wanted = getattr(torch, dtype)
    for weight in model.parameters():
        weight.data = weight.data.to(wanted)
    model.config.dtype = wanted
    return model


def load_with_base(path: str, config: Config) -> tuple[Any, Any]:
    """`load_pretrained` in the configured dtype; the base of an adapter is looked for as model.path, too."""
    named = base_of(path) is not None and config.model.path is not None
    return load_pretrained(path, config.model.dtype, base=model_path(config) if named else None)


def load_configured(config: Config) -> tuple[Any, Any]:
    """The model that model.path names, its chat template frozen as model.* says."""
    model = config.model
    return load_pretrained(model_path(config), model.dtype, model.template_arguments, model.system_message)


def model_path(config: Config, name: str | None = None) -> str:
    """Where transformers finds model.path, or the model called `name`; a GGUF file is converted into the cache."""
    name = name or config.model.path
    assert name is not None  # ghar.configure asks for it
    return local_model(name, Path(config.data.cache))


def load_backbone(config: Config, texts: Callable[[], Sequence[str]]) -> tuple[Any, Any]:
    """Model and tokenizer: what eval.checkpoint or model.path names, else a demo model that has learned nothing.

    texts: what the demo model's prompts are made of. BadInput for an eval.checkpoint that is no saved model.
    """
    saved = config.eval.checkpoint
    if saved is not None:
        if not (Path(saved) / "config.json").is_file():
            raise BadInput(f"eval.checkpoint={saved} is no model: name the folder of a saved model.")
        return load_with_base(saved, config)
    if config.model.kind == "pretrained":
        return load_configured(config)
    return untrained(config, texts(), (), config.data.world_seed)


def untrained(
    config: Config, texts: Sequence[str], names: Sequence[str], seed: int, copying: bool = False
) -> tuple[Any, Any]:
    """The demo's model and tokenizer: the latter knows the words of `texts` and `names` whole, the weights nothing.
    copying: whether its heads begin by copying (`build_model`)."""
    model = config.model
    assert model.hidden and model.layers and model.vocab  # ghar.configure asks for them
    tokenizer = build_tokenizer(list(texts), list(names), model.vocab)
    network = build_model(tokenizer, hidden=model.hidden, layers=model.layers, seed=seed, copying=copying)
    return network, tokenizer
