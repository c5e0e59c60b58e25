"""The engine that a configuration asks for: of its own model, or one that a word names (a rule, a server)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ghar.config import Config
from ghar.errors import BadInput
from ghar.extensions import import_module, is_module
from ghar.llm.engine import Engine
from ghar.llm.scripted import ScriptedEngine
from ghar.llm.tensor_parallel import check_gpus
from ghar.llm.vllm_build import VLLMSettings, check_installed
from ghar.privacy import check_destination, masked

if TYPE_CHECKING:
    from ghar.llm.hf import HFEngine
    from ghar.llm.vllm import VLLMEngine

AnyEngine: TypeAlias = "HFEngine | VLLMEngine"


def make_engine(config: Config, model: Any, tokenizer: Any) -> AnyEngine:
    """An engine for models like `model`, which has to be given weights. BadInput when it cannot run here."""
    from ghar.llm.hf import HFEngine  # torch

    engine = config.engine
    if engine.kind == "hf":
        return HFEngine(model, tokenizer, engine.max_batch)
    if not engine.loads_weights:
        raise BadInput(engine.untrainable)
    check_installed()
    check_gpus(engine.shared_by)
    from ghar.llm.vllm import VLLMEngine

    rank = config.model.lora_rank if sends_adapters(config) else None
    settings = VLLMSettings(
        engine.kv_cache_gb, engine.max_batch, rank, engine.sleep, engine.memory, config.model.max_length,
        engine.shared_by,
    )
    return VLLMEngine(model, tokenizer, settings)


def sends_adapters(config: Config) -> bool:
    """Whether the engine takes an actor's adapter instead of merged weights.

    Adapters are quick to send and cost a GPU little, where vLLM has kernels for them only in 16 bits; on a CPU they
    make sampling 2.7 times slower.
    """
    import torch

    if config.engine.kind == "hf":
        return False
    if config.engine.sync is None:
        lora, short = config.model.finetune == "lora", config.model.dtype != "float32"
        return lora and short and torch.cuda.is_available()
    return config.engine.sync == "adapter"


@contextmanager
def serving_model(engine: AnyEngine, model: Any, version: int) -> Iterator[None]:
    """For the duration, `engine` answers with the weights of `model`.

    version: a number for these weights, another one after every change of them: an engine that holds its own copy takes
    over only what it has not yet. WrongWeights when they did not arrive.
    """
    from ghar.llm.hf import HFEngine

    if isinstance(engine, HFEngine):
        engine.sync(model, version)
        try:
            yield
        finally:
            engine.forget()
        return
    engine.wake()
    if engine.version != version:
        engine.sync(model, version)
    try:
        yield
    finally:
        engine.sleep()


@contextmanager
def served(config: Config, model: Any, tokenizer: Any) -> Iterator[AnyEngine]:
    """A new engine that answers with `model`, closed at the end."""
    engine = make_engine(config, model, tokenizer)
    try:
        with serving_model(engine, model, 0):
            yield engine
    finally:
        engine.close()


@contextmanager
def named_engine(
    config: Config, name: str, scripted: Callable[[str], str], credentialed: bool, texts: Callable[[], Sequence[str]]
) -> Iterator[Engine]:
    """The engine called `name`, closed at the end.

    "scripted": replies scripted(prompt). "engine": the model of this configuration (`texts`: what the demo's untrained
    one reads). "model@http://host/v1": a server with OpenAI's interface; BadInput before the first byte when
    `credentialed` and privacy.allow does not name the host. BadInput for any other name.
    """
    if name == "scripted":
        yield ScriptedEngine(scripted)
    elif name == "engine" and config.engine.loads_weights:
        from ghar.llm.models import load_backbone  # imports torch

        with served(config, *load_backbone(config, texts)) as engine:
            yield engine
    elif name == "engine":
        with without_weights(config, credentialed) as engine:
            yield engine
    else:
        with asking(config, name, credentialed) as engine:
            yield engine


@contextmanager
def without_weights(config: Config, credentialed: bool) -> Iterator[Engine]:
    """The server or the engine of the user's own that `engine` names, closed at the end.

    BadInput before it is built where patients are credentialed and privacy.allow does not name it: what an engine of
    the user's own sends, no gate of ours sees.
    """
    kind = config.engine.kind
    if not is_module(kind):
        with asking(config, str(config.model.path), credentialed) as engine:
            yield engine
        return
    check_destination(credentialed, kind, config.privacy.allow)
    with closing(import_module("engine", kind, "build").build(config)) as engine:
        yield engine


@contextmanager
def asking(config: Config, address: str, credentialed: bool) -> Iterator[Engine]:
    """The model at an address."""
    from ghar.llm.api import ApiEngine, api_settings  # needs httpx

    if "@http" not in address:
        raise BadInput(f"{address} names no engine: write scripted, engine, or a server as model@http://host:8000/v1.")
    settings = api_settings(address, config.engine.max_batch)
    engine = ApiEngine(settings, credentialed=credentialed, allow=config.privacy.allow)
    try:
        yield engine
    finally:
        engine.close()


def engine_key(config: Config, name: str) -> str:
    """A short name that tells this engine's answers from those of others, fit for a file. The model of the
    configuration is named by all that it is made of: a run that is trained anew leaves others at the same place."""
    about = _place_of(config) if name == "engine" else name
    readable = "".join(c if c.isalnum() else "-" for c in masked(about))[-40:].strip("-")
    parts = _parts_of(config) if name == "engine" and config.engine.loads_weights else ""
    return f"{readable}-{sha256(f'{about}{parts}'.encode()).hexdigest()[:8]}"


def _place_of(config: Config) -> str:
    """What the configuration's engine answers with: a folder, a name or an address, behind an engine of the user's."""
    place = config.eval.checkpoint or config.model.path
    if is_module(config.engine.kind):
        return f"{config.engine.kind} {place or ''}".strip()
    return place or "untrained"


def _parts_of(config: Config) -> str:
    """What makes a model another one at the same place: its weights, what its chat template is frozen with, and of the
    demo's untrained one its size and what its words come from. Empty for a hub name without any of these."""
    model, path = config.model, config.eval.checkpoint or config.model.path
    if path is None:
        return f"{model} {config.data} {config.task}"
    frozen = [str(own) for own in (model.system_message, model.template_arguments) if own]
    return "".join([_weights_of(path), *frozen])


def _weights_of(path: str) -> str:
    """The sum of the weights in a folder, a GGUF file or a package; empty where they are not here."""
    from ghar.llm.adapter import file_digest, weights_digest  # torch
    from ghar.llm.gguf import find_gguf

    if (file := find_gguf(path)) is not None:
        return file_digest(file)
    return (weights_digest(path) or "") if Path(path).is_dir() else ""
