"""A trained run as an object: `ghar.load("runs/mine").predict(patient)`.

A patient is one of the run's own cohort, by number, or a `Sample` that you made or read elsewhere (launch/sources.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghar.config import Config
from ghar.configure import build
from ghar.data.cohort import Cohort, Sample
from ghar.data.readers.notes import Notes
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs import system as systems
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.episode import Act, Episode, Evidence, Reply
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.metrics.calibration import calibrated
from ghar.metrics.runfolder import RunFolder
from ghar.privacy import ask_gate
from ghar.provenance import Provenance
from ghar.trainers.runs.kept_config import kept_config

if TYPE_CHECKING:
    from ghar.trainers.evaluation.weights import AnsweringModel

Patient = int | str | Sample


@dataclass(frozen=True)
class AgentPrediction:
    """What was predicted for a sample, and why.

    label: None where no answer could be read. probabilities: label -> probability as the run calibrated it, None where
    the answer came from a rule or a server. evidence: what was found, in the order it was found. trail: who was asked
    what, and the replies. failure: None, or what cut the episode short.
    """

    sample_id: str
    label: str | None
    probabilities: Mapping[str, float] | None
    evidence: tuple[str, ...]
    trail: tuple[tuple[str, str, str], ...]
    failure: str | None = None


@dataclass(eq=False)
class Agent:
    """One variant of a run, ready to be asked; `close` gives its memory back (or use it in a `with`)."""

    records: Records
    system: System[Any]
    variant: Variant
    policy: Policy
    answers: AnsweringModel | None
    temperature: float
    held: ExitStack

    def __post_init__(self) -> None:
        weakref.finalize(self, self.held.close)  # when Python ends too, before its modules do

    def predict(self, patient: Patient | Sequence[Patient]) -> Any:
        """`AgentPrediction` for one patient, or a list of them for a list.

        patient: subject_id (int: the newest sample of that patient) or sample_id (str) of the run's own cohort, those
        that task.max_test and the like left out too, or a `Sample`, whose codes the run's cohort should know by name.
        BadInput for a patient that is not there, and for a sample that is not marked as open (`Sample.credentialed`)
        where the run's model is elsewhere and privacy.allow does not name that place.
        """
        several = isinstance(patient, Sequence) and not isinstance(patient, str)
        named: list[Patient] = list(patient) if several else [patient]  # type: ignore[arg-type, list-item]
        asked = [self._sought(one) for one in named]
        given = [one for one in asked if isinstance(one, Sample)]
        closed = self.system.origin.credentialed or any(sample.credentialed for sample in given)
        ask_gate(self.records.config, lambda: closed)  # of what is asked now: a sample of yours has its own mark
        system = self._with(given)
        cases = [_case_of(system, one) for one in asked]
        stage = stage_of(system, self.variant, self.records.config)
        episodes = play(stage, cases, self.policy, seed=self.records.config.seed, title="Predicting")
        predictions = [self._predicted(system, case, one) for case, one in zip(cases, episodes, strict=True)]
        return predictions if several else predictions[0]

    @property
    def patients(self) -> list[int]:
        """The numbers of the run's test patients."""
        return list(dict.fromkeys(case.subject_id for case in self.system.cases.test))

    def close(self) -> None:
        """Let go of the model."""
        self.held.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _sought(self, patient: Patient) -> Patient:
        """The sample that is meant, by its id where it is one of the run's cases; who is not known, unchanged."""
        if isinstance(patient, Sample) or self.records.config.task.name not in (*VISIT_TASKS, "labels"):
            return patient
        key = "sample_id" if isinstance(patient, str) else "subject_id"
        matches = [sample for sample in self.records.samples.samples if getattr(sample, key) == patient]
        if not matches:
            return patient
        cases = self.system.cases
        own = {case.sample_id for case in (*cases.train, *cases.valid, *cases.test)}
        return matches[-1].sample_id if matches[-1].sample_id in own else matches[-1]

    def _with(self, samples: Sequence[Sample]) -> System[Any]:
        """The system with these samples beside the test's; itself where there are none."""
        if not samples:
            return self.system
        made = systems.build(_Others(self.records.config, given=tuple(samples), own=self.records.splits))
        return made if self.answers is None else made.read_by(self.answers.reader)

    def _predicted(self, system: System[Any], case: Any, episode: Episode) -> AgentPrediction:
        probabilities = self._probabilities(system, episode)
        results = [(record.effect, record.result) for record in episode.trace]
        passages = [p.text for _, result in results if isinstance(result, Evidence) for p in result.passages]
        asked = [(act, reply) for act, reply in results if isinstance(act, Act) and isinstance(reply, Reply)]
        trail = tuple((act.role, act.prompt, reply.text) for act, reply in asked)
        label = system.in_words(case, episode.prediction.label)
        return AgentPrediction(
            case.sample_id, label, probabilities, tuple(dict.fromkeys(passages)), trail, episode.failure
        )

    def _probabilities(self, system: System[Any], episode: Episode) -> dict[str, float] | None:
        shares = episode.prediction.probabilities
        ranker = None if self.answers is None else self.answers.ranker
        if shares is None and ranker is not None and system.report.answer is None:
            shares = ranker([episode], labels=system.task.labels)[0]
        if shares is None:
            return None
        (row,) = calibrated([{"label_probabilities": list(shares)}], self.temperature)
        return dict(zip(system.task.labels, row["label_probabilities"], strict=True))


