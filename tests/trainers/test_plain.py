"""The plain training against the fast one: the same gradients, the same replies, the same advantages."""

from __future__ import annotations

import copy
import errno
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ghar.config import RlConfig
from ghar.envs.play import play, stage_of
from ghar.envs.rollout import derive_seed
from ghar.envs.system import WORDS as WORDS_READER
from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.errors import BadInput
from ghar.launch import entry
from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.llm.models import untrained
from ghar.llm.policy import EnginePolicy
from ghar.metrics.runfolder import RunFolder
from ghar.rewards.compose import EpisodeReward
from ghar.trainers import plain, recipe
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.evaluation.weights import make_actor
from ghar.trainers.recipe import train
from ghar.trainers.rl import loop
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.mappo import improve
from ghar.trainers.rl.settings import MISMATCH_LIMIT, settings_of
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.resume import finished
from tests.trainers.tiny import AGENTS, ROLES, VOCAB, build, for_two, perturb, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.slow

LEFT_OUT = {  # of trainer.rl, as the comment on `plain.SUPPORTED` says
    "value_epochs", "value_minibatches", "value_warmup", "micro_tokens", "save_every",
}  # fmt: skip
WRITTEN = {(): "[]", None: "null", False: "false"}  # as a command line has them
CHOICES = ((5, 6), (9, 10), (9, 11, 12))


def reply(rng: np.random.Generator, length: int, choices: tuple[tuple[int, ...], ...] = ()) -> Completion:
    """Any reply, at a behaviour log-prob that is not quite the model's."""
    ids = choices[rng.integers(len(choices))] if choices else tuple(rng.integers(2, VOCAB, length).tolist())
    prompt = tuple(rng.integers(2, VOCAB, rng.integers(1, 5)).tolist())
    return Completion("", prompt, ids, tuple((-4 + 0.3 * rng.normal(size=len(ids))).tolist()), choices)


def test_no_key_of_rl_is_passed_over_in_silence() -> None:
    """A key that is added to the fast trainer is read here too, or refused, or left out by name."""
    text = Path(plain.__file__).read_text()
    read = {field.name for field in fields(RlConfig) if re.search(rf"\brl\.{field.name}\b", text)}
    assert {field.name for field in fields(RlConfig)} - read == LEFT_OUT


def episodes(seed: int) -> tuple[list[Episode], list[EpisodeReward]]:
    """Six attempts at two samples and one at a third: choices, a reply in two parts, one that was forced and is paid,
    and one that failed."""
    rng, played, rewards = np.random.default_rng(seed), [], []
    for number in range(7):
        first, forced, last = reply(rng, 2, CHOICES), Completion("no"), reply(rng, 1 + number % 3)
        parts = replace(reply(rng, 1, CHOICES), before=last)
        turns = tuple(
            Turn(agent, role, index, 0, said, True, bool(said.token_ids))
            for index, (agent, role, said) in enumerate(
                [("top", "retrieve", first), ("top", "continue", forced), ("low", "summarise", parts)]
            )
        )
        failure = "retrieval" if number == 5 else None
        played.append(Episode(f"s{number // 3}", number % 3, Prediction(0), turns, failure=failure))
        values = tuple({"orm": float(value)} for value in rng.normal(size=3))
        rewards.append(EpisodeReward({}, sum(v["orm"] for v in values), values, "shared"))
    return played, rewards


