"""Order check: an order for a drug is about to be placed; does a recorded condition contraindicate it, and which?

Stays and the words of conditions are the chart's, contraindications are the graph's, so the truth is exact. Conditions
that lead to no node with a contraindication are not shown: nothing is known of them. Questions are made in squares:

            drug A   drug B      Stay 1 has a condition that contraindicates A and none that contraindicates B; stay 2
  stay 1    yes      no          the other way round. A and B have about as many contraindications.
  stay 2    no       yes

So each drug and each stay has as many yes as no, and neither the drug, its number of contraindications nor the stay
tells the answer. Patients and drugs are split: no test question has a patient or a drug of the training.

Both yes of a square belong to one group, and its no questions are counted there too:
  name     the chart's text has all words of the disease's name in the graph
  word     it has one of them
  none     it has none of them: only a cross-reference or an abbreviation leads from one to the other
  parent   no condition contraindicates the drug itself, but a parent disease of one does (two hops)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ghar.data.cohort import Cohort
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.errors import BadInput

Group = Literal["name", "word", "none", "parent"]
GROUPS: tuple[Group, ...] = ("name", "word", "none", "parent")
RAREST_FIRST: tuple[Group, ...] = ("parent", "none", "word", "name")
MAX_CONDITIONS = 6  # conditions of a question at most
SQUARE = 4  # questions of one
SQUARES = 2  # that a stay is in at most, so it has at most four questions
DRAWS = 12  # of a drug for each stay, until it finds its square
WINDOW = 60  # partners that are tried, the nearest number of contraindications first
GAP, SHARE = 3, 0.2  # contraindications by which the drugs of a square may differ, or share of the larger number
ASKED = "An order for {drug} is about to be placed for this patient. Is it contraindicated by a recorded condition?"


@dataclass(frozen=True)
class OrderQuestion:
    """One question. conditions: as the chart has them. against: positions of those that contraindicate the drug, none
    where the answer is no. degree: contraindications that the graph has of the drug. square: number of its square."""

    sample_id: str
    subject_id: int
    visit_id: int
    drug: str
    drug_node: int
    conditions: tuple[str, ...]
    nodes: tuple[tuple[int, ...], ...]
    against: tuple[int, ...]
    group: Group
    degree: int
    square: int
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)

    @property
    def label(self) -> int:
        """0: no, 1: yes."""
        return int(bool(self.against))

    @property
    def asked(self) -> str:
        """The question itself."""
        return ASKED.format(drug=self.drug)

    @property
    def menu(self) -> str:
        """The conditions, numbered from 1, one a line."""
        return "\n".join(f"{i}. {text}" for i, text in enumerate(self.conditions, 1))

    @property
    def text(self) -> str:
        """All that a reader is shown."""
        return f"{self.asked}\n{self.menu}"


@dataclass(frozen=True)
class OrderGraph:
    """What the task reads of a graph and its links.

    node_of: code -> disease node. drugs: disease node -> contraindicated drugs. relatives, parents: disease node ->
    others. degree: contraindications of each drug. name_of: of a node. shares: the group of a chart's text and a
    disease's name (`ghar.kg.names.shared_words`)."""

    node_of: Mapping[str, int]
    drugs: Mapping[int, frozenset[int]]
    relatives: Mapping[int, frozenset[int]]
    parents: Mapping[int, frozenset[int]]
    degree: Mapping[int, int]
    name_of: Callable[[int], str]
    shares: Callable[[str, str], Group]


@dataclass(eq=False)
class _Stay:
    """yes: by group, drug -> positions of conditions against it. related: drugs that any linked condition, listed or
    not, or a relative of one contraindicates."""

    subject_id: int
    visit_id: int
    conditions: tuple[str, ...]
    nodes: tuple[tuple[int, ...], ...]
    yes: Mapping[Group, Mapping[int, tuple[int, ...]]]
    related: frozenset[int]
    squares: int = 0
    asked: set[int] = field(default_factory=set)
    groups: set[Group] = field(default_factory=set)


@dataclass(frozen=True)
class _Unit:
    """A patient or a drug, to be split."""

    subject_id: int
    label: int = 0