@dataclass(frozen=True, eq=False)
class _Others(Records):
    """The records of a run, with further samples to test on."""

    given: tuple[Sample, ...] = ()
    own: Splits[Sample] | None = None

    @property
    def splits(self) -> Splits[Sample]:
        assert self.own is not None  # who makes one gives it
        return replace(self.own, test=(*self.own.test, *self.given))

    def credentialed(self, *parts: Cohort | Notes | Provenance) -> bool:
        return any(sample.credentialed for sample in self.given) or super().credentialed(*parts)


def load(run: str | Path, variant: str | None = None, base: str | Path | None = None) -> Agent:
    """The agent of a run folder, with its best weights. variant: another one of the run's system than its main one;
    base: where the model that the run's adapters belong on has been moved to.

    BadInput for a folder without a run, or without the weights that the variant needs, and for a variant that the
    system has not, or whose rule knows generated patients alone.
    """
    config = config_of(Path(run))
    if base is not None:
        config = replace(config, model=replace(config.model, path=str(base)))
    config = replace(config, logger=replace(config.logger, wandb="disabled"))  # an agent sends nothing there
    if variant is not None:  # before tables are read and an index is built
        systems.check_variants(replace(config, eval=replace(config.eval, variants=(variant,))))
    from ghar.trainers.evaluation.weights import answering, find
    from ghar.trainers.runs.models import use_cores  # heavy, so only once the folder is known to hold a run

    use_cores(config.threads)
    records = Records(config)
    system = systems.build(records)
    ask_gate(config, lambda: system.origin.credentialed)
    chosen, held = system.variant(variant or system.main), ExitStack()
    heat = _temperature(Path(run), chosen.name)
    if not system.asks_model(chosen):
        policy = system.fixed[chosen.who]() if chosen.who else None
        if policy is None:
            raise BadInput(f"variant {chosen.name} of system {system.name} asks no one: choose one that predicts.")
        return Agent(records, system, chosen, policy, None, heat, held)
    run_stages = find(config)
    stage = run_stages.names(chosen.who)
    if stage == "base" and chosen.who != "base":
        raise BadInput(
            f"{run} holds no trained weights for {chosen.name}: train it, or name a variant that has some."
        )
    opened = held.enter_context(answering(config, system, run_stages))
    answers = held.enter_context(opened(stage))
    own = system.read_by(answers.reader)
    chosen = own.prepare(chosen, answers.policy)
    return Agent(records, own, chosen, answers.policy, answers, heat, held)


def config_of(run: Path) -> Config:
    """The configuration that a run folder keeps, checked; its paths lead where the folder is now. BadInput without."""
    kept = kept_config(run)
    if kept is None:
        raise BadInput(f"{run / 'config.yaml'} does not exist: name the folder of a run, which ghar train made.")
    values = {**kept, "run_dir": str(run)}
    settings = systems.settings_of(str(values["system"]["name"]))
    return build(values, settings)


def _temperature(run: Path, variant: str) -> float:
    """What the run's evaluation fitted on validation cases; 1 where it fitted none."""
    folder = RunFolder(run)
    row = next(folder.episodes(variant), {}) if variant in folder.episode_names() else {}
    return float(row.get("temperature") or 1.0)


def _case_of(system: System[Any], patient: Patient) -> Any:
    """The newest case of a subject, the case of a sample id, or of a given sample. BadInput where there is none."""
    if isinstance(patient, Sample):
        patient = patient.sample_id
    cases = [*system.cases.train, *system.cases.valid, *system.cases.test]
    key = "sample_id" if isinstance(patient, str) else "subject_id"
    matches = [case for case in cases if getattr(case, key) == patient]
    if not matches:
        examples = ", ".join(str(getattr(case, key)) for case in system.cases.test[:3])
        raise BadInput(f"There is no {key} {patient} among this run's samples (there are {examples}, ...).")
    return matches[-1]
