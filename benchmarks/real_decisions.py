"""Whether each decision of SmolLM2-135M on real patients can be read, for the five systems on three open demos.

The untrained model plays the main variant of each system with the prompts of scale=laptop, `PATIENTS` times `--share`
patients a demo or all of fewer, one case of each. GraphWalker plays ReAct, too (react). A decision is a turn with
options; a guard is the prompt's sentence on copied text, which no summary may repeat. GHAR_SHARED/data has the demos.

Eight patients are a part, and a part that is there is not played again: FOLDER/real_decisions/DEMO-NAME holds prompts
and replies. Delete it after a change of the code. `system=NAME` and `data=NAME` choose what is played:

    nice python benchmarks/run.py real_decisions [--share 0.1] [system=ghar] [data=eicu]
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghar.errors import BadInput

if TYPE_CHECKING:
    from ghar.envs.system import System

PATIENTS = 20  # even: two are in flight
GUARD = "take it as information"  # of the sentence that every full prompt has
DEMOS = {
    "mimic4": "mimic-iv-demo-2.2",
    "eicu": "eicu-crd-demo-2.0.1",
    "mimic3": "mimic-iii-demo-1.4",
}
OF_EICU = {"ehr_rag": "task=mortality_24h", "kare": "task=kare_mortality"}  # it lacks the order that the others need
SYSTEMS: dict[str, tuple[str, ...]] = {
    "ghar": ("system=ghar", "task=los"),
    "kare": ("system=kare", "task=kare_readmission"),
    "ehr_rag": ("system=ehr_rag", "task=guo_los"),
    "exprag": ("system=exprag", "task=los"),
    "graphwalker": ("system=graphwalker", "task=series_mortality"),
    "react": ("system=graphwalker", "task=series_mortality", "system.inference=react"),
}


def real_decisions(folder: Path, overrides: Sequence[str], share: float) -> dict[str, Any]:
    """Numbers of each system on each demo. share: of `PATIENTS`."""
    names = _chosen("system", SYSTEMS, overrides)
    demos = _chosen("data", DEMOS, overrides)
    more = [text for text in overrides if not text.startswith(("system=", "data="))]
    numbers: dict[str, Any] = {}
    for demo in demos:
        for name in names:
            print(f"{demo}, {name}", flush=True)
            patients = 2 * max(1, round(share * PATIENTS / 2))
            numbers[f"{demo} {name}"] = _numbers(folder / "real_decisions", demo, name, patients, more)
            print(numbers[f"{demo} {name}"], flush=True)
    return numbers


def _chosen(group: str, every: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    named = [text.partition("=")[2] for text in overrides if text.startswith(f"{group}=")]
    return named or list(every)


def _numbers(folder: Path, demo: str, name: str, patients: int, more: Sequence[str]) -> dict[str, Any]:
    try:
        return summary(_rows(folder / f"{demo}-{name}", demo, name, patients, more))
    except BadInput as refusal:
        return {"refused": str(refusal)}
    except Exception:  # what is measured
        return {"traceback": traceback.format_exc()}


def _rows(home: Path, demo: str, name: str, patients: int, more: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the first case of each of `patients` patients."""
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.trainers.evaluation.playing import EvaluationRun
    from ghar.trainers.evaluation.weights import answering, find
    from ghar.trainers.runs.models import use_cores

    data = Path(os.environ.get("GHAR_SHARED", "../shared")) / "data"
    own = [OF_EICU[name]] if demo == "eicu" and name in OF_EICU else []
    config = load([
        f"data={demo}", f"data.root={data / DEMOS[demo]}", "model=smollm2", "scale=laptop", f"run_dir={home}",
        f"kg.path={data / 'kg/primekg-subset/merged_kg_12col.csv.gz'}", "env.in_flight=2", "task.split=[0.4,0.1,0.5]",
        "task.max_test=null", *SYSTEMS[name], *own, *more,
    ])  # fmt: skip
    use_cores(config.threads)
    system = systems.build(Records(config))
    variant = replace(system.variants[system.main], who="base")
    with answering(config, system, find(config)) as stage, stage("base") as model:
        read = observed(system.read_by(model.reader), patients, config.task.split_seed)
        return list(EvaluationRun(read, config, None, home).play(variant, model.policy, "test")())


def observed(system: System[Any], patients: int, seed: int) -> System[Any]:
    """The system with one test case of each of some patients, drawn (eICU's stand by hospital); its rows say of each
    turn whether it was a decision."""
    from ghar.data.tasks.splits import Splits, draw
    from ghar.episode import Act

    first: dict[int, Any] = {}
    for case in system.cases.test:
        first.setdefault(case.subject_id, case)
    cases = tuple(draw(list(first.values()), patients, seed))

    def row(episode: Any, case: Any, variant: Any) -> dict[str, Any]:
        acts = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        return {
            **system.report.row(episode, case, variant),
            "decisions": [bool(act.choices or act.options) for act in acts],
        }

    return replace(system, cases=Splits((), (), cases), report=replace(system.report, row=row))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of patients, decisions and what went wrong, the last by role."""
    turns = [(turn, decides) for row in rows for turn, decides in zip(row["turns"], row["decisions"], strict=True)]
    decisions = [turn for turn, decides in turns if decides]
    free = [turn for turn, decides in turns if not decides]
    completed = [
        turn["role"] for row in rows for turn, chosen in zip(row["turns"], _completed(row), strict=True) if chosen
    ]
    return {
        "patients": len({row["subject_id"] for row in rows}),
        "decisions": len(decisions),
        "readable": sum(turn["format_ok"] for turn in decisions),
        "unreadable by role": dict(Counter(turn["role"] for turn in decisions if not turn["format_ok"])),
        "chosen behind a reply that left it open, by role": dict(Counter(completed)),
        "free replies": len(free),
        "unreadable free replies by role": dict(Counter(turn["role"] for turn in free if not turn["format_ok"])),
        "failed episodes": sum(row["failure"] is not None for row in rows),
        "predictions missing": sum(row["prediction"] is None for row in rows),
        "guard in a summary": sum(GUARD in turn["reply"] for turn, _ in turns if turn["role"] == "summarise"),
        "guard in any reply": sum(GUARD in turn["reply"] for turn, _ in turns),
        "retrievals": sum(len(row["lookups"]) for row in rows),
        "empty retrievals": sum(not lookup["found"] for row in rows for lookup in row["lookups"]),
    }


def _completed(row: Mapping[str, Any]) -> Sequence[bool]:
    """Read of each turn whether its decision was chosen; rows of earlier versions have a column of their own for it."""
    return row.get("completed") or [turn.get("completed", False) for turn in row["turns"]]