def build_order_questions(
    cohort: Cohort, names: Mapping[str, str], graph: OrderGraph, ratios: tuple[float, float, float], seed: int
) -> tuple[Splits[OrderQuestion], dict[str, int]]:
    """Questions by split, whole squares one after the other, and counts of what they are made from.

    names: text of each code. Deterministic by `seed`. BadInput where no stay has a linked condition, or a split is
    empty.
    """
    stays = list(_stays(cohort, names, graph, np.random.default_rng([seed, 0])))
    counts = {"stays": cohort.visits.height, "stays that can be asked": len(stays)}
    if not stays:
        linked = sum(code in graph.node_of for code in cohort.codes["code"])
        raise BadInput(
            f"None of {cohort.visits.height:,} stays of the {cohort.name} has a condition with a contraindication: "
            f"{linked:,} of {cohort.codes.height:,} codes have a node, and {len(graph.drugs):,} diseases of the graph "
            "have one; set kg.references to the table of cross-references, or choose another cohort or graph."
        )
    patients = split_by_patient([_Unit(n) for n in dict.fromkeys(s.subject_id for s in stays)], ratios, seed)
    candidates = sorted({drug for stay in stays for own in stay.yes.values() for drug in own})
    drugs = split_by_patient([_Unit(drug) for drug in candidates], ratios, seed)
    counts |= {
        "patients that can be asked": len({stay.subject_id for stay in stays}),
        "conditions with a contraindication": len({n for s in stays for nodes in s.nodes for n in nodes}),
        "candidate drugs": len(candidates),
    }
    parts = []
    for number, (who, what) in enumerate(
        zip((patients.train, patients.valid, patients.test), (drugs.train, drugs.valid, drugs.test), strict=True)
    ):
        own = {unit.subject_id for unit in who}
        rng = np.random.default_rng([seed, 1 + number])
        some = [stay for stay in stays if stay.subject_id in own]
        made = _questions(some, {unit.subject_id for unit in what}, graph, rng)
        parts.append(tuple(replace(question, credentialed=cohort.credentialed) for question in made))
    splits = Splits(*parts)
    for name, part in zip(("training", "validation", "test"), parts, strict=True):
        if not part:
            raise BadInput(
                f"Order check has no {name} question: {len(stays):,} stays of {counts['patients that can be asked']:,} "
                f"patients and {len(candidates):,} drugs, cut by {ratios}, leave no square; use more patients."
            )
        groups = Counter(question.group for question in part)
        counts |= {f"{name} questions": len(part), f"{name} patients": len({q.subject_id for q in part})}
        counts |= {f"{name} drugs": len({q.drug_node for q in part})}
        counts |= {f"{name} questions, {group}": groups[group] for group in GROUPS}
    return splits, counts


def _stays(
    cohort: Cohort, names: Mapping[str, str], graph: OrderGraph, rng: np.random.Generator
) -> Iterator[_Stay]:
    """Stays with a condition that contraindicates some drug, in the cohort's order."""
    for subject, visit in cohort.visits.select("subject_id", "visit_id").iter_rows():
        conditions = _conditions(cohort.shown.visits[visit].diagnoses, names, graph)
        if not conditions:
            continue
        related = frozenset().union(*(_related(nodes, graph) for nodes in conditions.values()))
        texts = list(conditions)
        if len(texts) > MAX_CONDITIONS:
            texts = [texts[i] for i in sorted(rng.permutation(len(texts))[:MAX_CONDITIONS])]
        nodes = tuple(conditions[text] for text in texts)
        yield _Stay(subject, visit, tuple(texts), nodes, _yes(texts, nodes, graph), related)


def _conditions(
    codes: Iterable[str], names: Mapping[str, str], graph: OrderGraph
) -> dict[str, tuple[int, ...]]:
    """Chart text -> nodes, of the conditions that contraindicate a drug themselves or by a parent; texts whose nodes
    an earlier text has are left out."""
    conditions: dict[str, list[int]] = {}
    for code in codes:
        node = graph.node_of.get(code)
        if node is not None and any(n in graph.drugs for n in (node, *graph.parents.get(node, ()))):
            conditions.setdefault(names.get(code, code), []).append(node)
    taken: set[int] = set()
    kept: dict[str, tuple[int, ...]] = {}
    for text, nodes in conditions.items():
        if not set(nodes) <= taken:
            kept[text] = tuple(dict.fromkeys(nodes))
            taken |= set(nodes)
    return kept


def _related(nodes: Iterable[int], graph: OrderGraph) -> frozenset[int]:
    """Drugs that a disease or any relative of it contraindicates: none of them makes a no question."""
    near = {other for node in nodes for other in (node, *graph.relatives.get(node, ()))}
    return frozenset().union(*(graph.drugs.get(node, frozenset()) for node in near))


