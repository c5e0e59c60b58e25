"""How the report shows a system it knows nothing about: what its variants are called, and parts of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


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
    was trained from. samples: what is predicted for, in the plural.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    main: str | None = None
    learns: bool = False
    sections: Sequence[ReportSection] = ()
    before: str | None = None
    samples: str = "stays"

    def title(self, variant: str) -> str:
        """What a variant is shown as."""
        return self.titles.get(variant, variant)

    def main_of(self, variants: Sequence[str]) -> str | None:
        """The main one of these variants, else the first; None of none."""
        return self.main if self.main in variants else next(iter(variants), None)


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
