"""KARE and its language-model baselines (Table 2), evaluated on one task.

method             looks up      similar patients  reasoning         who answers
kare               communities   1 of each label   as kare.tasks     the distilled model, else the backbone
no_reasoning       communities   1 of each label   none              the same
kare_zero_shot     communities   no                in one reply      the backbone, told what to weigh
zero_shot          nothing       no                in one reply      ... base context only
few_shot           nothing       1 of each label   in one reply      ... N = 2; few_shot_4: N = 4
rag                abstracts     no                in one reply      ... classic RAG
coagent            nothing       1 of each label   in one reply      ... told what EHR-CoAgent's critic learned, and how
                                                                     rare each outcome is; coagent_unregulated: not so
scripted           communities   1 of each label   beside            a fixed rule that knows common grades
scripted_base      nothing       1 of each label   beside            the same

python launch/evaluate.py policy=kare 'kare.methods=[scripted,scripted_base]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from envs.case import topics_of
from envs.kare.episode import KareCase, KareEpisodes, KareSpec, Reasoning
from envs.rollout import Corpus, Job, rollout
from ghar.config import Config, Kare
from ghar.data.tasks.considerations import considerations_of
from ghar.episode import Episode, Retrieve
from ghar.llm.engines import engine_key, named_engine
from ghar.llm.policy import EnginePolicy, Policy
from ghar.metrics.policy import compare
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from trainers.coagent import CoagentSpec, Guidelines, advise, learn_guidelines
from trainers.kare_rows import kare_row, method_summary
from trainers.kare_rules import GradeRule
from trainers.kare_study import KareStudy, prepare
from trainers.records import counter
from trainers.runs.resume import as_yaml
from trainers.scripted_critic import reply as scripted_critic
from trainers.scripted_expert import expert_knowledge

Rows = list[dict[str, Any]]
Count = Callable[[str], int]
ROUNDS = CoagentSpec()  # of EHR-CoAgent
REASONING: dict[str, Reasoning] = {
    "multitask": "beside", "multitask_weighted": "beside", "two_in_one": "within", "label_only": "none"
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One line of the table above. similar: patients shown of each label. learns: from EHR-CoAgent's critic."""

    looks_up: Literal["communities", "abstracts", "nothing"]
    similar: int
    reasoning: Reasoning
    who: Literal["distilled", "backbone", "rule"]
    learns: Literal["no", "regulated", "unregulated"] = "no"


def methods_of(kare: Kare) -> dict[str, Method]:
    """The methods of a configuration, in its order."""
    known = {
        "kare": Method("communities", 1, REASONING[kare.tasks], "distilled"),
        "no_reasoning": Method("communities", 1, "none", "distilled"),
        "kare_zero_shot": Method("communities", 0, "within", "backbone"),
        "zero_shot": Method("nothing", 0, "within", "backbone"),
        "few_shot": Method("nothing", 1, "within", "backbone"),
        "few_shot_4": Method("nothing", 2, "within", "backbone"),
        "rag": Method("abstracts", 0, "within", "backbone"),
        "coagent": Method("nothing", 1, "within", "backbone", "regulated"),
        "coagent_unregulated": Method("nothing", 1, "within", "backbone", "unregulated"),
        "scripted": Method("communities", 1, "beside", "rule"),
        "scripted_base": Method("nothing", 1, "beside", "rule"),
    }
    return {name: known[name] for name in kare.methods}


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `kare.methods` on the test patients; writes summary.json, episodes/ and report.html to run_dir."""
    study = prepare(config)
    folder = RunFolder.open(Path(config.run_dir))
    folder.write_config(as_yaml(config))
    if study.records.cohort.generated:
        print("These patients are GENERATED; nothing below says anything about real ones.")
    methods, test = methods_of(study.kare), study.records.splits.test
    rows: dict[str, Rows] = {}
    learned: dict[str, Guidelines] = {}
    for who in dict.fromkeys(method.who for method in methods.values()):  # a model is in memory while it is needed
        with _answers(study, who) as (policy, count):
            for name in (name for name, method in methods.items() if method.who == who):
                method, advice = methods[name], advise(considerations_of(study.records.task.name), "")
                if method.learns != "no":
                    learned[name] = _learn(study, method, policy, count)
                    advice = learned[name].advice
                cases = study.cases(test, count, method.similar)
                played = play_cases(study, cases, method, policy, count, advice, title=f"Evaluating {name}")
                pairs = zip(cases, played, strict=True)
                eta, index = config.reward.eta, study.graph.index
                rows[name] = [kare_row(case, episode, name, eta, index) for case, episode in pairs]
                folder.write_episodes(name, rows[name])
    rows = {name: rows[name] for name in methods}
    return conclude(folder, {**_summary(study, rows), "guidelines": _told(learned)}, table)


def play_cases(
    study: KareStudy,
    cases: Sequence[KareCase],
    method: Method,
    policy: Policy,
    count: Count,
    advice: str = "",
    *,
    title: str,
    attempt: int = 0,
) -> list[Episode]:
    """One episode a case, in their order. advice: told to a backbone only."""
    config, kare = study.config, study.kare
    corpus: Corpus = study.abstracts if method.looks_up == "abstracts" else study.corpus
    asks = {
        "communities": study.look_up,
        "abstracts": lambda case: Retrieve(case.base, None, config.retriever.top_n),
        "nothing": lambda case: None,
    }
    told = advice if method.who == "backbone" else ""
    spec = KareSpec(config.env.prompts, method.reasoning, kare.tokens, told)
    episodes = KareEpisodes(spec, asks[method.looks_up], count)
    jobs = [Job(case.sample_id, attempt, partial(episodes.episode, case)) for case in cases]
    with progress(len(jobs), title) as advance:
        return rollout(
            jobs,
            {"top": policy},
            corpus,
            seed=config.seed,
            in_flight=config.env.in_flight,
            on_done=advance,
            steady=config.engine.kind == "hf",  # look-ups are short here
        )


@contextmanager
def _answers(study: KareStudy, who: str) -> Iterator[tuple[Policy, Count]]:
    """Who answers, and how tokens are counted."""
    if who == "rule":
        records = study.records
        seen = [(topics_of(sample, records.name_of), sample.label) for sample in records.splits.train]
        labels, task = len(records.task.labels), study.config.task.name
        knowledge, _ = expert_knowledge(records.world, records.names, task, labels, seen)
        yield GradeRule(knowledge), counter(None)
        return
    from trainers.kare_model import language_model  # imports torch

    with language_model(study, distilled=who == "distilled") as (engine, count):
        yield EnginePolicy(engine, temperature=0), count


def _learn(study: KareStudy, method: Method, policy: Policy, count: Count) -> Guidelines:
    """EHR-CoAgent's rounds on the training patients."""
    config, records = study.config, study.records
    cases = study.cases(records.splits.train, count, method.similar)

    def play(some: Sequence[KareCase], advice: str, number: int) -> list[Episode]:
        title = f"EHR-CoAgent, round {number + 1}"
        return play_cases(study, some, method, policy, count, advice, title=title, attempt=number)

    expert = study.kare.expert
    store = Path(config.run_dir) / "coagent" / f"{engine_key(config, expert)}-{method.learns}.jsonl"
    first, regulated = considerations_of(records.task.name), method.learns == "regulated"
    texts = [case.text for case in cases]
    with named_engine(config, expert, scripted_critic, records.cohort.credentialed, lambda: texts) as critic:
        return learn_guidelines(play, critic, cases, first, store, ROUNDS, regulated=regulated, seed=config.seed)


