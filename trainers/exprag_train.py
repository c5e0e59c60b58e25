"""EXPRAG's reader trained as GHAR's agents are: a warm-up that imitates right answers, then PPO on questions.

    1. questions, reports, index, model                trainers/exprag.py, trainers/exprag_model.py
    2. warm-up: the answers of the fixed rule that are right, SFT       trainers/sft/run.py
    3. PPO on the training questions, reward of rewards/options.py      trainers/rl/mappo.py
    4. the model with the best F1 on the validation questions, to checkpoints/model; its evaluation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.exprag.episode import ExpragEpisodes
from envs.exprag.flare import Pieces
from envs.exprag.rule import MajorityOfExperiences
from envs.rollout import derive_seed
from ghar.config import Config
from ghar.data.tasks.dischargeqa import Question
from ghar.errors import BadInput
from ghar.llm.engines import AnyEngine, make_engine
from ghar.llm.policy import EnginePolicy, Policy
from ghar.metrics.dischargeqa import set_scores
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from rewards.options import score_options
from trainers.engines import serving
from trainers.exprag import ExpragStudy, evaluate, play_questions, prepare
from trainers.exprag_model import load_model, sure_of
from trainers.play import tokenised
from trainers.rl.actor_critic import ActorCritic
from trainers.rl.mappo import update
from trainers.rl.trajectory import build
from trainers.runs.models import make_actor, mappo_config, save_model, use_cores
from trainers.runs.resume import as_yaml, occupied
from trainers.sft.run import run_sft
from trainers.sft.warmup import imitation

ROLES = ("predict", "answer")
MODEL = Path("checkpoints") / "model"


def train(config: Config) -> dict[str, Any]:
    """Train into config.run_dir and evaluate there; returns the summary. BadInput where a trained model is already."""
    use_cores(config.threads)
    torch.manual_seed(config.seed)
    path = Path(config.run_dir)
    with occupied(path):
        if (path / MODEL).exists():
            raise BadInput(f"{path / MODEL} holds a trained model: choose another run_dir, or delete it.")
        study = prepare(config)
        folder = RunFolder.open(path)
        folder.write_config(as_yaml(config))
        model, tokenizer = load_model(study)
        model = warm_up(study, model, tokenizer, folder)
        actor = reinforce(study, model, tokenizer, folder)
        with actor.merged() as merged:
            save_model(merged, tokenizer, path / MODEL)
    return evaluate(replace(config, eval=replace(config.eval, checkpoint=str(path / MODEL))))


def warm_up(study: ExpragStudy, model: Any, tokenizer: Any, folder: RunFolder) -> Any:
    """SFT on the fixed rule's right answers to training questions."""
    config, warmup = study.config, study.config.trainer.warmup
    questions = study.splits.train[: warmup.samples]
    # the rule writes no draft, so FLARE's sentences are left to the model
    episodes = ExpragEpisodes(replace(study.spec(True), flare=False))
    played = play_questions(study, questions, MajorityOfExperiences(), episodes, seed=config.seed, title="Warm-up")
    right = [e for e, q in zip(played, questions, strict=True) if e.prediction.label == q.answer]
    if not right:
        raise BadInput("The rule answers no training question rightly, so there is nothing to imitate: use more stays.")
    pairs = [pair for _, pair in tokenised(tokenizer, right)]
    result = run_sft(model, tokenizer, pairs, imitation(config, len(pairs)))
    for row in result.curve:
        folder.log({"phase": "sft", "step": int(row["step"]), "train/loss": row["loss"]})
    return result.model


def reinforce(study: ExpragStudy, model: Any, tokenizer: Any, folder: RunFolder) -> ActorCritic:
    """Multi-agent PPO with one agent: returns the actor with the weights that did best on the validation questions."""
    config, rl = study.config, study.config.trainer.rl
    rng = np.random.default_rng(derive_seed(config.seed, "exprag"))
    actor = make_actor(config, model)
    optimizer = torch.optim.AdamW(actor.parameter_groups(rl.lr, rl.value_lr), weight_decay=0.0)
    engine, pieces = make_engine(config, actor.model, tokenizer), sure_of(tokenizer)
    upcoming: list[int] = []
    best, kept = -1.0, actor.trainable_state()
    for step in range(rl.updates + 1):
        row: dict[str, Any] = {"step": step, "phase": "rl"}
        if step:
            size = min(rl.episodes, len(study.splits.train))
            while len(upcoming) < size:
                upcoming += rng.permutation(len(study.splits.train)).tolist()
            batch, upcoming = [study.splits.train[i] for i in upcoming[:size]], upcoming[size:]
            row |= _update(study, actor, optimizer, engine, pieces, batch, rng, step)
        if step % rl.eval_every == 0 or step == rl.updates:
            f1 = _validate(study, actor, engine, pieces, step)
            row["eval/f1"] = f1
            print(f"update {step:3d}  validation: F1 {f1:.3f}")
            if f1 > best:
                best, kept = f1, {name: weight.clone() for name, weight in actor.trainable_state().items()}
        folder.log(row)
    engine.close()
    actor.load_trainable_state(kept)
    return actor


def _update(
    study: ExpragStudy,
    actor: ActorCritic,
    optimizer: torch.optim.Optimizer,
    engine: AnyEngine,
    pieces: Pieces,
    batch: Sequence[Question],
    rng: np.random.Generator,
    step: int,
) -> dict[str, float]:
    """Play, reward, train."""
    config = study.config
    with serving(engine, actor, step - 1):
        policy = EnginePolicy(engine, config.engine.temperature)
        episodes = _play(study, batch, policy, pieces, derive_seed(config.seed, "rollout", step), f"Rollout {step}")
    rewards = [score_options(e, q.answer, config.reward.eta) for e, q in zip(episodes, batch, strict=True)]
    traj = build(episodes, rewards, ("top",), ROLES)
    rows = config.trainer.rl.epochs * sum(row.trainable for row in traj.rows())
    with progress(rows, f"Update {step}") as advance:
        report = update(actor, optimizer, traj, mappo_config(config), rng, advance, step - 1)
    found = {f"train/{name}": value for name, value in report.items()}
    found |= {"train/reward/total": float(np.mean([reward.total for reward in rewards]))}
    return found | {f"train/reward/{t}": float(np.mean([r.terms[t] for r in rewards])) for t in ("f1", "format")}


def _play(
    study: ExpragStudy, questions: Sequence[Question], policy: Policy, pieces: Pieces, seed: int, title: str
) -> list[Any]:
    return play_questions(study, questions, policy, ExpragEpisodes(study.spec(True), pieces), seed=seed, title=title)


def _validate(study: ExpragStudy, actor: ActorCritic, engine: AnyEngine, pieces: Pieces, step: int) -> float:
    """Mean F1 on the validation questions, the most probable answers."""
    questions = study.splits.valid[: study.config.trainer.rl.eval_samples]
    with serving(engine, actor, step):
        policy = EnginePolicy(engine, temperature=0)
        played = _play(study, questions, policy, pieces, study.config.seed, f"Validation {step}")
    scored = [set_scores(q.answer, e.prediction.label)["f1"] for q, e in zip(questions, played, strict=True)]
    return float(np.mean(scored))