@pytest.mark.parametrize("estimator", ["gae", "rloo"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_update_moves_the_weights_as_the_fast_one_does(estimator: str, seed: int, small_config):
    config = small_config(
        f"trainer.rl.estimator={estimator}", "trainer.rl.epochs=2", "trainer.rl.minibatches=2", "model.critic=head",
        "trainer.rl.entropy=0.03", "trainer.rl.kl=0.2", "trainer.rl.lam=0.9", "trainer.rl.gamma=0.97",
        "trainer.rl.max_grad_norm=0.5",
    )  # fmt: skip
    rl = config.trainer.rl
    actor = ActorCritic(tiny_model(), for_two(finetune="full", detach=True))
    with torch.no_grad():
        for weight in actor.policy.parameters():  # so that the reference is another policy
            weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)))
    if seed:
        perturb(actor, seed)  # a critic that has learned something
    policy = plain.Policies(copy.deepcopy(actor.policy), AGENTS, 1.0)
    policy.reference = copy.deepcopy(actor.reference)
    for agent, head in policy.heads.items():
        head.load_state_dict(actor.heads[agent].state_dict())
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    played, rewards = episodes(seed)

    fast = replace(settings_of(config), mismatch_limit=None)
    learner = PlainLearner(actor, torch.optim.SGD(actor.trainable_parameters(), lr=0.1), rl.max_grad_norm)
    report = improve(learner, build(played, rewards), fast, np.random.default_rng(seed))
    optimizer = torch.optim.SGD([*policy.model.parameters(), *policy.head_weights()], lr=0.1)
    row = plain.update(policy, optimizer, plain.replies_of(played, rewards), rewards, rl, np.random.default_rng(seed))

    moved = max(float((a.detach() - b).abs().max()) for a, b in zip(policy.model.parameters(), before, strict=True))
    assert moved > 1e-3
    for own, other in zip(policy.model.parameters(), actor.policy.parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-6)
    for agent, head in policy.heads.items():
        for own, other in zip(head.parameters(), actor.heads[agent].parameters(), strict=True):
            torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-6)
    assert row["train/loss/policy"] == pytest.approx(report["loss/policy"], rel=1e-6, abs=1e-6)
    assert row["train/loss/kl"] == pytest.approx(report["loss/kl"], rel=1e-6, abs=1e-6)
    assert row["train/grad_norm"] == pytest.approx(report["grad_norm"], rel=1e-5)


def test_with_fewer_replies_than_minibatches_it_takes_as_many_steps_as_replies(small_config, monkeypatch):
    """As the fast one does: a step without a reply has no loss, and moves weights by the optimiser's momentum alone."""
    rl = small_config("trainer.rl.minibatches=9", "trainer.rl.epochs=1", "trainer.rl.estimator=rloo").trainer.rl
    policy, (played, rewards), steps = plain.Policies(tiny_model(), AGENTS, 1.0), episodes(0), list[int]()
    replies = plain.replies_of(played, rewards)[:4]
    monkeypatch.setattr(plain, "descend", lambda *about: steps.append(1) or 0.0)
    still = torch.optim.SGD(policy.head_weights(), lr=0.1)
    row = plain.update(policy, still, replies, rewards, rl, np.random.default_rng(0))
    assert len(steps) == len(replies) == 4 and np.isfinite(list(row.values())).all()


