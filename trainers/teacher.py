"""The teacher: who it is, and its right episodes as examples, kept as they are made and shared by all processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.envs.play import teacher_cases
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.llm.engines import asking, served
from ghar.llm.models import load_configured, load_pretrained, model_path
from ghar.llm.policy import EnginePolicy, Policy
from ghar.llm.tokens import Tokenizer, encode_reply
from ghar.rewards.compose import Reference
from ghar.trainers.runs.distributed import on_main
from ghar.trainers.sft.examples import TrainingExamples, write_examples
from ghar.trainers.sft.pairs import TokenExample, tokenised
from ghar.trainers.sft.warmup import sample_references
from ghar.trainers.sharding import claim, parted, play_parts, rows_in


def taught(system: System[Any], config: Config, model: Any, tokenizer: Tokenizer, kept: Path) -> None:
    """Write the examples of the configured teacher into `kept`; every process calls it, and asks its share.

    model, tokenizer: what training starts from, which teaches itself where the teacher has its name.
    What a killed start has asked lies beside it until then, and is not asked again. BadInput when the teacher is never
    right.
    """
    cases, folder = teacher_cases(system, config), kept.with_name("lessons-parts")
    kept.parent.mkdir(parents=True, exist_ok=True)
    parts = parted(cases, config.env.in_flight)
    claim(folder, f"{derive_seed(asdict(config), [case.sample_id for case in cases]):016x}")
    with ExitStack() as stack:
        teachers: list[Policy] = []

        def make(some: Sequence[Any]) -> list[dict[str, Any]]:
            if not teachers:  # not loaded where all has been asked
                teachers.append(stack.enter_context(teaching(config, system, (model, tokenizer))))
            return _rows(system, config, tokenizer, teachers[0], some)

        play_parts(folder, parts, make, ready=lambda: make(()))
    on_main(lambda: _write(kept, config, len(cases), rows_in(folder, parts)))
    on_main(lambda: shutil.rmtree(folder))


def _rows(
    system: System[Any], config: Config, tokenizer: Tokenizer, teacher: Policy, cases: Sequence[Any]
) -> list[dict[str, Any]]:
    """What was accepted of some cases: one row each, with token ids of its replies."""
    if not cases:
        return []
    warmup = sample_references(system, config, teacher, cases)
    accepted = warmup.accepted, *warmup.rehearsed
    if config.trainer.warmup.teacher == "scripted":  # a model has been asked within its budgets
        check_replies(config.env.budgets, tokenizer, chain.from_iterable(accepted))
    return [
        {
            "attempt": episode.attempt,
            "rehearsed": beside,  # 0: what is trained, 1: the first variant that is rehearsed
            "sample_id": episode.sample_id,
            "pairs": [[list(map(int, p.prompt_ids)), list(map(int, p.completion_ids))] for _, p in
                      tokenised(tokenizer, [episode])],
            "reference": None if beside or episode.sample_id not in warmup.references
                         else asdict(warmup.references[episode.sample_id]),
        }
        for beside, episodes in enumerate(accepted) for episode in episodes
    ]  # fmt: skip


def check_replies(budgets: Mapping[str, int], tokenizer: Tokenizer, episodes: Iterable[Episode]) -> None:
    """BadInput where a rule's free reply has more tokens than env.reply_tokens gives its role: a model that imitates it
    would be cut short."""
    records = (record for episode in episodes for record in episode.trace) if budgets else ()
    for act, reply in ((record.effect, record.result) for record in records):
        if not isinstance(act, Act) or act.choices or act.role not in budgets:
            continue
        tokens = len(encode_reply(tokenizer, reply.text.strip())) - 1  # without the end
        if tokens > budgets[act.role]:
            raise BadInput(
                f"trainer.warmup.teacher=scripted has replies of {tokens} tokens as {act.role}, and env.reply_tokens "
                f"gives it {budgets[act.role]}: raise that, or leave the role out."
            )


def _write(kept: Path, config: Config, asked: int, rows: Iterator[dict[str, Any]]) -> None:
    # as if all had been asked at once: first attempts first
    examples = sorted(rows, key=lambda row: (row["rehearsed"], row["attempt"]))
    accepted = [row for row in examples if not row["rehearsed"]]
    if not accepted:
        raise BadInput(
            f"trainer.warmup.teacher={config.trainer.warmup.teacher} answered none of {asked} samples correctly: "
            "raise trainer.warmup.attempts or samples, or choose another teacher."
        )
    pairs = [TokenExample(prompt, reply) for row in examples for prompt, reply in row["pairs"]]
    references = {row["sample_id"]: Reference(**row["reference"]) for row in accepted if row["reference"] is not None}
    about = {"samples answered rightly by the teacher": f"{len(accepted) / asked:.1%}"}
    write_examples(kept, TrainingExamples(pairs, (), references, about))


@contextmanager
def teaching(config: Config, system: System[Any], student: tuple[Any, Any] | None = None) -> Iterator[Policy]:
    """For the duration, the teacher: the system's rule, a model behind a server, or one loaded here, which vLLM serves
    where engine=vllm (beside a process group all processes must enter together).

    student: model and tokenizer of model.path, where they are loaded already; a teacher of that name is not loaded
    again.
    """
    name, temperature, decisions = config.trainer.warmup.teacher, config.engine.temperature, config.env.decisions
    if "@http" in name:
        with asking(config, name, system.origin.credentialed) as engine:
            yield EnginePolicy(engine, temperature, decisions)
        return
    if name != "scripted":
        if name != config.model.path:
            model, tokenizer = load_pretrained(
                model_path(config, name), config.model.dtype, key="trainer.warmup.teacher"
            )
        else:
            model, tokenizer = student or load_configured(config)
        if config.engine.kind == "vllm":
            with served(replace(config, model=replace(config.model, lora_rank=None)), model, tokenizer) as engine:
                yield EnginePolicy(engine, temperature, decisions)
        else:
            from ghar.llm.hf import HFEngine  # transformers

            yield EnginePolicy(HFEngine(model, tokenizer, config.engine.max_batch), temperature, decisions)
        return
    if system.training.teacher is None:
        raise BadInput(
            f"system {system.name} has no rule that could teach: set trainer.warmup.teacher to the folder or hub name "
            "of a model, or a server as model@http://host:8000/v1."
        )
    yield system.fixed[system.training.teacher]()
