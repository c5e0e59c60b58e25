"""The rollout against a lock-step loop: episodes per second, how busy the engine is, and token ids that change.

Both play the same patients with the same engine, seeds and number of patients at once; the retriever takes a given
time per call, however many requests the call holds, and no processor while it waits, as a service would. The lock-step
loop is what Search-R1 and its relatives do: a batch of patients acts, all wait for the longest reply; all who want to
look something up do so in one call, all wait; the next batch starts when the last patient is done. It keeps the reply's
text and encodes it again for training, so it trains on other ids than were sampled wherever the model spelled a word in
another way than the tokenizer does.

Each pass begins as a phase of training does, with weights that were just handed over: what the pass before has left
in the engine's prefix cache would make the second one quicker.

The taught policy is the warmed-up one of a run (run_dir=...), with the demo's prompts and short replies of nearly equal
length. What a run at full scale asks of the engine, whole histories and replies of up to a few hundred tokens, comes
from an untaught one of its shape, which babbles up to the limit of each role, but seldom names a meta-path.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ghar.envs.ghar.episode import AGENTS, ROLES
from ghar.envs.rollout import Corpus, EpisodeJob, derive_seed, rollout
from ghar.episode import Act, Completion, Episode, EpisodeGenerator, Evidence, Prediction, Reply, Retrieve
from ghar.llm.policy import Done, EnginePolicy, Policy, RequestQueue, open_queue
from ghar.llm.tokens import Tokenizer, encode_reply

LOOKUPS = 4  # workers of the retriever: calls the rollout has under way; retriever.workers=... takes another number


@dataclass(frozen=True)
class Setting:
    """What is played: which model, patients at once, seconds a call of the retriever takes, episodes (so many that the
    last ones, which no one follows, weigh little) and what differs from the configuration."""

    taught: bool
    together: int
    delays: tuple[float, ...]
    episodes: int
    overrides: tuple[str, ...] = ()


FULL = ("env.prompts=full", "env.history_tokens=2048", "system.max_iterations=6")
SETTINGS = {  # full: prompts; the number: patients at once
    "taught-64": Setting(True, 64, (0.05, 0.5), 1024),
    "taught-16": Setting(True, 16, (0.05,), 512),
    "full-64": Setting(False, 64, (0.05,), 192, FULL),
    "full-16": Setting(False, 16, (0.05,), 64, FULL),
}


@dataclass(frozen=True)
class Played:
    """One pass over the patients. busy: share of the time in which the engine worked; changed: share of the episodes
    with a turn whose ids in training are not those sampled; rows: what was sampled, to compare passes."""

    seconds: float
    busy: float
    changed: float
    rows: Counter[tuple[int, ...]]


Loop = Callable[[Sequence[EpisodeJob], "Watched", Corpus, int], float]


def speed(seeds: int, overrides: Sequence[str], share: float, names: Sequence[str] = ()) -> dict[str, Any]:
    """Both loops with every delay under seeds 0..seeds-1, on `share` of the episodes. names: of `SETTINGS`, all where
    none is given. BadInput for an unknown one."""
    from benchmarks.choice import choose
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.llm.engines import make_engine
    from ghar.trainers.base import reader_of
    from ghar.trainers.rl.serving import serving
    from ghar.trainers.runs.models import load_sft, use_cores

    settings = choose(SETTINGS, names or list(SETTINGS))
    given = ["+experiment=mimic4_los", f"retriever.workers={LOOKUPS}", *overrides]
    config = load(given)
    use_cores(config.threads)
    model, tokenizer = load_sft(config, Path(config.run_dir) / "checkpoints")
    torch.manual_seed(0)
    untaught = type(model)(model.config).to(model.device, model.dtype).eval()
    engine = make_engine(config, model, tokenizer)
    policy = EnginePolicy(engine, config.engine.temperature)
    lookups, versions = config.retriever.workers, count()
    result: dict[str, Any] = {}
    for name, setting in settings.items():
        system = systems.build(Records(load([*given, *setting.overrides]))).read_by(reader_of(tokenizer, model))
        main = system.variants[system.main]
        cases = system.cases.train[: max(1, round(share * setting.episodes))]
        jobs = [EpisodeJob(case.sample_id, 0, partial(system.episode, case, main)) for case in cases]

        def serve(one: Any = model if setting.taught else untaught) -> AbstractContextManager[None]:
            return serving(engine, one, next(versions))

        print(f"{name}: {len(jobs)} episodes", flush=True)
        sizes = (setting.together, lookups, seeds, setting.delays)
        result[name] = compare(jobs, policy, serve, system.corpus, tokenizer, *sizes)
        result[name]["episodes"] = len(jobs)
    engine.close()
    return result | {"engine": config.engine.kind, "look-ups at once": lookups}


def compare(
    jobs: Sequence[EpisodeJob],
    policy: Policy,
    serve: Callable[[], AbstractContextManager[None]],
    corpus: Corpus,
    tokenizer: Tokenizer,
    together: int,
    lookups: int,
    seeds: int,
    delays: Sequence[float],
) -> dict[str, Any]:
    """Medians over seeds and of the ratios seed by seed; who comes first changes from seed to seed.

    serve: within it the policy's engine answers, with weights newly handed over."""
    loops: dict[str, Loop] = {
        "rollout": partial(_rollout, together=together, lookups=lookups),
        "lock-step": partial(_lock_step, together=together, tokenizer=tokenizer),
    }
    for loop in loops.values():  # first calls compile and allocate
        with serve():
            loop(jobs[: together // 4], Watched(policy), corpus, 0)
    result: dict[str, Any] = {}
    for delay in delays:
        runs: dict[str, list[Played]] = {name: [] for name in loops}
        for seed in range(seeds):
            for name in sorted(loops, reverse=seed % 2 == 1):
                with serve():
                    runs[name].append(_measured(loops[name], jobs, policy, Slow(corpus, delay), seed))
                print(f"{delay:g} s a call, seed {seed}, {name}: {runs[name][-1].seconds:.2f} s", flush=True)
        result[f"{delay:g} s a call"] = _table(runs, len(jobs))
    return result


def _table(runs: dict[str, list[Played]], episodes: int) -> dict[str, Any]:
    base = runs["lock-step"]
    table: dict[str, Any] = {}
    for name, played in runs.items():
        times = [b.seconds / p.seconds for b, p in zip(base, played, strict=True)]
        table[name] = {
            "episodes per second": median(episodes / p.seconds for p in played),
            "times lock-step": median(times),
            "times lock-step, seed by seed": times,
            "engine busy": median(p.busy for p in played),
            "episodes with changed ids": median(p.changed for p in played),
            "same replies as lock-step": median(
                (p.rows & b.rows).total() / b.rows.total() for b, p in zip(base, played, strict=True)
            ),
        }
    return table


def _measured(loop: Loop, jobs: Sequence[EpisodeJob], policy: Policy, corpus: Corpus, seed: int) -> Played:
    watched = Watched(policy)
    start = time.perf_counter()
    changed = loop(jobs, watched, corpus, seed)
    seconds = watched.end - start
    return Played(seconds, watched.busy / seconds, changed, watched.rows)


# ---------------------------------------------------------------- the two loops; each returns the share that changed


def _rollout(
    jobs: Sequence[EpisodeJob], policy: Watched, corpus: Corpus, seed: int, together: int, lookups: int
) -> float:
    """Ours. What a trainer reads is made of the episodes when the clock has stopped, as in the other loop."""
    from ghar.rewards.compose import EpisodeReward
    from ghar.trainers.rl.trajectory import build

    agents: dict[str, Policy] = dict.fromkeys(AGENTS, policy)
    episodes = rollout(jobs, agents, corpus, seed=seed, in_flight=together, lookups=lookups)
    policy.end = time.perf_counter()
    rewards = [EpisodeReward({}, 0.0, tuple({} for _ in episode.turns), "shared") for episode in episodes]
    traj = build(episodes, rewards, AGENTS, ROLES)
    trained: dict[int, list[tuple[int, ...]]] = {}
    for row in traj.rows():
        trained.setdefault(int(traj.segments.episode[2 * row.index]), []).append(tuple(row.tokens.tolist()))
    return changed_episodes(episodes, [trained[i] for i in range(len(trained))], policy.rows)


def changed_episodes(
    episodes: Sequence[Episode], trained: Sequence[Sequence[tuple[int, ...]]], sampled: Counter[tuple[int, ...]]
) -> float:
    """Share of the episodes with a row in training that the engine did not say so; RuntimeError when one failed."""
    failed = [episode.failure for episode in episodes if episode.failure is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} episodes failed, the first by {failed[0]}")
    left = sampled.copy()
    changed = 0
    for rows in trained:
        own = Counter(rows)
        changed += own - left != Counter()
        left -= own
    return changed / len(episodes)


@dataclass(eq=False)
class _Seat:
    """A patient of the lock-step loop."""

    job: EpisodeJob
    generator: EpisodeGenerator
    effect: Any = None
    replies: list[Completion] = field(default_factory=list)
    prediction: Prediction | None = None

    def send(self, value: Any) -> None:
        try:
            self.effect = self.generator.send(value)
        except StopIteration as stop:
            self.effect, self.prediction = None, stop.value


def _lock_step(
    jobs: Sequence[EpisodeJob], policy: Watched, corpus: Corpus, seed: int, together: int, tokenizer: Tokenizer
) -> float:
    seats = [_Seat(job, job.start()) for job in jobs]
    for start in range(0, len(seats), together):
        batch = seats[start : start + together]
        for seat in batch:
            seat.send(None)
        while any(seat.prediction is None for seat in batch):
            _all_act([seat for seat in batch if isinstance(seat.effect, Act)], policy, seed)
            _all_look_up([seat for seat in batch if isinstance(seat.effect, Retrieve)], corpus)
    policy.end = time.perf_counter()
    return sum(any(_changes(reply, tokenizer) for reply in seat.replies) for seat in seats) / len(seats)


def _changes(reply: Completion, tokenizer: Tokenizer) -> bool:
    """Whether the reply's text, encoded again, has other ids than were sampled. The end token is set aside: whether it
    belongs to a reply is a convention."""
    sampled = reply.token_ids
    if sampled and sampled[-1] == tokenizer.eos_token_id:
        sampled = sampled[:-1]
    return tuple(encode_reply(tokenizer, reply.text)[:-1]) != sampled


def _all_act(seats: Sequence[_Seat], policy: Watched, seed: int) -> None:
    if not seats:
        return
    acts = [seat.effect for seat in seats]
    own = [derive_seed(seed, seat.job.sample_id, seat.job.attempt, len(seat.replies), 0) for seat in seats]
    for seat, act, completion in zip(seats, acts, policy.answer(acts, own), strict=True):
        seat.replies.append(completion)
        parsed = act.parse(completion.text)
        seat.send(Reply(completion, parsed.value, parsed.error))


def _all_look_up(seats: Sequence[_Seat], corpus: Corpus) -> None:
    if seats:
        for seat, evidence in zip(seats, corpus.retrieve([seat.effect for seat in seats]), strict=True):
            seat.send(evidence)


# ---------------------------------------------------------------- what is watched and what is slow


@dataclass(eq=False)
class Watched:
    """A policy that notes how long it works (`busy`, seconds) and what was sampled after what (`rows`)."""

    policy: Policy
    busy: float = 0.0
    end: float = 0.0
    rows: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        replies = self._timed(lambda: self.policy.answer(acts, seeds))
        for reply in replies:
            self._note(reply)
        return replies

    def queue(self) -> RequestQueue:
        return _WatchedDesk(self, open_queue(self.policy))

    def _note(self, reply: Completion) -> None:
        self.rows[reply.prompt_ids + reply.token_ids] += 1

    def _timed(self, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.busy += time.perf_counter() - start


@dataclass(eq=False)
class _WatchedDesk:
    watched: Watched
    inner: RequestQueue

    def submit(self, act: Act, seed: int, done: Done) -> None:
        def noted(reply: Completion) -> None:  # called while the engine is timed, but no work of the engine
            start = time.perf_counter()
            self.watched._note(reply)
            done(reply)
            self.watched.busy -= time.perf_counter() - start

        self.watched._timed(lambda: self.inner.submit(act, seed, noted))

    def step(self) -> None:
        self.watched._timed(self.inner.step)

    def cancel(self) -> None:
        self.inner.cancel()


@dataclass(frozen=True)
class Slow:
    """A corpus whose calls take `delay` seconds, whatever it needs itself included."""

    inner: Corpus
    delay: float

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        end = time.monotonic() + self.delay
        evidence = self.inner.retrieve(requests)
        time.sleep(max(0.0, end - time.monotonic()))
        return evidence
