"""The engine that a configuration names in one word: a fixed rule, its own model, or a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.engine import Engine
from ghar.llm.scripted import ScriptedEngine


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
    elif name == "engine" and config.engine.kind != "api":
        from trainers.backbone import load_backbone  # imports torch
        from trainers.engines import served

        with served(config, *load_backbone(config, texts)) as engine:
            yield engine
    else:
        with asking(config, str(config.model.path) if name == "engine" else name, credentialed) as engine:
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
    """A short name that tells this engine's answers from those of others, fit for a file."""
    about = f"{config.eval.checkpoint or config.model.path or 'untrained'}" if name == "engine" else name
    readable = "".join(c if c.isalnum() else "-" for c in about)[-40:].strip("-")
    return f"{readable}-{sha256(about.encode()).hexdigest()[:8]}"
