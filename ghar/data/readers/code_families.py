"""Names of codes that a dictionary lacks or names otherwise, because they were divided or dropped before its year.

MIMIC-III's dictionaries are of one year, its stays of twelve. Of the open demo 45 of 1,761 diagnoses have a code that
was divided before that year, as 585 (chronic kidney disease) was into 585.1 to 585.9. Such a code means one of those
that it was divided into. It has the name of the residual one, whose number ends in 0 or 9 and which says
"unspecified" or "other": 348.8 was "Other conditions of brain", as 348.89 is, and not "Brain death", which 348.82 is.
Of 506 procedures 2 have a code that was dropped, as 36.01 (angioplasty of one vessel) was. What it meant is not among
its neighbours: it has the name of their residual code, "Other removal of coronary artery obstruction".

Three codes of Staphylococcus aureus were narrowed: until 30 September 2008, before there were 038.12, 041.12 and 482.42
for resistant ones, they were of any, and resistance was said by V09.0 beside them (ICD-9-CM, addenda of fiscal year
2009: new codes and revised titles). No stay of MIMIC-III tells its year, so it has their earlier titles, which are true
of all years. In stay 168233 of the open demo "Methicillin susceptible" stood beside V09.0, of a culture that is
resistant to oxacillin. MIMIC-IV keeps the later titles: it begins in 2008, and `anchor_year_group`, three years wide,
can say of no stay that it was before October of that year. Of its open demo no stay is from before 2011.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

NARROWED = ("ICD9CM/03811", "ICD9CM/04111", "ICD9CM/48241")
NARROWED_BY = "Methicillin susceptible "
LISTED = 4  # names at most; of more codes one name and their number


def earlier_titles(titles: pl.DataFrame) -> pl.DataFrame:
    """`titles` (code, description) with what the codes of `NARROWED` were called before."""
    before = pl.col("description").str.replace(f"^{NARROWED_BY}", "")
    before = before.str.head(1).str.to_uppercase() + before.str.slice(1)
    narrowed = pl.col("code").is_in(NARROWED)
    return titles.with_columns(description=pl.when(narrowed).then(before).otherwise("description"))


def family_names(titles: pl.DataFrame, shortest: int) -> pl.DataFrame:
    """Name each code that `titles` lacks by the codes that begin with it.

    titles: code ("ICD9CM/5851") and description. shortest: characters of the shortest code. Returns the same columns,
    with `family_name` of the next finer codes.
    """
    named = titles.unique("code", keep="first").sort("code")
    vocabulary, local = named["code"].str.extract("^([^/]*/)"), named["code"].str.replace("^[^/]*/", "")
    finer = named.with_columns(vocabulary=vocabulary, local=local, length=local.str.len_chars())
    longest: int = finer["length"].cast(pl.Int64).max() or 0  # pyright: ignore[reportAssignmentType]
    parts = [
        finer.filter(pl.col("length") > size).with_columns(code=pl.col("vocabulary") + pl.col("local").str.head(size))
        for size in range(shortest, longest)
    ]
    if not parts:
        return titles.clear()
    lacking = pl.concat(parts).join(named, on="code", how="anti")
    next_finer = lacking.filter(pl.col("length") == pl.col("length").min().over("code"))
    families = next_finer.group_by("code", maintain_order=True).agg("local", "description")
    numbers, texts = families["local"].to_list(), families["description"].to_list()
    names = [family_name(list(zip(*family, strict=True))) for family in zip(numbers, texts, strict=True)]
    return families.with_columns(description=pl.Series(names, dtype=pl.String)).select(titles.columns)


def family_name(family: Sequence[tuple[str, str]]) -> str:
    """Name a code that was divided into these: (number, name), in the order of their numbers.

    It is the name of the residual one that says "unspecified", else of that which begins with "other": the others are
    rarer, and may be much graver. Without one all names are joined by "or"; of more than `LISTED` the last stands for
    all, and how many there are is written.
    """
    residual = [name for number, name in family if number[-1:] in ("0", "9")]
    unspecified = [name for name in residual if "unspecified" in name.lower()]
    if usual := unspecified or [name for name in residual if name.lower().startswith("other")]:
        return usual[0]
    names = [name for _, name in family]
    return " or ".join(names) if len(names) <= LISTED else f"{names[-1]}, or another of {len(names)} kinds"


def residual_names(codes: Iterable[str], titles: pl.DataFrame, shortest: int) -> pl.DataFrame:
    """Name each of `codes` by the residual code nearest to it in `titles`, as 36.01 by 36.09, "Other removal of ...".

    A residual code ends in 9 in place of the last characters of a code, and its name begins with "other". shortest:
    characters of the shortest category. Returns code and description of the codes that have one.
    """
    names: dict[str, str] = dict(titles.unique("code", keep="first").select("code", "description").iter_rows())
    residual = {code: _residual_name(code, names, shortest) for code in codes}
    rows = [(code, name) for code, name in residual.items() if name is not None]
    return pl.DataFrame(rows, {"code": pl.String, "description": pl.String}, orient="row")


def _residual_name(code: str, names: Mapping[str, str], shortest: int) -> str | None:
    """The name of the residual code with the longest beginning in common."""
    for size in range(len(code) - 1, code.index("/") + shortest, -1):
        for length in range(len(code) - size, 0, -1):
            name = names.get(code[:size] + "9" * length, "")
            if name.lower().startswith("other"):
                return name
    return None
