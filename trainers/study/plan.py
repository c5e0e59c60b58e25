"""What a study would take, before it starts: cells that are done; calls, tokens, hours, memory and disk of the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ghar.device import GIB
from ghar.errors import BadInput
from ghar.trainers.plan import make_plan
from ghar.trainers.study.jobs import StudyJobs
from ghar.trainers.study.schema import Cell, cells_of, source_of

PLANNED = ("done", "measured", "probed")


@dataclass(frozen=True)
class CellCost:
    """Of one cell. how: "done", "measured" (as cells of the same run took), "probed" on this machine, or why not."""

    cell: Cell
    how: str
    calls: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    disk: float = 0.0


def plan_study(shop: StudyJobs, tell: Callable[[str], None] = print) -> list[CellCost]:
    """Print and return the cost of every cell. Cells alike but for their seed cost alike, so each kind is probed once;
    a kind of which one cell is done takes the seconds that it took. A line is there as soon as it is known: a probe may
    build what the cell retrieves from. BadInput where no cell can be planned."""
    probed: dict[tuple[str, str, str], CellCost] = {}
    costs: list[CellCost] = []
    tell(f"{'cell':44}{'state':>10}{'calls':>12}{'tokens':>14}{'hours':>9}{'GiB':>7}{'disk GiB':>10}")
    for cell in cells_of(shop.study):
        kind = cell.run.name, cell.cohort, cell.task
        if shop.folder.done(cell) is not None:
            costs.append(CellCost(cell, "done"))
        else:
            if kind not in probed:
                probed[kind] = _probe(shop, cell)
            costs.append(replace(probed[kind], cell=cell))
        tell(_line(costs[-1]))
    if all(cost.how not in PLANNED for cost in costs):
        first = f" {costs[0].cell.id}: {costs[0].how}" if costs else ""
        raise BadInput(f"No cell of study={shop.study.name} can be planned.{first}")
    left = [cost for cost in costs if cost.how != "done"]
    tell(
        f"{len(costs) - len(left)} of {len(costs)} cells are done; the rest: {sum(c.calls for c in left):,.0f} calls, "
        f"{sum(c.tokens for c in left):,.0f} tokens, {sum(c.seconds for c in left) / 3600:.2f} hours one after the "
        f"other, {max((c.memory for c in left), default=0) / GIB:.1f} GiB at most, disk "
        f"{sum(c.disk for c in left) / GIB:.1f} GiB."
    )
    return costs


def _line(cost: CellCost) -> str:
    if cost.how not in PLANNED:
        return f"{cost.cell.id:44}  left out: {cost.how}"
    numbers = f"{cost.calls:>12,.0f}{cost.tokens:>14,.0f}{cost.seconds / 3600:>9.2f}{cost.memory / GIB:>7.1f}"
    return f"{cost.cell.id:44}{cost.how:>10}{numbers}{cost.disk / GIB:>10.2f}"


def _probe(shop: StudyJobs, cell: Cell) -> CellCost:
    """The plan of one run (trainers/plan.py), of which a cell that trains nothing has the evaluation alone, and one
    that starts from another what comes after SFT."""
    if not shop.rows(cell):
        return CellCost(cell, next(iter(shop.holes(cell).values()), "it has no rows"))
    seconds = _measured(shop, cell)
    asked = shop.scale.train or any(variant == "base" for variant in shop.rows(cell).values())
    if not asked or (not cell.run.train and cell.run.weights is None):
        return CellCost(cell, "probed" if seconds is None else "measured", seconds=seconds or 0.0)
    try:
        plan = make_plan(shop.load([*shop.overrides(cell), *_without_weights(shop, cell)]))
    except BadInput as error:
        return CellCost(cell, " ".join(str(error).split()))
    phases = [p for p in plan.phases if shop.trains(cell) or p.name == "evaluation"]
    if shop.trains(cell) and source_of(cell, shop.study) is not None:
        phases = [p for p in phases if p.name in ("rl", "evaluation")]
    return CellCost(
        cell, "probed" if seconds is None else "measured", sum(p.calls for p in phases),
        sum(p.read + p.sampled + p.trained for p in phases),
        sum(p.seconds or 0.0 for p in phases) if seconds is None else seconds, max(p.memory for p in phases), plan.disk,
    )  # fmt: skip


def _without_weights(shop: StudyJobs, cell: Cell) -> list[str]:
    """Without weights and retrievals that are not there yet: a plan is made before they are."""
    if not shop.scale.train:
        return []
    weights = ["eval.checkpoint=null"] if cell.run.weights is not None else []
    return [*weights, *(["system.pruned_by=null"] if cell.run.pruned_by is not None else [])]


def _measured(shop: StudyJobs, cell: Cell) -> float | None:
    """Seconds of a finished cell of the same run and task, under another seed or on another cohort."""
    taken = [
        about["seconds"]
        for other in cells_of(shop.study)
        if (other.run.name, other.task) == (cell.run.name, cell.task) and (about := shop.folder.done(other)) is not None
    ]
    return sum(taken) / len(taken) if taken else None
