"""Columns of MIMIC-IV (1.0, 2.2, 3.1 and the open demo), MIMIC-IV-ED and MIMIC-IV-Note, each with its owner.

The readers are mimic4.py, mimic4_more.py and note_events.py (data.more), and notes.py (system.notes).
"""

from __future__ import annotations

from ghar.data.readers.columns import (
    CHECK,
    DOSE,
    END,
    INSURANCE,
    KEY,
    KEYS,
    NOT_YET,
    ORDER,
    OUTCOME,
    REPEATED,
    STAFF,
    SourceColumns,
    TableColumns,
)  # fmt: skip
from ghar.data.readers.events import F64, I64, TEXT, TIME

SIGNS = dict.fromkeys(("temperature", "heartrate", "resprate", "o2sat", "sbp", "dbp"), F64)
SAID_BY_PATIENT = "scale of the patient, which vitals.py does not have"

HOSPITAL = {
    "hosp/patients": TableColumns(
        {"subject_id": I64, "dod": TIME, "gender": TEXT, "anchor_age": I64, "anchor_year": I64},
        years=("anchor_year_group",),
    ),
    "hosp/admissions": TableColumns(
        {**KEYS, "admittime": TIME, "dischtime": TIME, "deathtime": TIME, "hospital_expire_flag": I64},
        records={"admission_type": TEXT},
        groups=("race", "ethnicity", "admission_type"),
        ignored={
            STAFF: "admit_provider_id",
            INSURANCE: "insurance language marital_status",
            OUTCOME: "discharge_location",
            NOT_YET: "admission_location edregtime edouttime",
        },
    ),
    "hosp/diagnoses_icd": TableColumns(
        {**KEYS, "seq_num": I64, "icd_code": TEXT, "icd_version": I64}, never_empty=True
    ),
    "hosp/procedures_icd": TableColumns(
        {**KEYS, "seq_num": I64, "icd_code": TEXT, "icd_version": I64, "chartdate": TIME}
    ),
    "hosp/prescriptions": TableColumns(
        {**KEYS, "starttime": TIME, "drug": TEXT},
        {"drug_type": TEXT, "poe_seq": TEXT},
        drug_keys=("gsn", "ndc", "route"),
        ignored={
            KEY: "pharmacy_id poe_id",
            STAFF: "order_provider_id",
            END: "stoptime",
            REPEATED: "formulary_drug_cd",
            DOSE: "prod_strength form_rx dose_val_rx dose_unit_rx form_val_disp form_unit_disp doses_per_24_hrs",
        },
    ),
    "hosp/labevents": TableColumns(
        {**KEYS, "itemid": I64, "charttime": TIME, "storetime": TIME, "value": TEXT, "valuenum": F64},
        {"comments": TEXT, "valueuom": TEXT},
        records={"ref_range_lower": F64, "ref_range_upper": F64},
        ignored={
            KEY: "labevent_id specimen_id",
            STAFF: "order_provider_id",
            ORDER: "priority",
            "reference ranges say it": "flag",
        },
    ),
    "hosp/d_icd_diagnoses": TableColumns({"icd_code": TEXT, "icd_version": I64, "long_title": TEXT}),
    "hosp/d_icd_procedures": TableColumns({"icd_code": TEXT, "icd_version": I64, "long_title": TEXT}),
    "hosp/d_labitems": TableColumns(
        {"itemid": I64, "label": TEXT}, {"fluid": TEXT}, ignored={NOT_YET: "category loinc_code"}
    ),
    "icu/icustays": TableColumns(
        {**KEYS, "first_careunit": TEXT, "intime": TIME, "outtime": TIME},
        ignored={KEY: "stay_id", REPEATED: "los", OUTCOME: "last_careunit"},
    ),
    "icu/chartevents": TableColumns(
        {**KEYS, "itemid": I64, "charttime": TIME, "storetime": TIME, "value": TEXT, "valuenum": F64},
        ignored={
            KEY: "stay_id",
            STAFF: "caregiver_id",
            "an item is always charted in one unit, which vitals.py knows": "valueuom",
            CHECK: "warning",
        },
    ),
}
FURTHER = {  # data.more
    "hosp/omr": TableColumns(
        {"subject_id": I64, "chartdate": TIME, "result_name": TEXT, "result_value": TEXT}, ignored={KEY: "seq_num"}
    ),
    "hosp/microbiologyevents": TableColumns(
        {
            **KEYS,
            **dict.fromkeys(("chartdate", "charttime", "storedate", "storetime"), TIME),
            **dict.fromkeys(("spec_type_desc", "test_name", "org_name", "ab_name", "interpretation"), TEXT),
        },
        ignored={
            KEY: "microevent_id micro_specimen_id test_seq isolate_num",
            STAFF: "order_provider_id",
            REPEATED: "spec_itemid test_itemid org_itemid ab_itemid",
            NOT_YET: "quantity dilution_text dilution_comparison dilution_value comments",
        },
    ),
    "hosp/emar": TableColumns(
        {**KEYS, "charttime": TIME, "storetime": TIME, "medication": TEXT, "event_txt": TEXT},
        ignored={KEY: "emar_id emar_seq poe_id pharmacy_id", STAFF: "enter_provider_id", ORDER: "scheduletime"},
    ),
    "icu/inputevents": TableColumns(
        {
            **KEYS, **dict.fromkeys(("starttime", "endtime", "storetime"), TIME), "itemid": I64,
            "amount": F64, "amountuom": TEXT, "rate": F64, "rateuom": TEXT, "statusdescription": TEXT,
        },
        ignored={
            KEY: "stay_id orderid linkorderid",
            STAFF: "caregiver_id",
            ORDER: "ordercategoryname secondaryordercategoryname ordercomponenttypedescription "
            "ordercategorydescription totalamount totalamountuom isopenbag continueinnextdept originalamount "
            "originalrate",
            REPEATED: "patientweight",
        },
    ),
    "icu/outputevents": TableColumns(
        {**KEYS, "charttime": TIME, "storetime": TIME, "itemid": I64, "value": F64, "valueuom": TEXT},
        ignored={KEY: "stay_id", STAFF: "caregiver_id"},
    ),
    "icu/d_items": TableColumns(
        {"itemid": I64, "label": TEXT},
        ignored={
            REPEATED: "abbreviation linksto category unitname param_type",
            "ranges of charted items, which vitals.py does not use": "lownormalvalue highnormalvalue",
        },
    ),
    "hosp/transfers": TableColumns(
        {**KEYS, "eventtype": TEXT, "careunit": TEXT, "intime": TIME}, ignored={KEY: "transfer_id", REPEATED: "outtime"}
    ),
    "hosp/services": TableColumns(
        {**KEYS, "transfertime": TIME, "curr_service": TEXT}, ignored={REPEATED: "prev_service"}
    ),
    "ed/edstays": TableColumns(
        {**KEYS, "stay_id": I64, "intime": TIME, "outtime": TIME, "arrival_transport": TEXT, "disposition": TEXT},
        ignored={REPEATED: "gender race"},
    ),
    "ed/triage": TableColumns(
        {"stay_id": I64, **SIGNS, "acuity": TEXT, "chiefcomplaint": TEXT},
        ignored={REPEATED: "subject_id", SAID_BY_PATIENT: "pain"},
    ),
    "ed/vitalsign": TableColumns(
        {"stay_id": I64, "charttime": TIME, **SIGNS},
        ignored={REPEATED: "subject_id", SAID_BY_PATIENT: "pain", NOT_YET: "rhythm"},
    ),
    "ed/diagnosis": TableColumns(
        {"stay_id": I64, "icd_title": TEXT},
        ignored={REPEATED: "subject_id icd_code icd_version", NOT_YET: "seq_num"},
    ),
    "ed/medrecon": TableColumns(
        {"stay_id": I64, "charttime": TIME, "name": TEXT},
        ignored={REPEATED: "subject_id gsn ndc", NOT_YET: "etc_rn etccode etcdescription"},
    ),
    "ed/pyxis": TableColumns(
        {"stay_id": I64, "charttime": TIME, "name": TEXT}, ignored={KEY: "med_rn gsn_rn", REPEATED: "subject_id gsn"}
    ),
}
NOTES = {  # system.notes, and data.more=[notes]
    "note/discharge": TableColumns(
        {
            "note_id": TEXT, "subject_id": I64, "hadm_id": I64, "note_type": TEXT, "note_seq": I64, "charttime": TIME,
            "storetime": TIME, "text": TEXT,
        }
    ),
    "note/radiology": TableColumns(
        {**KEYS, "note_type": TEXT, "charttime": TIME, "storetime": TIME, "text": TEXT},
        ignored={KEY: "note_id note_seq"},
    ),
}  # fmt: skip

MIMIC4 = SourceColumns(
    "MIMIC-IV",
    {**HOSPITAL, **FURTHER, **NOTES},
    {
        NOT_YET: "icu/ingredientevents icu/procedureevents icu/datetimeevents",
        ORDER: "hosp/poe hosp/poe_detail hosp/pharmacy hosp/emar_detail hosp/drgcodes hosp/hcpcsevents hosp/d_hcpcs",
        STAFF: "hosp/provider icu/caregiver",
        "list of the demo's patients, who stand in hosp/patients": "demo_subject_id",
        "facts beside the text of a note, such as its author": "note/discharge_detail note/radiology_detail",
    },
)