def _yes(
    texts: Sequence[str], nodes: Sequence[tuple[int, ...]], graph: OrderGraph
) -> dict[Group, dict[int, tuple[int, ...]]]:
    """By group, drug -> positions of the conditions against it. The easiest group of a drug counts."""
    direct: dict[int, dict[int, Group]] = {}
    behind: dict[int, set[int]] = {}
    for i, (text, own) in enumerate(zip(texts, nodes, strict=True)):
        for node in own:
            group = graph.shares(text, graph.name_of(node))
            for drug in graph.drugs.get(node, ()):
                places = direct.setdefault(drug, {})
                if i not in places or GROUPS.index(group) < GROUPS.index(places[i]):
                    places[i] = group
            for drug in frozenset().union(*(graph.drugs.get(n, frozenset()) for n in graph.parents.get(node, ()))):
                behind.setdefault(drug, set()).add(i)
    drugs_by_group: dict[Group, dict[int, tuple[int, ...]]] = {group: {} for group in GROUPS}
    for drug, places in direct.items():
        drugs_by_group[min(places.values(), key=GROUPS.index)][drug] = tuple(sorted(places))
    for drug, positions in behind.items():
        if drug not in direct:
            drugs_by_group["parent"][drug] = tuple(sorted(positions))
    return drugs_by_group


def _questions(
    stays: Sequence[_Stay], drugs: set[int], graph: OrderGraph, rng: np.random.Generator
) -> list[OrderQuestion]:
    """The questions of all squares of one split, in the order of a draw."""
    squares: list[tuple[Group, _Stay, int, _Stay, int]] = []
    for again in (False, True):  # first one square a stay and group, so that rare groups come to their share
        for group in RAREST_FIRST:
            for _ in range(DRAWS):
                squares += _pair(stays, group, drugs, graph.degree, rng, again)
    made: list[OrderQuestion] = []
    for number, place in enumerate(rng.permutation(len(squares)).tolist()):
        group, one, drug_one, two, drug_two = squares[place]
        for stay, drug in ((one, drug_one), (one, drug_two), (two, drug_two), (two, drug_one)):
            made.append(_question(stay, drug, group, number, graph))
    return made


def _question(stay: _Stay, drug: int, group: Group, square: int, graph: OrderGraph) -> OrderQuestion:
    against = stay.yes[group].get(drug, ())
    name, about = graph.name_of(drug), f"order-{stay.subject_id}-{stay.visit_id}-{drug}"
    conditions = stay.conditions, stay.nodes
    return OrderQuestion(
        about, stay.subject_id, stay.visit_id, name, drug, *conditions, against, group, graph.degree[drug], square
    )


def _pair(
    stays: Sequence[_Stay],
    group: Group,
    drugs: set[int],
    degree: Mapping[int, int],
    rng: np.random.Generator,
    again: bool,
) -> list[tuple[Group, _Stay, int, _Stay, int]]:
    """Draw a drug for each stay that may be in a further square, and pair the stays, likest degrees first."""
    drawn: list[tuple[int, float, _Stay, int]] = []
    for stay in stays:
        open_drugs = sorted(drug for drug in stay.yes[group] if drug in drugs and drug not in stay.asked)
        if open_drugs and stay.squares < SQUARES and (again or group not in stay.groups):
            drug = open_drugs[int(rng.integers(len(open_drugs)))]
            drawn.append((degree[drug], float(rng.random()), stay, drug))
    drawn.sort(key=lambda entry: entry[:2])
    pairs, used = [], set[int]()
    for i, (_, _, one, drug_one) in enumerate(drawn):
        for j in range(i + 1, min(i + 1 + WINDOW, len(drawn))) if i not in used else ():
            _, _, two, drug_two = drawn[j]
            if degree[drug_two] - degree[drug_one] > max(GAP, SHARE * degree[drug_two]):
                break
            if j not in used and _makes_square(one, drug_one, two, drug_two):
                used |= {i, j}
                pairs.append((group, one, drug_one, two, drug_two))
                for stay in (one, two):
                    stay.squares += 1
                    stay.asked |= {drug_one, drug_two}
                    stay.groups.add(group)
                break
    return pairs


def _makes_square(one: _Stay, drug_one: int, two: _Stay, drug_two: int) -> bool:
    """Whether each drug is a yes in its own stay and a no in the other, and no question is asked twice."""
    others = drug_two not in one.related | one.asked and drug_one not in two.related | two.asked
    return one.subject_id != two.subject_id and others
