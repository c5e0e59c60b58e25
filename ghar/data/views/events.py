"""Words of EHR-RAG's event rows: "[time] type - description (value: ...)", a line an event (ehr_rag.txt, Appendix
A)."""

from __future__ import annotations

from collections.abc import Mapping

MEASUREMENT = "measurement"
TYPES: Mapping[str, str] = {  # vocabulary of a code -> type in its row; others show their vocabulary
    **dict.fromkeys(("ICD9CM", "ICD10CM", "CCSCM", "EICU_DIAGNOSIS", "SNOMED"), "condition"),
    **dict.fromkeys(("ICD9PROC", "ICD10PCS", "CCSPROC", "EICU_TREATMENT", "CPT4", "HCPCS"), "procedure"),
    **dict.fromkeys(("DRUG", "ATC", "RxNorm", "NDC"), "drug"),
    **dict.fromkeys(("LAB", "VITAL", "LOINC"), MEASUREMENT),
    **dict.fromkeys(("ICU_ADMISSION", "Visit", "HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE"), "visit"),
    **dict.fromkeys(("GENDER", "AGE", "Gender", "Race", "Ethnicity", "MEDS_BIRTH"), "demographic"),
    "MEDS_DEATH": "death",
}
INNATE = ("MEDS_BIRTH", "GENDER", "Gender", "Race", "Ethnicity")  # OMOP sources give them the time of birth


def event_label(code: str, name: str) -> str:
    """The part of a row that says what happened: "type - description"."""
    return f"{TYPES.get(_vocabulary(code), _vocabulary(code).lower())} - {name}"


def number_text(number: float) -> str:
    """A measured number as rows show it."""
    return f"{number:.6g}"


def _vocabulary(code: str) -> str:
    return code.partition("/")[0]
