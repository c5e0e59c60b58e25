"""Write a system: one agent retrieves once from a knowledge graph and answers. A rule plays it; a model could learn it.

python docs/tutorials/2_system.py

In a project of your own `Settings`, `episode` and `build` stand in a module, `mine/once.py`, and every command takes
`system=mine.once`. docs/your-system.md explains each part.
"""

from dataclasses import dataclass

from ghar.envs.case import Case
from ghar.envs.graph_system import graph_system
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Act, EpisodeGenerator, Prediction, Retrieve
from ghar.launch.entry import load


@dataclass(frozen=True)
class Settings:  # the system's keys: system.passages=4
    name: str = "mine.once"
    passages: int = 2


def episode(case: Case, settings: Settings) -> EpisodeGenerator:
    """Write a query, read what it retrieves, answer with one of the labels."""
    query = yield Act("reader", "query", f"{case.text}\nquery:", max_tokens=12)
    evidence = yield Retrieve(query.value or case.text, top_n=settings.passages)
    prompt = f"{case.task.question}\n{case.text}\n{evidence.text}\nanswer:"
    reply = yield Act("reader", "answer", prompt, case.task.labels)
    return Prediction(case.task.labels.index(reply.value))


def rule(act: Act) -> str:
    """Ask with the whole record and answer with the first label: the simplest policy that plays this system."""
    return act.choices[0] if act.choices else act.prompt.splitlines()[0]


def build(records: Records, settings: Settings) -> System:
    return graph_system(records, settings, episode, rule, agents=("reader",), roles=("query", "answer"))


if __name__ == "__main__":
    config = load(["task=read", "data.patients=120"])
    system = build(Records(config), Settings())
    scripted = system.variants["scripted"]
    played = play(stage_of(system, scripted, config), system.cases.test, system.fixed["rule"](), seed=0, title="Rule")
    right = sum(done.prediction.label == case.label for done, case in zip(played, system.cases.test, strict=True))
    print(f"{right} of {len(played)} right; {len(played[0].trace)} effects in the first episode:")
    for record in played[0].trace:
        print(" ", type(record.effect).__name__, getattr(record.effect, "role", ""), record.result.text[:70])
