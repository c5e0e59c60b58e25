"""The language models behind KARE's methods: the distilled one, and the backbone that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from envs.kare.episode import knowledge_text, reason_prompt
from ghar.config import Config
from ghar.llm.engine import Engine
from ghar.llm.engines import asking, served
from ghar.llm.models import load_backbone
from trainers.kare_study import KareStudy
from trainers.records import counter
from trainers.runs.models import use_cores

# Below run_dir, where launch/train_kare.py saves its model, and in the demo what it was distilled from.
DISTILLED, BACKBONE = Path("checkpoints") / "distilled", Path("checkpoints") / "backbone"
EXAMPLES = 50  # patients whose prompts the demo's tokenizer is made from


@contextmanager
def language_model(study: KareStudy, *, distilled: bool) -> Iterator[tuple[Engine, Callable[[str], int]]]:
    """An engine that serves the model, and how it counts tokens; a server's tokens are counted as words.

    distilled: the model of eval.checkpoint, else of a training in run_dir; without either it is the backbone.
    """
    config = study.config
    use_cores(config.threads)
    checkpoint = (distilled and (config.eval.checkpoint or _saved(config, DISTILLED))) or _saved(config, BACKBONE)
    if config.engine.kind == "api" and checkpoint is None:
        with asking(config, str(config.model.path), study.records.cohort.credentialed) as engine:
            yield engine, counter(None)
        return
    chosen = replace(config, eval=replace(config.eval, checkpoint=checkpoint))
    model, tokenizer = load_backbone(chosen, lambda: _texts(study))
    with served(chosen, model, tokenizer) as engine:
        yield engine, counter(tokenizer)


def _saved(config: Config, name: Path) -> str | None:
    folder = Path(config.run_dir) / name
    return str(folder) if folder.is_dir() else None


def _texts(study: KareStudy) -> list[str]:
    """Prompts of some training patients, whose words the demo's tokenizer knows whole."""
    config, words = study.config, counter(None)
    cases = study.cases(study.records.splits.train[:EXAMPLES], words)
    found = study.corpus.retrieve([study.look_up(case) for case in cases])
    return [
        reason_prompt(case, knowledge_text(evidence, study.kare.tokens, words), config.env.prompts)
        for case, evidence in zip(cases, found, strict=True)
    ]
