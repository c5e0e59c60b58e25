"""Which ATC classes a route of administration allows.

Tables of drug names give every class in which a substance is sold: acetylsalicylic acid is a stomatological
preparation, an antithrombotic agent and an analgesic. The route decides: a tablet is none of the first, and a
phenylephrine drip no decongestant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Route = Literal["oral", "parenteral", "inhaled", "nasal", "eye", "ear", "skin", "mouth", "vaginal", "rectal"]
# In this order: "LEFT EYE" before "LEFT", "PO/NG" before "NG". MIMIC's abbreviations and eICU's words.
SPELLINGS: tuple[tuple[str, Route], ...] = (
    (r"EYE|OPHTH|^O[SDU]$", "eye"),
    (r"\bEAR|OTIC", "ear"),
    (r"^NAS|NASAL|^IN$", "nasal"),
    (r"^IH$|^INH|^NEB|NEBULI|INHAL|^SVN$|^MDI$", "inhaled"),
    (r"^TP$|^TOP|TOPICAL|SKIN|SHAMPOO", "skin"),
    (r"VAG|^VG$", "vaginal"),
    (r"^PR$|^RE$|RECT", "rectal"),
    (r"^IV|INTRAV|INTRAM|^IM$|^SC$|SUB-?Q|SUBCUT|DRIP|^IJ$|^ID$|EPIDURAL|^ED$|DIALYS|PERIPHNERVE|INJ", "parenteral"),
    (r"^PO|ORAL|^NG|^NU$|^SL$|TUBE|MOUTH|^PEG|^J|G TUBE", "oral"),
)
FORMS: tuple[tuple[str, Route], ...] = (  # in a drug's own name, which says more than "PO" or "TP" beside it
    (r"rinse|lozenge|throat|viscous|mouthwash|swish", "mouth"),
    (r"nasal|nostril", "nasal"),
    (r"ophth|eye drop", "eye"),
    (r"\botic\b|ear drop", "ear"),
    (r"cream|ointment|shampoo|jelly|lotion", "skin"),
)
LOCAL = ("A01", "B05C", "C05", "D", "G01", "M02", "R01", "R02", "S")  # act where they are put
SYSTEMIC = ("D01B", "D05B", "D10B", "R01B", "S01E")  # of these groups, swallowed or injected
FORBIDDEN: Mapping[Route, tuple[str, ...]] = {
    "oral": (*LOCAL, "R03A", "R03B"),
    "parenteral": (*LOCAL, "A07", "R03A", "R03B"),
    "rectal": ("A01", "B05", "D", "G01", "R", "S"),
}
WANTED: Mapping[Route, tuple[str, ...]] = {
    "inhaled": ("R03A", "R03B", "R05", "R07"),
    "nasal": ("R01",),
    "eye": ("S01", "S03"),
    "ear": ("S02", "S03"),
    "skin": ("D", "M02", "C05", "N01"),
    "mouth": ("A01", "R02", "N01", "A07"),
    "vaginal": ("G01", "G03"),
    "rectal": ("C05", "A06", "A07"),
}


def route_of(text: str | None) -> Route | None:
    """The route that a source's text means, None for one that says nothing ("MISC", "DEVICE")."""
    spelling = (text or "").strip().upper()
    return next((route for pattern, route in SPELLINGS if re.search(pattern, spelling)), None) if spelling else None


def route_of_drug(name: str, route: Route | None) -> Route | None:
    """The route of a drug that its name tells ("mupirocin nasal ointment"), else the one that most orders have; an eye
    ointment is one for the eye."""
    named_route: Route | None = next((form for pattern, form in FORMS if re.search(pattern, name)), None)
    if named_route is None or (named_route == "skin" and route in ("eye", "ear", "nasal", "vaginal")):
        return route
    return named_route


def class_by_route(counts: Mapping[str, int], route: Route | None) -> str | None:
    """The commonest of the classes ("ATC/B01A" -> rows) that the route allows; the first where several are as common.

    None where a known route allows none of them: no class is better than a wrong one. Where no route is known systemic
    classes go before local ones, since most orders in a hospital are systemic.
    """
    wanted = [atc for atc in counts if route is not None and _in(atc, WANTED.get(route, ()))]
    allowed = [atc for atc in counts if not _local(atc, LOCAL if route is None else FORBIDDEN.get(route, ()))]
    pool = wanted or allowed or ([] if route is not None else list(counts))
    return max(pool, key=lambda atc: counts[atc], default=None)  # max keeps the first of equals


def _in(atc: str, groups: tuple[str, ...]) -> bool:
    return atc.removeprefix("ATC/").startswith(groups)


def _local(atc: str, groups: tuple[str, ...]) -> bool:
    return _in(atc, groups) and not _in(atc, SYSTEMIC)