def _told(learned: dict[str, Guidelines]) -> dict[str, Any]:
    """EHR-CoAgent's guidelines and their price, by method."""
    return {
        name: {"advice": found.advice, "rounds": [asdict(r) for r in found.rounds], "cost": asdict(found.cost)}
        for name, found in learned.items()
    }


def _summary(study: KareStudy, rows: dict[str, Rows]) -> dict[str, Any]:
    config, records = study.config, study.records
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    first, *others = rows
    base = [(a, b) for a, b in (("scripted", "scripted_base"), ("kare", "no_reasoning")) if {a, b} <= rows.keys()]
    pairs = dict.fromkeys([*((first, other) for other in others), *base])
    unknown = sum(bool(study.corpus.graphs[case.sample_id].unknown) for case in records.splits.test)
    return {
        "system": "kare",
        "generated": records.cohort.generated,
        "credentialed": records.cohort.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}, {study.kare.variant}, expert {study.kare.expert}",
        "seed": config.seed,
        "task": {"name": records.task.name, "question": records.task.question, "labels": list(records.task.labels)},
        "data": {**records.counts, "test samples with a concept that has no node": unknown},
        "build": study.graph.report,
        "policies": {name: method_summary(found, records.task.labels, config) for name, found in rows.items()},
        "differences": {f"{a} - {b}": compare(rows[a], rows[b], **draw) for a, b in pairs},
    }


def table(summary: dict[str, Any]) -> str:
    """The methods' main numbers as text, after what was built."""
    lines = [f"{step:12}{_listed(report)}" for step, report in summary["build"].items()]
    columns = ("accuracy", "macro_f1", "sensitivity", "specificity", "retrieval_rate")
    lines.append(f"{'method':20}" + "".join(f"{name:>24}" for name in columns))
    for name, numbers in summary["policies"].items():
        lines.append(f"{name:20}" + "".join(f"{_cell(numbers.get(column)):>24}" for column in columns))
        if numbers["errors"]:
            lines.append(f"{'':20}unreadable replies of {numbers['n']} patients: {_listed(numbers['errors'])}")
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)


def _listed(numbers: dict[str, Any]) -> str:
    """Numbers as they stand, of lists how long they are."""
    told = {name: len(value) if isinstance(value, list) else value for name, value in numbers.items()}
    return ", ".join(f"{name} {value}" for name, value in told.items() if not isinstance(value, dict))


def _cell(interval: list[float] | None) -> str:
    return "-" if interval is None else "{:.3f} [{:.3f}, {:.3f}]".format(*interval)
