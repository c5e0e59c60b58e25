"""What the golden sums are made of: rule-based play of every system on every generated world, and one report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, DemoPretraining, System, build
from ghar.envs.trivial import replies, trivial_policies
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import NoPolicy, evaluate
from tests.golden.canonical import as_text, cases_text, cohort_text, episode_text, report_text

Text = tuple[str, str]  # name of a sum, canonical text

CASES = 24
SEED = 3
EXERCISES = {"demo": 64, "demo_four": 64, "demo_cases": 64, "demo_long_small": 4}  # pretraining tasks by world
SMALL = (
    "threads=1", "data.patients=120", "model.hidden=32", "model.layers=2", "model.vocab=1600",
    "task.max_train=60", "task.max_valid=8", f"task.max_test={CASES}", "trainer.rl.episodes=8", "eval.bootstrap=20",
)  # fmt: skip
KARE = ("system.leiden_runs=2", "system.concepts=4", "system.path_count=4", "system.chains=1")
PATIENTS = {"demo_long_small": 24, "demo_long": 6}  # of 500 to 60,000 events each; too few for 24 cases
# Classifiers that scikit-learn or torch fits: the last digits of their probabilities differ by processor.
FITTED = ("counts_lr", "boosting", "gru", "counts_lr_notes", "boosting_notes", "boosting_evidence", "retain",
          "transformer", "options_only", "background_only")  # fmt: skip
AGENTS = ("comparators", "ehr_rag", "exprag", "ghar", "graphwalker", "kare")
ROOMS = ("baselines", *AGENTS)
REPORTED = {
    "ghar": ("scripted", "scripted_ni"), "exprag": ("scripted", "usual"), "ehr_rag": ("scripted", "scripted_rag"),
    "kare": ("scripted", "scripted_base"), "graphwalker": ("scripted_semantic_emb", "scripted_zero_shot"),
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """One system on one world, put to one task."""

    system: str
    world: str
    task: str

    @property
    def name(self) -> str:
        return f"{self.system}/{self.world}/{self.task}"

    def config(self, cache: Path, *more: str) -> Config:
        """The small configuration. cache: where the world is generated; no earlier one is read."""
        own = KARE if self.system.startswith("kare") else ()
        patients = (f"data.patients={PATIENTS[self.world]}",) if self.world in PATIENTS else ()
        where = (f"data.cache={cache}", f"run_dir={cache / 'runs' / self.name.replace('/', '_')}")
        what = (f"system={self.system}", f"data={self.world}", f"task={self.task}")
        return load([*what, *where, *SMALL, *own, *patients, *more])


SCENES = (
    *(Scene(room, "demo", "read") for room in ROOMS),
    Scene("ghar", "demo", "los"),
    Scene("ghar_communities", "demo", "read"),
    Scene("ehr_rag", "demo", "guo_los"),
    Scene("exprag", "demo", "dischargeqa_diagnosis"),
    Scene("exprag", "demo", "dischargeqa_instruction"),
    Scene("exprag_released", "demo", "dischargeqa_medication"),
    Scene("graphwalker", "demo", "series_mortality"),
    Scene("graphwalker_released", "demo", "series_mortality"),
    Scene("kare", "demo", "kare_readmission"),
    Scene("kare_released", "demo", "kare_readmission"),
    *(Scene("ghar_all" if room == "ghar" else room, "demo_four", "los") for room in ROOMS),
    *(Scene(room, "demo_cases", "labels") for room in ("baselines", "ehr_rag", "exprag", "graphwalker")),
    *(Scene(room, "demo_long_small", "labels") for room in ("baselines", "ehr_rag", "exprag", "graphwalker")),
    Scene("ehr_rag", "demo_long", "labels"),
)  # of the worlds without a graph (demo_cases, demo_long), ghar, kare and the comparators can read nothing


def texts_of(scene: Scene, cache: Path) -> Iterator[Text]:
    """Everything of a scene that needs no language model."""
    config = scene.config(cache)
    records = Records(config)
    system = build(records)
    if scene.system == "baselines":
        yield f"tables/{scene.world}", cohort_text(records.charted)
    yield f"cases/{scene.name}", as_text(cases_text(system))
    if isinstance(system.training.pretraining, DemoPretraining) and scene.world in EXERCISES:
        made = system.training.pretraining.exercises(EXERCISES[scene.world], SEED)
        played = [[_said(record) for record in episode.trace] for episode in made.episodes[: EXERCISES[scene.world]]]
        about = {"names": sorted(made.names), "shares": dict(made.shares), "copying": made.copying}
        yield f"pretraining/{scene.name}", as_text({**about, "exercises": played})
    if system.training.examples is not None:
        pairs = system.training.examples(WORDS)
        taught = {"train": pairs.train, "valid": pairs.valid, "about": dict(pairs.about)}
        yield f"examples/{scene.name}", as_text(taught)
    yield from played_by_rules(scene, system, config)


def _said(record: Any) -> Any:
    """An act as [role, prompt, choices, reply], a retrieval as [query, evidence]."""
    effect, result = record.effect, record.result
    if hasattr(effect, "prompt"):
        return [effect.role, effect.prompt, effect.choices, result.text]
    return [effect.query, result.text]


def played_by_rules(scene: Scene, system: System[Any], config: Config) -> Iterator[Text]:
    """The traces of every variant that a rule plays, and of the main variant under the trivial policies."""
    for variant in system.variants.values():
        asks_nobody = not variant.who and not (system.agents and variant.name not in ("usual", *FITTED))
        if variant.name in FITTED or not (variant.who in system.fixed or asks_nobody):
            continue
        policy = system.fixed[variant.who]() if variant.who else NoPolicy()
        yield f"traces/{scene.name}/{variant.name}", traces(system, variant, config, policy)
    if system.agents and scene.world == "demo":
        main = system.variants[system.main]
        if system.main == "graphwalker":  # whose selector reads log-probabilities of a language model
            main = next(v for v in system.variants.values() if v.name == "semantic_emb")
        for name, policy in trivial_policies(system, replies(system)[0]).items():
            yield f"traces/{scene.name}/{name}", traces(system, main, config, policy)


def traces(system: System[Any], variant: Any, config: Config, policy: Any) -> str:
    """The canonical text of one episode a test case."""
    cases = system.cases.test[:CASES]
    ready = system.prepare(variant, policy)
    episodes = play(stage_of(system, ready, config), cases, policy, seed=SEED, title=variant.name)
    rewards = [system.reward(episode, case) for episode, case in zip(episodes, cases, strict=True)]
    rows = zip(cases, episodes, rewards, strict=True)
    return "".join(episode_text(system, ready, case, episode, reward) for case, episode, reward in rows)


def report_of(system: str, cache: Path) -> Text:
    """The report of an evaluation by rules."""
    task = "dischargeqa_diagnosis" if system == "exprag" else "read"
    scene = Scene(system, "demo", task)
    config = scene.config(cache, f"eval.variants=[{','.join(REPORTED[system])}]")
    evaluate(config)
    return f"report/{system}", report_text((Path(config.run_dir) / "report.html").read_text())
