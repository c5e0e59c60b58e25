"""KARE's training from raw tables to an evaluated model (Section 3.3).

    1. records, communities, similar patients          trainers/kare_study.py
    2. a model to begin with (demo: GHAR's base of this task, saved as checkpoints/backbone)
    3. the expert's chains for the training patients   trainers/expert_chains.py
    4. multitask fine-tuning, best validation loss     trainers/sft/distill.py -> checkpoints/distilled
    5. evaluation and report                           trainers/kare.py

A killed run goes on where it was: what is built and what the expert has said is kept, and so are steps of fine-tuning.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from envs.kare.episode import KareCase
from ghar.config import Config
from ghar.data.tasks.considerations import considerations_of
from ghar.disk import full_disk_told
from ghar.llm.engines import engine_key, named_engine
from ghar.llm.models import load_pretrained
from ghar.metrics.runfolder import RunFolder
from trainers import study as ghar_study
from trainers.expert_chains import Chains, write_chains
from trainers.ghar import start_model
from trainers.kare import evaluate
from trainers.kare_model import BACKBONE, DISTILLED
from trainers.kare_study import KareStudy, prepare
from trainers.records import counter
from trainers.rl.learner import sharing
from trainers.runs.distributed import main_first, on_main, rank, together
from trainers.runs.models import save_model, use_cores
from trainers.runs.resume import as_yaml, hold, open_run
from trainers.scripted_expert import expert_knowledge, scripted_expert
from trainers.sft.distill import Taught, answers_of, distil, lessons, look_up_all

STEPS, EXPERT = Path("checkpoints") / "distil-steps", Path("expert")


def train(config: Config) -> None:
    """Distil into config.run_dir and evaluate there. A finished run is only reported."""
    path, finish = Path(config.run_dir), False
    with ExitStack() as held, full_disk_told(path):
        with together(sharing(config).stage):
            use_cores(config.threads)
            torch.manual_seed(config.seed)
            on_main(lambda: hold(held, path))
            opened = on_main(lambda: open_run(config))
            start = time.monotonic()
            if opened is not None:
                _train(config, opened[0])
                finish = rank() == 0
        if finish:  # alone: vLLM's engine, built beside a group, would wait for the others' ones
            _finish(config, RunFolder.open(path), time.monotonic() - start)


def _train(config: Config, folder: RunFolder) -> None:
    if on_main(lambda: (folder.path / DISTILLED).is_dir()):
        on_main(lambda: print("The model was distilled by an earlier start."))
        return
    study = main_first(lambda: prepare(config))
    model, tokenizer = _start(config, folder)
    taught, valid = on_main(lambda: teach(study, tokenizer, folder))
    prompts, tasks = config.env.prompts, study.kare.tasks
    pairs = lessons(tokenizer, taught, tasks, prompts)
    result = distil(config, model, tokenizer, pairs, answers_of(tokenizer, valid, tasks, prompts), folder.path / STEPS)
    on_main(lambda: _keep(folder, result.curve, result.step))
    on_main(lambda: save_model(result.model, tokenizer, folder.path / DISTILLED))
    on_main(lambda: shutil.rmtree(folder.path / STEPS, ignore_errors=True))


def _start(config: Config, folder: RunFolder) -> tuple[Any, Any]:
    """The backbone. The demo's is GHAR's base of this task, which has read about conditions and drugs in GHAR's prompts
    and has never seen one of KARE's."""
    if config.model.kind == "pretrained":
        assert config.model.path is not None  # ghar.configure asks for it
        return load_pretrained(config.model.path, config.model.dtype)
    retriever = replace(config.retriever, kind="tfidf", top_n=1)
    # over meta-paths, and one base for all of KARE's settings
    study = main_first(lambda: ghar_study.prepare(replace(config, kare=None, retriever=retriever)))
    model, tokenizer = start_model(study, folder, folder.log if rank() == 0 else lambda row: None)
    on_main(lambda: save_model(model, tokenizer, folder.path / BACKBONE))
    return model, tokenizer


def teach(study: KareStudy, tokenizer: Any, folder: RunFolder) -> tuple[Taught, Taught]:
    """What is known of training and validation patients: their knowledge, and the expert's best chains.

    Chains for validation patients are written for two_in_one alone, whose validation loss is of chain and label.
    """
    kare, splits, count = study.kare, study.records.splits, counter(tokenizer)
    parts: list[Taught] = []
    found: dict[str, Chains] = {}
    for name, samples in (("training", splits.train), ("validation", splits.valid)):
        cases = study.cases(samples, count)
        knowledge = look_up_all(cases, study.look_up, study.corpus, kare.tokens, count)
        wanted = kare.tasks == "two_in_one" or (kare.tasks != "label_only" and name == "training")
        if wanted:
            found[name] = _ask_expert(study, parts[0].cases if parts else cases, cases, knowledge, folder)
        parts.append(Taught(cases, knowledge, found[name].best if wanted else {}))
    told = {name: {**chains.counts, "unreadable replies": chains.cost.by_reason} for name, chains in found.items()}
    folder.write_summary({**(folder.summary() or {}), "chains": told})
    for name, chains in found.items():
        print(f"Chains for {name} patients: {', '.join(f'{what} {n}' for what, n in chains.counts.items())}")
    return parts[0], parts[1]


def _ask_expert(
    study: KareStudy,
    training: Sequence[KareCase],
    cases: Sequence[KareCase],
    knowledge: dict[str, str],
    folder: RunFolder,
) -> Chains:
    """Chains for `cases`. training: what a scripted expert of real patients has its grades from.

    A model's answers cost something, so runs that differ in their seed share them; a rule's stay with the run.
    """
    config, records, expert = study.config, study.records, study.kare.expert
    seen = [(case.topics, case.label) for case in training]
    labels = len(records.task.labels)
    rule = scripted_expert(*expert_knowledge(records.world, records.names, config.task.name, labels, seen))
    considerations = "\n".join(considerations_of(records.task.name))
    root = folder.path if expert == "scripted" else Path(config.data.cache) / "kare"
    store = root / EXPERT / f"{engine_key(config, expert)}.jsonl"
    seed = config.task.split_seed
    texts = [case.text for case in cases]
    with named_engine(config, expert, rule, records.cohort.credentialed, lambda: texts) as engine:
        return write_chains(engine, cases, knowledge, considerations, store, chains=study.kare.chains, seed=seed)


def _keep(folder: RunFolder, curve: Sequence[dict[str, float]], step: int) -> None:
    """The losses, and which weights were kept."""
    folder.rewind("base", 10**9)
    for row in curve:
        numbers = {"train/loss": row["loss"], "train/accuracy": row["accuracy"], "eval/loss": row["valid_loss"]}
        folder.log({"phase": "sft", "step": int(row["step"]), **numbers})
    print(f"Kept the weights of step {step} of {int(curve[-1]['step'])}, with the lowest validation loss.")


def _finish(config: Config, folder: RunFolder, seconds: float) -> None:
    start = time.monotonic()
    evaluate(config)
    folder.write_config(as_yaml(config))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # GB, of this process at its largest
    taken = {"distillation": seconds, "evaluation": time.monotonic() - start}
    folder.write_summary({**(folder.summary() or {}), "time": taken, "memory_gb": memory})
