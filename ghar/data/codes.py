"""Code systems: ICD-9/10 diagnoses and procedures to CCS, drugs to ATC level 3, names for all of them.

Nothing is bundled: `read_code_systems` looks through a folder of yours for these files (csv or csv.gz, any subfolder).
What is not there is listed in `CodeSystems.absent`, and the codes it would have mapped show up in the mapping report.

file                     columns             gives
ICD9CM_to_CCSCM          ICD9CM, CCSCM       CCS of diagnoses (likewise ICD10CM_to_CCSCM)
ICD9PROC_to_CCSPROC      ICD9PROC, CCSPROC   CCS of procedures (likewise ICD10PROC_to_CCSPROC)
CCSCM, CCSPROC           code, name          names of CCS categories
ICD9CM, ICD9PROC         code, name          names of ICD-9 codes
icd10cm-order*           code, long          names of ICD-10-CM codes
atc_coding               atc_code, atc_name  names of ATC classes
mimic_drug_to_atc        drug, atc_code      ATC by drug name
gsn_atc_ndc_mapping      gsn, atc, ndc       ATC by GSN and by NDC
ndc2rxnorm_mapping.txt   a dictionary        RxNorm by NDC; with
RxNorm_to_ATC            RxNorm, ATC         ATC by NDC

Codes are compared in upper case without dots. A code's target, by the first rule that finds one:

ICD   exact; children: all codes that begin with it agree; parent: the longest known beginning of at least three
      characters (two for ICD-9 procedures); leading_zero: for an ICD-9 code of digits, the one known code that it is
      when lost zeros are put back.
DRUG  name; gsn; ndc (94%, 86% and 60% of the rows of MIMIC). GSN and NDC of a name are those of its
      prescriptions, the class most of its rows lead to; ties go to the first in the alphabet. Last, part: the longest
      known name of five letters or more among the words of this one ("acetaminophen 325 mg po tabs", eICU). Of several
      classes of a name, GSN or NDC the route decides, by which most rows of the drug are given (routes.py). The mark
      "*NF*" of drugs outside of a hospital's formulary is no part of a name.
"""

from __future__ import annotations

import ast
import gzip
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ghar.data.routes import Route, class_by_route, route_of, route_of_drug
from ghar.errors import BadInput

ICD = {  # vocabulary -> (its file, its column, the target's column, the target's vocabulary)
    "ICD9CM": ("ICD9CM_to_CCSCM", "ICD9CM", "CCSCM"),
    "ICD10CM": ("ICD10CM_to_CCSCM", "ICD10CM", "CCSCM"),
    "ICD9PROC": ("ICD9PROC_to_CCSPROC", "ICD9PROC", "CCSPROC"),
    "ICD10PCS": ("ICD10PROC_to_CCSPROC", "ICD10PROC", "CCSPROC"),
}
NAMES = {  # vocabulary -> (file, code, name)
    "ICD9CM": ("ICD9CM", "code", "name"),
    "ICD9PROC": ("ICD9PROC", "code", "name"),
    "ICD10CM": ("icd10cm-order", "code", "long"),
    "CCSCM": ("CCSCM", "code", "name"),
    "CCSPROC": ("CCSPROC", "code", "name"),
    "ATC": ("atc_coding", "atc_code", "atc_name"),
}
SHORTEST = {"ICD9CM": 3, "ICD10CM": 3, "ICD9PROC": 2, "ICD10PCS": 3}
LEVEL3 = 4  # characters of an ATC class of level 3, such as C03C
SHORTEST_PART = 5  # letters; "bag" and "vial" are in the table of names
WORD = re.compile(r"[^\s,;:()/]+")


@dataclass(frozen=True)
class CodeSystems:
    """icd: vocabulary -> plain code -> "CCSCM/..." or "CCSPROC/..."; drugs: rule -> key -> "ATC/..." -> rows of the
    table that say so.

    names: full code ("CCSCM/108", "ICD9CM/4280") -> name. absent: files that were not found.
    """

    icd: Mapping[str, Mapping[str, str]]
    drugs: Mapping[str, Mapping[str, Mapping[str, int]]]
    names: Mapping[str, str]
    absent: tuple[str, ...] = ()
    _sorted: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)