def test_episodes_are_played_as_the_rollout_plays_them(small_system, small_config):
    config = small_config()
    model, tokenizer = untrained(config, list(small_system.training.texts()), (), 0)
    policy = EnginePolicy(HFEngine(model, tokenizer), 1.0, config.env.decisions)
    slow = plain.Sampler(model, tokenizer, 1.0, config.env.decisions)
    cases = small_system.cases.train[:8]
    stage = stage_of(small_system, small_system.variants[small_system.main], config)
    for own, fast in zip(
        [plain.play(small_system, case, slow, 7) for case in cases],
        play(stage, cases, policy, seed=7, title="Rollout"),
        strict=True,
    ):
        assert [t.completion.token_ids for t in own.turns] == [t.completion.token_ids for t in fast.turns]
        assert own.prediction == fast.prediction
        assert len(own.trace) == len(fast.trace)
        for one, other in zip(own.turns, fast.turns, strict=True):
            assert one.completion.logprobs == pytest.approx(other.completion.logprobs, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_replies_are_those_of_the_engine(temperature: float):
    """Free ones, one of several choices, a list of them, and a reply that goes on behind another."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    free = Request("w2 w3 w4", 6, seed=3, temperature=temperature, separator=" ")
    said = HFEngine(model, tokenizer).generate([free])[0]
    choices = ("w5 w6", "w7", "w5 w7 w8")
    asked = [
        free,
        *(replace(free, choices=choices, seed=seed) for seed in range(4)),
        *(replace(free, choices=choices, most=3, seed=seed) for seed in range(4)),
        replace(free, choices=choices, before=said, head="w9"),
    ]
    slow = plain.Sampler(model, tokenizer, temperature, "free")
    for request, fast in zip(asked, HFEngine(model, tokenizer).generate(asked), strict=True):
        own = slow.reply(request)
        assert replace(own, logprobs=()) == replace(fast, logprobs=())
        assert own.logprobs == pytest.approx(fast.logprobs, abs=1e-5)


def test_a_whole_plain_training_learns_what_it_is_shown(small_config, tmp_path: Path, monkeypatch):
    config = small_config(
        "trainer.method=plain", "eval.variants=[scripted,ghar_base,ghar_sft,ghar_rl]",
        "trainer.base.steps=0", "trainer.warmup.samples=40", "trainer.warmup.epochs=1", "trainer.rl.updates=2",
        "trainer.rl.episodes=8", "trainer.rl.eval_samples=8", "trainer.rl.eval_every=2", "task.max_test=8",
        f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    with monkeypatch.context() as patch:  # killed behind SFT
        patch.setattr(plain, "Policies", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    with pytest.raises(BadInput, match="does not resume"):
        train(config)
    train(replace(config, resume="never"))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    sft, rl = ([row for row in rows if row["phase"] == phase] for phase in ("sft", "rl"))
    assert sft[-1]["train/loss"] < sft[0]["train/loss"]
    assert [row["step"] for row in rl] == [1, 2] and "eval/accuracy" in rl[-1]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["answered_by"]["ghar_rl"] == "trained" and summary["weights_step"] == 2
    assert (tmp_path / "run" / "report.html").is_file()
    evaluated = evaluate(replace(config, resume="never"))  # as any run: the saved weights give the same replies again
    assert evaluated["policies"]["ghar_rl"]["reward"] == summary["policies"]["ghar_rl"]["reward"]
    assert finished(replace(config, resume="never"))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("logger.wandb=offline", "logger.wandb=offline"),
        ("trainer.rl.select=macro_f1", "trainer.rl.select=macro_f1"),
        ("ray=cluster", "ray=none"),
        ("trainer.rl.credit=token", "trainer.rl.credit=token"),
        ("model.lora_rank=8", "model.lora_rank=8"),
        ("trainer.rl.estimator=gae", "model.critic=head"),
        ("system.composition=separate", "system.composition=separate"),
    ],
)
def test_settings_that_it_lacks_are_named(override: str, named: str, small_config: Any, tmp_path: Path):
    with pytest.raises(BadInput, match=named):
        train(small_config("trainer.method=plain", override, f"run_dir={tmp_path / 'run'}"))
    assert not (tmp_path / "run").exists()


def test_a_variant_that_needs_further_training_is_named_and_the_folder_is_free_again(small_config, tmp_path: Path):
    own = ["trainer.method=plain", "eval.variants=[ghar_rl,label_sft]", f"run_dir={tmp_path / 'run'}"]
    with pytest.raises(BadInput, match=r"label_sft: name others in eval\.variants"):
        train(small_config(*own))
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_the_page_names_each_key_that_it_refuses():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    table = page.partition("| key | values of a plain training |")[2].partition("\n\n")[0]
    for key, values in plain.SUPPORTED.items():
        [line] = re.findall(rf"^\| `{re.escape(key)}` \| (.*) \|$", table, re.MULTILINE)
        assert [word.strip("`") for word in line.split(", ")] == [WRITTEN.get(value, str(value)) for value in values]


def test_by_default_it_evaluates_the_variants_that_it_trains_and_names_the_others(small_system, small_config, capsys):
    given = small_config("trainer.method=plain")
    found = plain.playable(small_system, small_system, given)
    assert found.eval.variants == tuple(name for name in small_system.listed if name != "label_sft")
    assert "label_sft" in small_system.listed and "label_sft, so its evaluation leaves" in capsys.readouterr().out
    named = replace(given, eval=replace(given.eval, variants=("ghar_rl",)))
    assert plain.playable(small_system, small_system, named) == named and not capsys.readouterr().out


def test_what_it_can_train_is_what_it_evaluates(small_config, tmp_path: Path, monkeypatch):
    for name in ("start_model", "imitate"):
        monkeypatch.setattr(plain, name, lambda *_: (SimpleNamespace(), {}))
    for name in ("fine_tune", "save_model", "Policies", "reinforce"):
        monkeypatch.setattr(plain, name, lambda *_: ())
    monkeypatch.setattr(plain, "reader_of", lambda *_: WORDS_READER)

    def played(table: Any, config: Any, folder: Any) -> None:
        raise BadInput(",".join(config.eval.variants))

    monkeypatch.setattr(plain, "evaluate_system", played)
    with pytest.raises(BadInput, match=r"ghar_sft") as caught:
        train(small_config("trainer.method=plain", f"run_dir={tmp_path / 'run'}"))
    assert "label_sft" not in str(caught.value)


def test_who_stops_it_or_fills_its_disk_is_not_promised_that_it_goes_on(
    small_config, tmp_path: Path, monkeypatch, capsys
):
    config = small_config("trainer.method=plain", "resume=never", f"run_dir={tmp_path / 'run'}")
    faults = [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device", "step-1")]
    monkeypatch.setattr(recipe, "train_plain", lambda *_: (_ for _ in ()).throw(faults.pop(0)))
    for code, sentence in (
        (130, r"^Stopped\. Start again with resume=never"),
        (2, "make room and start again with resume=n"),
    ):
        with pytest.raises(SystemExit) as left, entry._explain_errors():
            train(config)
        said = capsys.readouterr().err
        assert left.value.code == code and re.search(sentence, said) and "goes on from its newest" not in said
    with pytest.raises(SystemExit), entry._explain_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == f"Stopped. {entry.GOES_ON}\n"


def test_weights_that_are_saved_are_not_copied_as_a_reference(small_config, tmp_path: Path, monkeypatch):
    config = small_config("model.lora_rank=null", "trainer.rl.kl=0.2")
    system = SimpleNamespace(agents=AGENTS, origin=SimpleNamespace(credentialed=False))
    policy = plain.Policies(tiny_model(), AGENTS, 1.0)
    assert make_actor(config, tiny_model(), AGENTS).reference is not None
    monkeypatch.setattr(plain, "identity", lambda config, actor, *_: {"reference": str(actor.reference)})
    plain.save(system, config, policy, tiny_tokenizer(), tmp_path, {"step": 1, "eval/accuracy": 0.5})  # type: ignore[arg-type]
    kept = checkpoint.load(tmp_path / "step-1", {"reference": "None"})
    own = policy.model.model.embed_tokens.weight
    assert any(torch.equal(weight, own) for weight in kept.weights.values())


class Played:
    """A system of two samples that are played three times each, whose replies and rewards are `episodes`'."""

    agents, roles, origin = AGENTS, ROLES, SimpleNamespace(credentialed=False)
    training, block = SimpleNamespace(shaping=None), 1
    cases = SimpleNamespace(train=[SimpleNamespace(sample_id=f"s{i}") for i in range(2)], valid=[])

    def __init__(self) -> None:
        played, rewards = episodes(3)
        self.played = {(episode.sample_id, episode.attempt): episode for episode in played}
        self.rewards = {id(episode): reward for episode, reward in zip(played, rewards, strict=True)}

    def reward(self, episode: Episode, case: Any) -> EpisodeReward:
        return self.rewards[id(episode)]

    def begin(self, order: Any, learner: Any, version: int) -> Any:
        """As the workers of the fast trainer play."""
        return lambda: [self.played[c.sample_id, a] for c, a in zip(order.cases, order.attempts, strict=True)]


SHARES = """
def lr(update, updates):
    return 0.5 / update


def kl(update, updates):
    return 3.0 / update


def entropy(update, updates):
    return 2.0 * update


def clip(update, updates):
    return 0.1 * update
"""


def test_a_schedule_scales_both_trainers_losses_and_steps_alike(small_config, tmp_path: Path, monkeypatch):
    """Two updates through both loops, under a module that scales all four keys."""
    (tmp_path / "plain_and_fast").mkdir()
    (tmp_path / "plain_and_fast" / "own.py").write_text(SHARES)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = small_config(
        "trainer.rl.schedule=plain_and_fast.own", "trainer.rl.estimator=gae", "model.critic=head",
        "trainer.rl.epochs=2", "trainer.rl.minibatches=2", "trainer.rl.entropy=0.03", "trainer.rl.kl=0.2",
        "trainer.rl.updates=2", "trainer.rl.eval_every=9", "trainer.rl.episodes=6", "trainer.rl.attempts=3",
        "trainer.rl.lr=0.05", "trainer.rl.value_lr=0.2", "trainer.rl.max_grad_norm=9",
    )  # fmt: skip
    system, rl = Played(), config.trainer.rl
    actor = ActorCritic(tiny_model(), for_two(finetune="full", detach=True))
    policy = plain.Policies(copy.deepcopy(actor.policy), AGENTS, 1.0)
    start = [weight.detach().clone() for weight in policy.model.parameters()]

    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, weight_decay: torch.optim.SGD(groups, lr=1.0))
    monkeypatch.setattr(
        plain, "play", lambda system, case, agents, seed, attempt: system.played[case.sample_id, attempt]
    )
    monkeypatch.setattr(plain, "validate", lambda *_: {"eval/accuracy": 0.0})
    rows = list(plain.reinforce(system, config, policy, tiny_tokenizer(), {}))  # type: ignore[arg-type]

    monkeypatch.setitem(MISMATCH_LIMIT, "float32", None)
    monkeypatch.setattr(loop, "batch_report", lambda *_: {})
    monkeypatch.setattr(loop, "_is_evaluated", lambda *_: False)
    optimizer = torch.optim.SGD(actor.parameter_groups(rl.lr, rl.value_lr), lr=1.0)
    rng = np.random.default_rng(derive_seed(config.seed, "rl"))
    going = loop._Loop(PlainLearner(actor, optimizer, rl.max_grad_norm), rng, None, kl=rl.kl)
    about = loop.TrainingInputs(system, config, {}, RunFolder(tmp_path))  # type: ignore[arg-type]
    workers = SimpleNamespace(ahead=0, begin=system.begin)
    for going.step in (1, 2):
        told = loop._update(about, going, workers)  # type: ignore[arg-type]
        own = rows[going.step - 1]
        assert own["train/lr"] == told["train/lr"] == rl.lr * 0.5 / going.step
        assert own["train/kl/weight"] == told["train/kl/weight"] == pytest.approx(rl.kl * 3 / going.step)
        assert own["train/grad_norm"] == pytest.approx(told["train/grad_norm"], rel=1e-4)
    assert (
        max(float((a.detach() - b).abs().max()) for a, b in zip(policy.model.parameters(), start, strict=True)) > 1e-3
    )
    for own, other in zip(policy.model.parameters(), actor.policy.parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-5)
    for agent, head in policy.heads.items():
        torch.testing.assert_close(head.weight, actor.heads[agent].weight, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(head.bias, actor.heads[agent].bias, atol=1e-5, rtol=1e-5)


def test_it_stops_after_validations_that_brought_nothing_better(small_config, monkeypatch):
    config = small_config(
        "trainer.rl.updates=9", "trainer.rl.eval_every=1", "trainer.rl.patience=2", "trainer.rl.episodes=6",
        "trainer.rl.select=reward",
        "trainer.rl.attempts=3",
    )  # fmt: skip
    scores = iter([0.1, 0.1, 0.3, 0.2, 0.3, 0.9])
    monkeypatch.setattr(
        plain, "play", lambda system, case, agents, seed, attempt: system.played[case.sample_id, attempt]
    )
    monkeypatch.setattr(plain, "update", lambda *_: {})
    monkeypatch.setattr(plain, "validate", lambda *_: {"eval/reward": next(scores)})
    policy = plain.Policies(tiny_model(), AGENTS, 1.0)
    rows = list(plain.reinforce(Played(), config, policy, tiny_tokenizer(), {}))  # type: ignore[arg-type]
    assert [row["eval/reward"] for row in rows] == [0.1, 0.1, 0.3, 0.2, 0.3]
