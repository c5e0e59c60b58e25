"""Write a system: one agent retrieves once from a knowledge graph and answers. A rule plays it; a model could learn it.

python docs/tutorials/2_system.py

In a project of your own `Settings` and `build` stand in a module, `mine/once.py`, and every command takes
`system=mine.once`. docs/your-system.md explains each part.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from ghar.data.cohort import Sample, Task
from ghar.data.tasks.splits import Splits
from ghar.data.views.visits import visit_list
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, Reader, System, Variant
from ghar.episode import Act, Completion, EpisodeGenerator, Prediction, Retrieve
from ghar.launch.entry import load
from ghar.retrieval.build import build_retriever
from ghar.rewards.outcome import score_outcome


@dataclass(frozen=True)
class Patient:  # what an episode reads of a sample; no agent sees the label
    sample_id: str
    subject_id: int
    text: str
    task: Task
    label: int


def episode(patient: Patient, variant: Variant) -> EpisodeGenerator:
    """Write a query, read what it retrieves, answer with one of the labels."""
    query = yield Act("reader", "query", f"{patient.text}\nquery:", max_tokens=12)
    evidence = yield Retrieve(query.value or patient.text, top_n=2)
    prompt = f"{patient.task.question}\n{patient.text}\n{evidence.text}\nanswer:"
    reply = yield Act("reader", "answer", prompt, patient.task.labels)
    return Prediction(patient.task.labels.index(reply.value))


class Rule:
    """Asks for the last diagnosis and answers with the first label: the simplest policy that plays this system."""

    def answer(self, acts, seeds):
        return [Completion(act.choices[0] if act.choices else act.prompt.splitlines()[-2]) for act in acts]


def build(records: Records) -> System[Patient]:
    def cut(reader: Reader) -> Splits[Patient]:
        def case(s: Sample) -> Patient:
            view = visit_list(s, records.name_of, style="compact", budget=48, count=reader.count)
            return Patient(s.sample_id, s.subject_id, view.text, records.task, s.label)

        own = records.splits
        return Splits(*(tuple(map(case, part)) for part in (own.train, own.valid, own.test)))

    cache = Path(records.config.data.cache) / "indexes"
    made = System(
        name="once", task=records.task, agents=("reader",), roles=("query", "answer"), cases=cut(WORDS),
        episode=episode, corpus=build_retriever(records.primekg, "tfidf", cache=cache),
        reward=lambda done, patient: score_outcome(done, patient.label, records.config.reward.eta),
        variants={"rule": Variant("rule", who="rule")}, main="rule", listed=("rule",),
        read_by=lambda reader: replace(made, cases=cut(reader)), fixed={"rule": Rule}, decides=("answer",),
        generated=records.cohort.generated, credentialed=records.credentialed(records.cohort),
    )  # fmt: skip
    return made


if __name__ == "__main__":
    config = load(["task=read", "data.patients=120"])
    system = build(Records(config))
    played = play(stage_of(system, system.variants["rule"], config), system.cases.test, Rule(), seed=0, title="Rule")
    right = sum(done.prediction.label == case.label for done, case in zip(played, system.cases.test, strict=True))
    print(f"{right} of {len(played)} right; {len(played[0].trace)} effects in the first episode:")
    for record in played[0].trace:
        print(" ", type(record.effect).__name__, getattr(record.effect, "role", ""), record.result.text[:70])
