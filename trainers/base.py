"""The model that training starts from: a pretrained one, or the demo's, made on the spot."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.envs.rollout import derive_seed
from ghar.envs.system import DemoPretraining, System
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.llm.demo_model import HEADS
from ghar.llm.models import load_configured, load_pretrained, untrained
from ghar.llm.tokens import Tokenizer, count_tokens
from ghar.metrics.model_size import replies_in_words
from ghar.metrics.runfolder import RunFolder
from ghar.progress import TERMINAL_WIDTH, track
from ghar.trainers.base_replies import compare_replies
from ghar.trainers.runs.distributed import main_first, on_main
from ghar.trainers.runs.manifest import fault
from ghar.trainers.runs.models import BASE, save_model
from ghar.trainers.sft.arguments import SFTSettings
from ghar.trainers.sft.pairs import TokenExample, tokenised
from ghar.trainers.sft.run import metrics_row, run_sft

TEXTS = 500  # episodes whose prompts the tokenizer is made from
LR = 4e-3
ORDER = "one by one"  # how exercises are drawn; equal ones stood in one step for two days (c99139e0)
AT_ONCE = 1000  # episodes tokenised together
PACKAGED = "Base model of the package; trainer.base.seed={seed} makes it again."

Log = Callable[[Mapping[str, Any]], None]


def reader_of(tokenizer: Tokenizer, model: Any, engine: Any = None) -> systems.Reader:
    """A model as the systems know it."""
    reach = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return systems.Reader(TokenCount(tokenizer), reach, engine, tokenizer)


class TokenCount:
    """Tokens of a text, as a prompt of its own."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, text: str) -> int:
        return count_tokens(self.tokenizer, text)


def start_model(system: System[Any], records: Records, folder: RunFolder, log: Log) -> tuple[Any, Any]:
    """What training starts from. The demo's comes with the package, any other one is made once in a cache; a copy goes
    to checkpoints/base of the run.

    Where it is there already, the run's rows of how it was made stay: an earlier start of this run may have made it.
    """
    config = records.config
    if config.model.kind == "pretrained":
        return load_configured(config)
    practice = practice_of(system, records)
    if practice is None:
        texts = on_main(lambda: list(system.training.texts()))
        model, tokenizer = untrained(config, texts, (), base_seed(config))
    else:
        kept = Path(config.data.cache) / "bases" / base_key(config, practice)
        packaged = on_main(lambda: packaged_base(config, practice))
        if packaged is not None:
            on_main(lambda: print(PACKAGED.format(seed=base_seed(config))))
            kept = packaged
        elif on_main(lambda: _whole(kept)):
            on_main(lambda: print(f"Base model of an earlier run: {kept}"))
        else:
            on_main(lambda: folder.rewind("base", -1))
            kept.parent.mkdir(parents=True, exist_ok=True)
            made = build_base(config, practice, log)
            on_main(lambda: save_model(*made, kept, system.origin.credentialed))
        model, tokenizer = load_pretrained(str(kept), config.model.dtype)
    on_main(lambda: save_model(model, tokenizer, folder.path / "checkpoints" / BASE, system.origin.credentialed))
    return model, tokenizer


def packaged_base(config: Config, practice: DemoPretraining) -> Path | None:
    """The package's base model of the same recipe, trained for at least `trainer.base.steps` steps; None where there is
    none, where it should stay untrained, and where `trainer.base.seed` asks for one that is made."""
    wanted = config.trainer.base
    if practice.packaged is None or wanted.seed is not None or wanted.steps == 0:
        return None
    for folder in sorted(file.parent for file in practice.packaged.glob("*/config.json")):
        steps = base_steps(folder, 0)
        longer = replace(config, trainer=replace(config.trainer, base=replace(wanted, steps=steps)))
        if wanted.steps <= steps and base_key(longer, practice) == folder.name and _whole(folder):
            return folder
    return None


def base_steps(folder: Path, otherwise: int) -> int:
    """Steps for which a base model was trained; `otherwise` where an older version wrote it."""
    return json.loads((folder / "config.json").read_text()).get("base_steps", otherwise)


def _whole(kept: Path) -> bool:
    """Whether a base model is kept there; a damaged one is named, and `save_model` puts the new one in its place."""
    damage = fault(kept) if kept.is_dir() else None
    if damage is not None:
        print(f"{damage}: it is made again.")
    return kept.is_dir() and damage is None