def read_code_systems(folder: Path) -> CodeSystems:
    """Read what `folder` holds of the files above. Raises BadInput when it holds none, or one of another shape."""
    folder = Path(folder)
    paths = {path.name.split(".")[0].lower(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    absent: list[str] = []

    def pairs(stem: str, key: str, value: str) -> list[tuple[str, str]]:
        path = next((paths[name] for name in sorted(paths) if _is(name, stem)), None)
        if path is None:
            absent.append(stem)
            return []
        return _pairs(path, key, value)

    icd = {
        vocabulary: {plain(code): f"{to}/{target.strip()}" for code, target in pairs(stem, column, to)}
        for vocabulary, (stem, column, to) in ICD.items()
    }
    names = {
        f"{vocabulary}/{plain(code)}": name.strip()
        for vocabulary, (stem, key, value) in NAMES.items()
        for code, name in pairs(stem, key, value)
    }
    by_gsn = pairs("gsn_atc_ndc_mapping", "gsn", "atc")
    rxnorm = _counted(pairs("RxNorm_to_ATC", "RxNorm", "ATC"), str.strip)
    path = paths.get("ndc2rxnorm_mapping")
    absent += [] if path else ["ndc2rxnorm_mapping"]
    by_rxnorm = {ndc(code): rxnorm[cui] for code, cui in (_dictionary(path) if path else {}).items() if cui in rxnorm}
    by_ndc = pairs("gsn_atc_ndc_mapping", "ndc", "atc") if by_gsn else []
    drugs = {
        "name": _counted(pairs("mimic_drug_to_atc", "drug", "atc_code"), drug_name),
        "gsn": _counted(by_gsn, gsn),
        "ndc": by_rxnorm | _counted(by_ndc, ndc),
    }
    if not (any(icd.values()) or any(drugs.values()) or names):
        raise BadInput(f"{folder} holds none of the code tables (ICD9CM_to_CCSCM.csv, ...): correct data.codes.")
    return CodeSystems(icd, {rule: _drop_empty(table) for rule, table in drugs.items()}, names, tuple(absent))


def map_codes(codes: Iterable[str], systems: CodeSystems, keys: pl.DataFrame | None = None) -> pl.DataFrame:
    """Target and rule of each code: code, target, rule; both null for what does not map.

    keys: GSN, NDC and route of drug codes (code, gsn, ndc, route, rows), as `ghar.data.mapping.drug_keys` reads them.
    Codes of other vocabularies (labs, ICU units, ...) have no target and are left out.
    """
    routes = _routes(keys) if keys is not None else {}
    votes = _votes(keys, systems, routes) if keys is not None else {}
    rows = []
    for code in dict.fromkeys(codes):
        vocabulary, _, local = code.partition("/")
        if vocabulary in ICD:
            rows.append((code, *_icd_target(vocabulary, plain(local), systems)))
        elif vocabulary == "DRUG":
            rows.append((code, *_drug_target(code, drug_name(local), systems, votes, routes)))
    return pl.DataFrame(rows, {"code": pl.String, "target": pl.String, "rule": pl.String}, orient="row")


def plain(code: str) -> str:
    """Upper case, without dots and blanks."""
    return code.replace(".", "").strip().upper()


def drug_name(name: str) -> str:
    """Lower case, single blanks, without the mark of drugs outside of the formulary."""
    return " ".join(name.lower().replace("*nf*", " ").split())


def gsn(code: str) -> str:
    """Six digits; "" for none."""
    digits = code.strip()
    return digits.zfill(6) if digits.isdigit() and int(digits) else ""


def ndc(code: str) -> str:
    """Eleven digits, lost zeros put back; "" for none: MIMIC writes 0, others a question mark."""
    digits = code.strip().replace("-", "")
    return digits.zfill(11) if digits.isdigit() and int(digits) else ""


def _icd_target(vocabulary: str, code: str, systems: CodeSystems) -> tuple[str | None, str | None]:
    table = systems.icd[vocabulary]
    if code in table:
        return table[code], "exact"
    ordered = systems._sorted.setdefault(vocabulary, sorted(table))
    if len(code) >= SHORTEST[vocabulary]:
        start = bisect_left(ordered, code)
        stop = bisect_left(ordered, code + "￿")
        below = {table[child] for child in ordered[start:stop]}
        if len(below) == 1:
            return below.pop(), "children"
    for length in range(len(code) - 1, SHORTEST[vocabulary] - 1, -1):
        if code[:length] in table:
            return table[code[:length]], "parent"
    if vocabulary.startswith("ICD9") and code.isdigit():
        padded = [padded for zeros in ("0", "00", "000") if (padded := zeros + code) in table]
        if len(padded) == 1:
            return table[padded[0]], "leading_zero"
    return None, None


def _drug_target(
    code: str,
    name: str,
    systems: CodeSystems,
    votes: Mapping[str, tuple[str, str]],
    routes: Mapping[str, Route],
) -> tuple[str | None, str | None]:
    names, route = systems.drugs["name"], route_of_drug(name, routes.get(code))
    if name in names and (target := class_by_route(names[name], route)) is not None:
        return target, "name"
    if code in votes:
        return votes[code]
    if name in names:
        return None, None
    words = WORD.findall(name)
    parts = (" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
    matches = [part for part in parts if part in names and sum(map(str.isalpha, part)) >= SHORTEST_PART]
    target = class_by_route(names[max(matches, key=len)], route) if matches else None
    return (target, "part") if target is not None else (None, None)


def _routes(keys: pl.DataFrame) -> dict[str, Route]:
    """Drug code -> the route by which most rows of its prescriptions are given; ties to the first in the alphabet."""
    if "route" not in keys.columns:
        return {}
    ballots: dict[str, Counter[Route]] = defaultdict(Counter)
    for code, text, rows in keys.select("code", "route", "rows").iter_rows():
        if (route := route_of(text)) is not None:
            ballots[code][route] += rows
    return {code: min(counts, key=lambda route: (-counts[route], route)) for code, counts in ballots.items()}


def _votes(keys: pl.DataFrame, systems: CodeSystems, routes: Mapping[str, Route]) -> dict[str, tuple[str, str]]:
    """Drug code -> the class that most rows of its prescriptions lead to, by GSN, else by NDC."""
    ballots: dict[str, dict[str, Counter[str]]] = {rule: defaultdict(Counter) for rule in ("gsn", "ndc")}
    for code, gsns, number, rows in keys.select("code", "gsn", "ndc", "rows").iter_rows():
        for one in (gsns or "").split():  # a compound has several
            if target := class_by_route(systems.drugs["gsn"].get(gsn(one), {}), routes.get(code)):
                ballots["gsn"][code][target] += rows
        if target := class_by_route(systems.drugs["ndc"].get(ndc(number or ""), {}), routes.get(code)):
            ballots["ndc"][code][target] += rows
    return {
        code: (min(counts, key=lambda target: (-counts[target], target)), rule)
        for rule in ("ndc", "gsn")  # the later one wins
        for code, counts in ballots[rule].items()
    }


def _counted(pairs: Iterable[tuple[str, str]], key_of) -> dict[str, dict[str, int]]:
    """Key -> the ATC level 3 classes that its rows name, and how many rows name each, in the order of the table."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, atc in pairs:
        if len(atc.strip()) >= LEVEL3:
            counts[key_of(key)][f"ATC/{plain(atc)[:LEVEL3]}"] += 1
    return {key: dict(targets) for key, targets in counts.items()}


def _drop_empty(table: Mapping[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {key: target for key, target in table.items() if key}


def _is(name: str, stem: str) -> bool:
    """Whether a file is the wanted one; the ICD-10 order file has its date in its name."""
    return name == stem.lower() or (stem == "icd10cm-order" and name.startswith(stem))


def _pairs(path: Path, key: str, value: str) -> list[tuple[str, str]]:
    try:
        table = pl.read_csv(path, infer_schema=False, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path} cannot be read ({str(error).splitlines()[0]}): copy the file again.") from error
    if missing := [column for column in (key, value) if column not in table.columns]:
        raise BadInput(f"{path} has no column {missing[0]} (it has {', '.join(table.columns)}): is it another file?")
    return table.select(key, value).drop_nulls().rows()


def _dictionary(path: Path) -> dict[str, str]:
    """A dictionary in Python's notation, as GAMENet publishes it."""
    try:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        return {str(key): str(value) for key, value in ast.literal_eval(text).items()}
    except (OSError, ValueError, SyntaxError, AttributeError) as error:
        raise BadInput(f"{path} is not a dictionary of NDC to RxNorm ({error}): copy the file again.") from error
