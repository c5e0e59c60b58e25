"""What the codes of a MEDS folder mean in the vocabularies of `ghar.data.cohort`: by shape, then by parents.

written by                          shapes read here (a house code and its kind are made of them)
MIMIC_IV_MEDS 0.2 and earlier       DIAGNOSIS//ICD//10//I214, PROCEDURE//ICD//9//3961, MEDICATION//START//Aspirin,
                                    MEDICATION//Aspirin//Administered, both with //NDC at the end in 0.2,
                                    LAB//RESULT//51222//g/dL and earlier LAB//51222//g/dL,
                                    LAB//SPECIMEN_COLLECTED//51222, ICU_ADMISSION//MICU, GENDER//F
meds_etl's MIMIC-IV                 ICD10CM/I21.4, ICD9Proc/39.61, NDC/..., MIMIC_IV_Drug/..., MIMIC_IV_LABITEM/51222
EHRSHOT, meds_etl's OMOP            SNOMED/..., RxNorm/..., CPT4/..., LOINC/...; SNOMED's kind from the OMOP table
OMOP_MEDS                           condition_occurrence//SNOMED//..., drug_exposure_start//RxNorm//..., LOINC//718-7
eICU-MEDS                           DIAGNOSIS//path, TREATMENT//ENTERED//path, MEDICATION//STARTED//...,
                                    LAB//RESULT//Hgb//g/dL

A code of unknown shape is what its parents are: an ICD parent takes its place, any other one gives it its kind. Further
shapes come from data.vocabulary (`read_vocabulary`), and go before these. Facts: event_configs.yaml of MIMIC_IV_MEDS
0.2.0 and 0.0.x, of eICU-MEDS 0.1.0 and of OMOP_MEDS; omop.py and mimic/__init__.py of meds_etl 0.3.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import polars as pl
import yaml

from ghar.data.visit_codes import KIND_NAMES, KINDS
from ghar.errors import BadInput
from ghar.yaml_text import parse_yaml

Role = Literal["plain", "order", "given", "result", "specimen", "billed"]
TABLES = {  # where an event is from, by the columns that say so -> the kind of a code whose vocabulary leaves it open
    "condition_occurrence": "diagnoses",
    "procedure_occurrence": "procedures",
    "drug_exposure": "medications",
}
TABLE_COLUMNS = ("omop_table", "table", "table_name", "source_block")
BILLED_TABLES = ("hosp/diagnoses_icd", "hosp/procedures_icd")  # coded at the discharge (trap 2, docs/traps.md)
UNIT_CONCEPTS = {"8713": "g/dL", "8636": "g/L", "8840": "mg/dL"}  # OMOP's numbers of the units that a task reads
NO_UNIT = ("", "UNK", "None", "0")
VOCABULARIES = "SNOMED|RxNorm|RxNorm Extension|LOINC|CPT4|HCPCS|NDC|ATC|CVX|ICDO3"


@dataclass(frozen=True)
class CodeRule:
    """pattern: of the whole code. code: the house code, from the pattern's groups; None keeps it as it is. kind: of
    KIND_NAMES, None where the house code's vocabulary says it, "" where it has none and the table does not count.

    role: order: of a drug. given: a drug that was given, a medication only in a folder without orders. specimen: drawn,
    its result comes as another event. billed: coded when the stay is over.
    """

    pattern: re.Pattern[str]
    code: str | None = None
    kind: str | None = None
    role: Role = "plain"


@dataclass(frozen=True)
class CodeVocabulary:
    """What a folder's codes mean. rules: the first that fits counts. opens, closes: further codes that begin and end a
    stay. key: changes with all of it."""

    rules: tuple[CodeRule, ...]
    opens: str | None = None
    closes: str | None = None
    file: Path | None = None


def _rule(pattern: str, code: str | None = None, kind: str | None = None, role: Role = "plain") -> CodeRule:
    return CodeRule(re.compile(pattern + r"(?://(?:hosp|icu)/\w+)?"), code, kind, role)


GIVEN = r"(?!not |hold|stop)[^/]*(?:administered|started|applied|given|bolus)[^/]*"
RULES = (
    _rule(r"DIAGNOSIS(?:-|//)ICD//(?P<version>9|10)//(?P<icd>[^/]+)", "ICD{version}CM/{icd}", role="billed"),
    _rule(r"PROCEDURE(?:-|//)ICD//9//(?P<icd>[^/]+)", "ICD9PROC/{icd}", role="billed"),
    _rule(r"PROCEDURE(?:-|//)ICD//10//(?P<icd>[^/]+)", "ICD10PCS/{icd}", role="billed"),
    _rule(r"ICD(?P<version>9|10)CM/+(?P<icd>[^/]+)", "ICD{version}CM/{icd}"),
    _rule(r"ICD9Proc/+(?P<icd>[^/]+)", "ICD9PROC/{icd}"),
    _rule(r"ICD10PCS/+(?P<icd>[^/]+)", "ICD10PCS/{icd}"),
    _rule(r"MEDICATION//(?:START|STARTED)//(?:UNK|)(?://(?:\d+|UNK))?", kind=""),
    _rule(r"MEDICATION//(?:START|STARTED)//(?P<drug>.+?)(?://(?:\d+|UNK))?", "DRUG/{drug}", role="order"),
    _rule(r"MEDICATION//STOP(?:PED)?//.*", kind=""),
    _rule(rf"MEDICATION//(?!UNK//)(?P<drug>.+?)//(?i:{GIVEN})(?://(?:\d+|UNK))?", "DRUG/{drug}", role="given"),
    _rule(r"MEDICATION//(?P<drug>[^/]+)//hosp/pharmacy", "DRUG/{drug}", role="order"),
    _rule(r"MEDICATION//.*", kind=""),
    _rule(r"MIMIC_IV_Drug/(?P<drug>.+)", "DRUG/{drug}", role="order"),
    _rule(r"LAB//SPECIMEN_(?:COLLECTED|DRAWN)//(?P<item>\d+)(?://[^/]*)?", "SPECIMEN/{item}", kind="", role="specimen"),
    _rule(r"LAB//SPECIMEN_DRAWN//(?P<item>.+)//.*?", "SPECIMEN/{item}", kind="", role="specimen"),
    _rule(r"LAB//RESULT//(?P<item>.+?)//(?P<unit>.*?)", "LAB/{item}", role="result"),
    _rule(r"LAB//(?P<item>22\d{4})(?://(?P<unit>.*?))?", "CHART/{item}", kind=""),
    _rule(r"LAB//(?P<item>[^/]+)(?://(?P<unit>.*?))?", "LAB/{item}"),
    _rule(r"MIMIC_IV_LABITEM/(?P<item>.+)", "LAB/{item}"),
    _rule(r"MIMIC_IV_ITEM/(?P<item>.+)", "CHART/{item}", kind=""),
    _rule(r"ICU_ADMISSION//(?P<unit_name>.+)", "ICU_ADMISSION/{unit_name}"),
    _rule(r"ICU_DISCHARGE//.*", "ICU_DISCHARGE"),
    _rule(r"(?:GENDER//|MIMIC_IV_Gender/)(?P<letter>[FM]).*", "GENDER/{letter}"),
    _rule(r"DIAGNOSIS//(?P<path>.+)", "EICU_DIAGNOSIS/{path}"),
    _rule(r"TREATMENT//ENTERED//(?P<path>.+)", "EICU_TREATMENT/{path}"),
    _rule(r"condition_occurrence//.*", kind="diagnoses"),
    _rule(r"procedure_occurrence//.*", kind="procedures"),
    _rule(r"drug_exposure_start//.*", kind="medications"),
    _rule(r"HCPCS//(?P<name>.+)", "HCPCS_NAME/{name}"),  # by MIMIC_IV_MEDS, which no other reader shows
    _rule(rf"(?P<vocabulary>{VOCABULARIES})/+(?P<local>.+)", "{vocabulary}/{local}"),
    # known, and not shown among a visit's codes
    _rule(r"(?:PROCEDURE//(?:START|END)|INFUSION_(?:START|END)|SUBJECT_FLUID_OUTPUT|TRANSFER_TO|DRG|VITALS|SPECIMEN"
          r"|(?:HOSPITAL_)?(?:ADMISSION|DISCHARGE)|INSURANCE|LANGUAGE|MARITAL_STATUS|RACE"
          r"|ADMISSION_DIAGNOSIS|ALLERGY|CAREPLAN_\w+"
          r"|condition_end|drug_exposure_end|(?:drug|dose|condition)_era\w*|device_exposure_\w+|visit|visit_end"
          r"|observation_period\w*)//.*", kind=""),
    _rule(r"(?:MEDS_BIRTH|MEDS_DEATH|ED_REGISTRATION|ED_OUT|INFUSION_DRUG|CAREPLAN_EOL|\w+_(?:WEIGHT|HEIGHT)(?:_AT_\w+)?"
          r"|GENDER|AGE|LAB|VITAL|DRUG|ICU_ADMISSION|ICU_DISCHARGE|Visit|CHART|Gender|Race|Ethnicity"
          r"|HOSPITAL_(?:ADMISSION|DISCHARGE))(?:/.*)?"),
)  # fmt: skip
HOUSE = CodeVocabulary(RULES)


def resolve_codes(codes: pl.DataFrame, vocabulary: CodeVocabulary = HOUSE) -> pl.DataFrame:
    """What each code of a folder means: a row a code of `codes`, in their order.

    codes: code, description, parent_codes (list[str]), table (where most of its events are from, null where no one
    says). Returns source, code (the house code), kind (of KIND_NAMES or null), unit, role, known (whether a rule or a
    parent knew it), description, parents (house codes).
    """
    given = codes.select("code", "description", "parent_codes", "table").iter_rows()
    rows = [_resolved(code, name, above, table, vocabulary.rules) for code, name, above, table in given]
    types = {"source": pl.String, "code": pl.String, "kind": pl.String, "unit": pl.String, "role": pl.String}
    types |= {"known": pl.Boolean, "description": pl.String, "parents": pl.List(pl.String)}
    return pl.DataFrame(rows, types, orient="row")


def _resolved(source: str, name: str | None, parents: Sequence[str] | None, table: str | None,
              rules: Sequence[CodeRule]) -> tuple[Any, ...]:  # fmt: skip
    above = [_by_shape(parent, RULES)[0] for parent in parents or ()]
    code, kind, unit, role, is_known = _by_shape(source, rules)
    table_name = table or ""
    if not is_known and (coded := [parent for parent in above if parent.startswith("ICD")]):
        code, is_known = coded[0], True
    if kind is None:
        kind = _kind(code) or TABLES.get(table_name) or next((k for k in map(_kind, above) if not is_known and k), None)
        if kind is None and code.startswith("SNOMED/") and not table:
            kind = "diagnoses"  # what SNOMED is for in most folders; one with tables tells
        is_known = is_known or kind is not None
    if any(table_name.startswith(name) for name in BILLED_TABLES):
        role = "billed"
    above = list(dict.fromkeys(parent for parent in above if parent != code))
    return source, code, kind or None, unit, role, is_known, name or None, above


def _by_shape(source: str, rules: Iterable[CodeRule]) -> tuple[str, str | None, str | None, Role, bool]:
    """The house code, kind, unit and role of a code, and whether a rule knew it."""
    for rule in rules:
        match = rule.pattern.fullmatch(source)
        if match is None:
            continue
        parts = {name: text or "" for name, text in match.groupdict().items()}
        if "icd" in parts:
            parts["icd"] = parts["icd"].replace(".", "").strip().upper()
        if "drug" in parts:
            parts["drug"] = parts["drug"].strip().lower()
        unit = parts.get("unit", "").strip()
        code = source if rule.code is None else rule.code.format(**parts)
        return code, rule.kind, None if unit in NO_UNIT else unit, rule.role, True
    return source, None, None, "plain", False


def _kind(code: str) -> str | None:
    return KINDS.get(code.partition("/")[0])


def shape_of(code: pl.Expr) -> pl.Expr:
    """The part of a code that says what kind of thing it is: up to the first slash, digits left out."""
    return code.str.extract(r"^([^/]*/*)").str.replace_all(r"\d+", "#")


def read_vocabulary(path: Path | None) -> CodeVocabulary:
    """The house's rules, and before them those of a YAML file (data.vocabulary).

    The file has `codes`, a list of {pattern, code, kind}: pattern is a regular expression of whole codes with named
    groups, code what becomes of it ("ICD10CM/{icd}"; group icd loses its dot, group unit is the unit), kind one of
    KIND_NAMES. `admission` and `discharge` are regular expressions of further codes that begin and end a stay.
    BadInput, with the entry, for anything else.
    """
    if path is None:
        return HOUSE
    if not path.is_file():
        raise BadInput(f"data.vocabulary={path} is no file: name a YAML file of code patterns, see docs/data.md.")
    try:
        content = parse_yaml(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not YAML ({' '.join(str(error).split())}): correct it.") from error
    if not isinstance(content, dict) or (wrong := set(content) - {"codes", "admission", "discharge"}):
        keys = f" {', '.join(map(str, wrong))}" if isinstance(content, dict) else ""
        raise BadInput(f"{path} has other keys than codes, admission, discharge{keys and ':' + keys}: correct it.")
    rules = tuple(_parse_rule(path, i, entry) for i, entry in enumerate(content.get("codes") or (), 1))
    ends = {name: _pattern(path, content[name]).pattern for name in ("admission", "discharge") if content.get(name)}
    return CodeVocabulary((*rules, *RULES), ends.get("admission"), ends.get("discharge"), path)


def _parse_rule(path: Path, number: int, entry: Mapping[str, str]) -> CodeRule:
    where = f"{path}, entry {number} of codes"
    if not isinstance(entry, dict) or "pattern" not in entry or set(entry) - {"pattern", "code", "kind", "role"}:
        raise BadInput(f"{where} must have pattern, and may have code, kind and role: correct it.")
    pattern, kind, role = _pattern(path, entry["pattern"]), entry.get("kind"), entry.get("role", "plain")
    if kind not in (None, *KIND_NAMES) or role not in get_args(Role):
        raise BadInput(
            f"{where}: kind is one of {', '.join(KIND_NAMES)}, role one of {', '.join(get_args(Role))}: correct it."
        )
    try:
        code = entry.get("code")
        _ = code is None or code.format(**dict.fromkeys(pattern.groupindex, "x"))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        wrong = f"code {entry['code']!r} names no group of its pattern ({error})"
        raise BadInput(f"{where}: {wrong}: correct it.") from error
    return CodeRule(pattern, code, kind, cast(Role, role))


def _pattern(path: Path, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise BadInput(f"{path}: {text!r} is no regular expression ({error}): correct it.") from error
