"""Columns of the OMOP CDM 5.4 and 5.3, each with its owner; the reader is omop.py."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ghar.data.readers.columns import (
    DOSE,
    END,
    INSURANCE,
    KEY,
    NOT_YET,
    REPEATED,
    STAFF,
    SourceColumns,
    TableColumns,
)  # fmt: skip
from ghar.data.readers.events import F64, I64, TEXT, TIME

OWNER = {"person_id": I64}
OF_VISIT = {"visit_occurrence_id": I64}
HOW = "how a row came to be, not what it says"
DERIVED = "reckoned from tables that are read"


def fact(name: str, date: str) -> TableColumns:
    """A table of clinical facts: name is the beginning of its concepts' columns, date that of its dates' columns."""
    return TableColumns(
        {**OWNER, f"{name}_concept_id": I64, f"{date}_date": TIME},
        {**OF_VISIT, f"{date}_datetime": TIME, f"{name}_source_concept_id": I64, f"{name}_source_value": TEXT},
        ignored={STAFF: "provider_id", REPEATED: "visit_detail_id", HOW: f"{name}_type_concept_id"},
    )


def further(table: TableColumns, ignored: Mapping[str, str], **optional: pl.DataType) -> TableColumns:
    """The table with further columns that are ignored, by reason, and such that are read where they are there."""
    reasons = [*dict.fromkeys([*table.ignored, *ignored])]
    both = {reason: " ".join(part[reason] for part in (table.ignored, ignored) if reason in part) for reason in reasons}
    return TableColumns(table.read, {**table.optional, **optional}, ignored=both)


OMOP = SourceColumns(
    "OMOP CDM",
    {
        "person": TableColumns(
            {**OWNER, "gender_concept_id": I64},
            {
                **dict.fromkeys(("year_of_birth", "month_of_birth", "day_of_birth"), I64),
                "birth_datetime": TIME,
                "gender_source_value": TEXT,
            },
            ignored={
                KEY: "person_source_value location_id care_site_id",
                STAFF: "provider_id",
                NOT_YET: "race_concept_id race_source_value race_source_concept_id ethnicity_concept_id "
                "ethnicity_source_value ethnicity_source_concept_id",
                REPEATED: "gender_source_concept_id",
            },
        ),
        "visit_occurrence": TableColumns(
            {**OF_VISIT, **OWNER, "visit_concept_id": I64, "visit_start_date": TIME, "visit_end_date": TIME},
            {
                **dict.fromkeys(("visit_start_datetime", "visit_end_datetime"), TIME),
                **dict.fromkeys(("discharged_to_concept_id", "discharge_to_concept_id"), I64),
                **dict.fromkeys(("discharged_to_source_value", "discharge_to_source_value"), TEXT),
            },
            ignored={
                KEY: "preceding_visit_occurrence_id care_site_id visit_source_value visit_source_concept_id",
                STAFF: "provider_id",
                HOW: "visit_type_concept_id",
                NOT_YET: "admitted_from_concept_id admitted_from_source_value admitting_source_concept_id "
                "admitting_source_value",
            },
        ),
        "visit_detail": TableColumns(
            {**OF_VISIT, **OWNER, "visit_detail_concept_id": I64, "visit_detail_start_date": TIME},
            {
                "visit_detail_end_date": TIME,
                **dict.fromkeys(("visit_detail_start_datetime", "visit_detail_end_datetime"), TIME),
                "care_site_id": I64,
                "visit_detail_source_value": TEXT,
            },
            ignored={
                KEY: "visit_detail_id preceding_visit_detail_id parent_visit_detail_id visit_detail_parent_id "
                "visit_detail_source_concept_id",
                STAFF: "provider_id",
                HOW: "visit_detail_type_concept_id",
                NOT_YET: "admitted_from_concept_id admitted_from_source_value admitting_source_concept_id "
                "admitting_source_value discharged_to_concept_id discharged_to_source_value discharge_to_concept_id "
                "discharge_to_source_value",
            },
        ),
        "care_site": TableColumns(
            {"care_site_id": I64, "care_site_name": TEXT},
            ignored={
                KEY: "location_id care_site_source_value",
                NOT_YET: "place_of_service_concept_id place_of_service_source_value",
            },
        ),
        "condition_occurrence": further(
            fact("condition", "condition_start"),
            {
                KEY: "condition_occurrence_id",
                END: "condition_end_date condition_end_datetime stop_reason",
                NOT_YET: "condition_status_concept_id condition_status_source_value",
            },
        ),
        "procedure_occurrence": further(
            fact("procedure", "procedure"),
            {
                KEY: "procedure_occurrence_id",
                END: "procedure_end_date procedure_end_datetime",
                NOT_YET: "modifier_concept_id modifier_source_value qualifier_source_value quantity",
            },
        ),
        "drug_exposure": further(
            fact("drug", "drug_exposure_start"),
            {
                KEY: "drug_exposure_id lot_number",
                END: "drug_exposure_end_date drug_exposure_end_datetime verbatim_end_date stop_reason",
                DOSE: "quantity days_supply refills sig dose_unit_source_value",
                NOT_YET: "route_concept_id route_source_value",
            },
        ),
        "measurement": further(
            fact("measurement", "measurement"),
            {
                KEY: "measurement_id measurement_event_id meas_event_field_concept_id",
                REPEATED: "measurement_time unit_source_concept_id",
                NOT_YET: "range_low range_high",
            },
            value_as_number=F64,
            **dict.fromkeys(("value_as_concept_id", "operator_concept_id", "unit_concept_id"), I64),
            **dict.fromkeys(("unit_source_value", "value_source_value"), TEXT),
        ),
        "observation": further(
            fact("observation", "observation"),
            {
                KEY: "observation_id observation_event_id obs_event_field_concept_id",
                NOT_YET: "value_as_number value_as_string value_as_concept_id value_source_value qualifier_concept_id "
                "qualifier_source_value unit_concept_id unit_source_value",
            },
        ),
        "death": TableColumns(
            {**OWNER, "death_date": TIME},
            {"death_datetime": TIME},
            ignored={
                HOW: "death_type_concept_id",
                NOT_YET: "cause_concept_id cause_source_value cause_source_concept_id",
            },
        ),
        "concept": TableColumns(
            {"concept_id": I64, **dict.fromkeys(("concept_name", "vocabulary_id", "concept_code"), TEXT)},
            ignored={
                "the table in which a fact stands says its kind": "domain_id concept_class_id standard_concept",
                HOW: "valid_start_date valid_end_date invalid_reason",
            },
        ),
        "concept_ancestor": TableColumns(
            dict.fromkeys(("ancestor_concept_id", "descendant_concept_id"), I64),
            ignored={REPEATED: "min_levels_of_separation max_levels_of_separation"},
        ),
    },
    {
        DERIVED: "condition_era drug_era dose_era observation_period episode episode_event cohort cohort_definition "
        "cohort_attribute attribute_definition",
        "what source codes become: the other tables hold both sides already": "concept_relationship relationship "
        "concept_synonym concept_class domain vocabulary source_to_concept_map drug_strength ontime",
        NOT_YET: "device_exposure specimen note note_nlp fact_relationship",
        INSURANCE: "payer_plan_period cost",
        STAFF: "provider",
        "address of a patient, or of the data set": "location cdm_source metadata",
    },
)
