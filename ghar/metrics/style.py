"""How the report shows a system it knows nothing about: what its variants are called, and parts of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

STAYS, TEXTS, QUESTIONS = "stays", "texts", "questions"  # samples of a task, in the plural
KINDS = {TEXTS: "clinical texts", QUESTIONS: "examination questions"}  # what samples of files are called
ACCURACY = "accuracy"
METRICS = {  # titles of metrics; others have their names
    "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L", "sari": "SARI", "bleu_1": "BLEU-1",
    "bleu_4": "BLEU-4",
}  # fmt: skip


@dataclass(frozen=True)
class ReportSection:
    """A part of the page under a heading of its own. html is put into the page as it stands: make it with
    `render_section`, which escapes what patients and models wrote."""

    title: str
    html: str


@dataclass(frozen=True)
class ReportStyle:
    """titles: variant -> what it is shown as, in the order of tables and charts; others follow by name.
    main: the variant the run is about (None, or not evaluated: the first). learns: trained by RL, so that a run without
    learning curves is incomplete. sections: stand after the confusion matrices. before: the variant that the main one
    was trained from. samples: what is predicted for, in the plural. metric: by which variants are compared.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    main: str | None = None
    learns: bool = False
    sections: Sequence[ReportSection] = ()
    before: str | None = None
    samples: str = STAYS
    metric: str = ACCURACY

    @property
    def metric_title(self) -> str:
        """The main metric at the head of a tile or a column."""
        title = metric_title(self.metric)
        return title[:1].upper() + title[1:]

    @property
    def kind(self) -> str | None:
        """What samples of files are called; None for stays of patients."""
        return KINDS.get(self.samples)

    @property
    def subjects(self) -> str:
        """What intervals draw, in the plural."""
        return subjects_of(self.samples)

    def title(self, variant: str) -> str:
        """What a variant is shown as."""
        return self.titles.get(variant, variant)

    def main_of(self, variants: Sequence[str]) -> str | None:
        """The main one of these variants, else the first; None of none."""
        return self.main if self.main in variants else next(iter(variants), None)


def metric_title(metric: str) -> str:
    """A metric in words, as they stand within a sentence."""
    return METRICS.get(metric, metric)


def metric_of(summary: Mapping[str, Any]) -> str:
    """The key of the main metric of a summary."""
    return summary.get("metric", ACCURACY)


def samples_of(summary: Mapping[str, Any]) -> str:
    """What the task of a summary is about, in the plural: stays, texts or questions."""
    return (summary.get("task") or {}).get("samples", STAYS)


def subjects_of(samples: str) -> str:
    """Whom samples are of, and what intervals draw, in the plural: patients; a question is of none."""
    return QUESTIONS if samples == QUESTIONS else "patients"


def in_order(variants: Iterable[str], titles: Mapping[str, str]) -> list[str]:
    """The variants in the order of `titles`, those without one after them by name."""
    given = set(variants)
    return [*(name for name in titles if name in given), *sorted(given - titles.keys())]


def part_of(summary: Mapping[str, Any]) -> str:
    """Which patients the numbers are of, in a word: "test", or "validation" with task.max_test=0."""
    return "validation" if summary.get("split") == "valid" else "test"


def render_section(package: str, template: str, /, **content: object) -> str:
    """HTML of a template beside the code of `package` ("ghar.envs.demo", "report.html"); values are escaped.

    Raises jinja2's UndefinedError for a name that the template uses and `content` lacks.
    """
    return pages(package, ".").get_template(template).render(**content)


@cache
def pages(package: str, folder: str) -> Environment:
    """Templates in a folder of a package, with the settings that all parts of the page share."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