def practice_of(system: System[Any], records: Records) -> DemoPretraining | None:
    """How a system's base is made: by itself, or as another system's on the same records."""
    if not isinstance(system.training.pretraining, str):
        return system.training.pretraining
    config, name = records.config, system.training.pretraining
    retriever = replace(config.retriever, kind="tfidf", top_n=1)
    own: Any = systems.settings_of(name)(name=name)
    other = main_first(lambda: systems.build(Records(replace(config, system=own, retriever=retriever))))
    if isinstance(other.training.pretraining, DemoPretraining):
        return other.training.pretraining
    raise BadInput(f"system {system.name} practises as {name} does, which has no practice of its own.")


def base_seed(config: Config) -> int:
    """Of the base model's weights and exercises."""
    own = config.trainer.base.seed
    return config.data.world_seed if own is None else own


def base_key(config: Config, practice: DemoPretraining) -> str:
    """A name for the base model that changes with everything it is made from."""
    model, base = config.model, config.trainer.base
    shape = model.hidden, model.layers, HEADS, model.vocab
    recipe = {"steps": base.steps, "batch": base.batch, "lr": LR, "seed": base.seed, "order": ORDER}
    return f"{derive_seed(practice.key, shape, recipe):016x}"


def build_base(config: Config, practice: DemoPretraining, log: Log) -> tuple[Any, Any]:
    """Tokenizer and base model, trained for `trainer.base.steps` steps. Returns (model, tokenizer).

    Its randomness is the world's where `trainer.base.seed` is null: runs of different seeds then start from one base,
    as they would from a downloaded one.
    """
    base, seed = config.trainer.base, base_seed(config)
    made = practice.exercises(base.steps * base.batch, seed)
    texts = [text for episode in made.episodes[:TEXTS] for text in _texts(episode)]
    model, tokenizer = untrained(config, texts, made.names, seed, made.copying)
    model.config.base_steps = base.steps
    if base.steps == 0:
        return model, tokenizer
    by_role = _by_role(tokenizer, made)
    pairs = _drawn(by_role, made.shares, base.steps * base.batch, seed)
    micro_batch, longest = config.trainer.warmup.micro_batch, config.model.max_length
    settings = SFTSettings(base.steps, base.batch, LR, micro_batch, max_length=longest, grouped=False, seed=seed)
    result = run_sft(
        model, tokenizer, pairs, settings, log=lambda *row: log(metrics_row("base", *row)), title="Base model"
    )
    trained: Any = result.model
    trained.config.base_replies = replies = on_main(lambda: compare_replies(trained, tokenizer, by_role))
    about = f"Base model, of its exercises right: {replies_in_words(replies)}"
    on_main(lambda: print(textwrap.fill(about, TERMINAL_WIDTH, subsequent_indent="  ")))
    return trained, tokenizer


def _texts(episode: Episode) -> list[str]:
    records: list[Any] = [record for record in episode.trace if isinstance(record.effect, Act)]
    return [f"{record.effect.prompt} {record.result.text}" for record in records]


def _by_role(tokenizer: Any, made: systems.PretrainingTasks) -> dict[str, list[TokenExample]]:
    """The replies of the exercises, by role."""
    by_role: dict[str, list[TokenExample]] = {role: [] for role in made.shares}
    for start in track(range(0, len(made.episodes), AT_ONCE), "Tokenising"):
        for role, pair in tokenised(tokenizer, made.episodes[start : start + AT_ONCE]):
            by_role[role].append(pair)
    return by_role


def _drawn(
    by_role: Mapping[str, Sequence[TokenExample]], shares: Mapping[str, float], total: int, seed: int
) -> list[TokenExample]:
    """`total` replies in the proportions of `shares`, each role's repeated as often as it takes."""
    rng = np.random.default_rng(derive_seed(seed, "exercises"))
    chosen: list[TokenExample] = []
    for role, share in shares.items():
        pool, wanted = by_role[role], round(share * total)
        if not pool:
            continue
        rounds = [rng.permutation(len(pool)) for _ in range(-(-wanted // len(pool)))]
        chosen += [pool[i] for i in np.concatenate(rounds)[:wanted]]
    return chosen
