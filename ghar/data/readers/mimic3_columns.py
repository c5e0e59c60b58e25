"""Columns of MIMIC-III 1.4 (full and open demo), each with its owner; the reader is mimic3.py."""

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

INPUT = {"itemid": I64, "amount": F64, "amountuom": TEXT, "rate": F64, "rateuom": TEXT}

MIMIC3 = SourceColumns(
    "MIMIC-III",
    {
        "patients": TableColumns(
            {"subject_id": I64, "dod": TIME, "gender": TEXT, "dob": TIME},
            ignored={KEY: "row_id", REPEATED: "dod_hosp dod_ssn expire_flag"},
        ),
        "admissions": TableColumns(
            {**KEYS, "admittime": TIME, "dischtime": TIME, "deathtime": TIME, "hospital_expire_flag": I64},
            records={"admission_type": TEXT},
            groups=("ethnicity", "admission_type"),
            ignored={
                KEY: "row_id has_chartevents_data",
                INSURANCE: "insurance language religion marital_status",
                OUTCOME: "discharge_location",
                NOT_YET: "admission_location diagnosis edregtime edouttime",
            },
        ),
        "diagnoses_icd": TableColumns(
            {**KEYS, "seq_num": I64, "icd9_code": TEXT}, ignored={KEY: "row_id"}, never_empty=True
        ),
        "procedures_icd": TableColumns({**KEYS, "seq_num": I64, "icd9_code": TEXT}, ignored={KEY: "row_id"}),
        "prescriptions": TableColumns(
            {**KEYS, "startdate": TIME, "drug": TEXT},
            {"drug_type": TEXT},
            drug_keys=("gsn", "ndc", "route"),
            ignored={
                KEY: "row_id icustay_id",
                END: "enddate",
                REPEATED: "drug_name_poe drug_name_generic formulary_drug_cd",
                DOSE: "prod_strength dose_val_rx dose_unit_rx form_val_disp form_unit_disp",
            },
        ),
        "icustays": TableColumns(
            {**KEYS, "first_careunit": TEXT, "intime": TIME, "outtime": TIME},
            {"first_wardid": TEXT, "last_careunit": TEXT, "last_wardid": TEXT},
            ignored={KEY: "row_id icustay_id dbsource", REPEATED: "los"},
        ),
        "labevents": TableColumns(
            {**KEYS, "itemid": I64, "charttime": TIME, "value": TEXT, "valuenum": F64},
            {"comments": TEXT, "valueuom": TEXT},
            records={"flag": TEXT},
            ignored={KEY: "row_id"},
        ),
        "chartevents": TableColumns(
            {
                **KEYS,
                "itemid": I64,
                "charttime": TIME,
                "storetime": TIME,
                "value": TEXT,
                "valuenum": F64,
                "error": I64,
            },
            ignored={
                KEY: "row_id icustay_id",
                STAFF: "cgid",
                "an item is always charted in one unit, which vitals.py knows": "valueuom",
                CHECK: "warning resultstatus stopped",
            },
        ),
        "d_icd_diagnoses": TableColumns(
            {"icd9_code": TEXT, "long_title": TEXT}, ignored={KEY: "row_id", REPEATED: "short_title"}
        ),
        "d_icd_procedures": TableColumns(
            {"icd9_code": TEXT, "long_title": TEXT}, ignored={KEY: "row_id", REPEATED: "short_title"}
        ),
        "d_labitems": TableColumns(
            {"itemid": I64, "label": TEXT},
            {"fluid": TEXT},
            ignored={KEY: "row_id", NOT_YET: "category loinc_code"},
        ),
        "inputevents_cv": TableColumns(  # data.more
            {**KEYS, "charttime": TIME, "storetime": TIME, **INPUT},
            ignored={
                KEY: "row_id icustay_id orderid linkorderid",
                STAFF: "cgid",
                END: "stopped",
                ORDER: "newbottle originalamount originalamountuom originalroute originalrate originalrateuom "
                "originalsite",
            },
        ),
        "inputevents_mv": TableColumns(
            {**KEYS, **dict.fromkeys(("starttime", "endtime", "storetime"), TIME), **INPUT, "statusdescription": TEXT},
            ignored={
                KEY: "row_id icustay_id orderid linkorderid",
                STAFF: "cgid comments_editedby comments_canceledby",
                ORDER: "ordercategoryname secondaryordercategoryname ordercomponenttypedescription "
                "ordercategorydescription totalamount totalamountuom isopenbag continueinnextdept cancelreason "
                "comments_date originalamount originalrate",
                REPEATED: "patientweight",
            },
        ),
        "outputevents": TableColumns(
            {
                **KEYS,
                "charttime": TIME,
                "storetime": TIME,
                "itemid": I64,
                "value": F64,
                "valueuom": TEXT,
                "iserror": I64,
            },
            ignored={KEY: "row_id icustay_id", STAFF: "cgid", END: "stopped", ORDER: "newbottle"},
        ),
        "transfers": TableColumns(
            {**KEYS, "eventtype": TEXT, "curr_careunit": TEXT, "curr_wardid": I64, "intime": TIME},
            ignored={KEY: "row_id icustay_id dbsource", REPEATED: "prev_careunit prev_wardid outtime los"},
        ),
        "services": TableColumns(
            {**KEYS, "transfertime": TIME, "curr_service": TEXT}, ignored={KEY: "row_id", REPEATED: "prev_service"}
        ),
        "d_items": TableColumns(
            {"itemid": I64, "label": TEXT},
            ignored={KEY: "row_id conceptid", REPEATED: "abbreviation dbsource linksto category unitname param_type"},
        ),
        "noteevents": TableColumns(  # system.notes, and data.more=[notes]
            {
                **KEYS,
                **dict.fromkeys(("chartdate", "charttime", "storetime"), TIME),
                **dict.fromkeys(("category", "description"), TEXT),
                "iserror": I64,
                "text": TEXT,
            },
            ignored={KEY: "row_id", STAFF: "cgid"},
        ),
    },
    {
        NOT_YET: "procedureevents_mv datetimeevents microbiologyevents",
        ORDER: "callout cptevents d_cpt drgcodes",
        STAFF: "caregivers",
    },
)
