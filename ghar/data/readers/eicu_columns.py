"""Columns of eICU 2.0 (full and open demo), each with its owner; the readers are eicu.py and those beside it."""

from __future__ import annotations

from ghar.data.readers.columns import (
    DOSE,
    END,
    KEY,
    NOT_YET,
    OUTCOME,
    REPEATED,
    STAFF,
    SourceColumns,
    TableColumns,
)  # fmt: skip
from ghar.data.readers.events import F64, I64, TEXT

STAY = {"patientunitstayid": I64}
# Of the open demo's 100 returns it calls 87 readmissions, and so it calls 8 of 246 stays that begin at the minute at
# which another one ended, which are moves between units (eicu-code#149).
TIMES_DECIDE = "a return to an ICU is known by its times, which this column contradicts now and then"

EICU = SourceColumns(
    "eICU",
    {
        "patient": TableColumns(
            {
                **dict.fromkeys(("patientunitstayid", "patienthealthsystemstayid", "unitvisitnumber"), I64),
                **dict.fromkeys(("uniquepid", "gender", "age", "unittype", "hospitaladmittime24"), TEXT),
                **dict.fromkeys(("hospitaladmitoffset", "hospitaldischargeyear", "hospitaldischargeoffset"), I64),
                **dict.fromkeys(("hospitaldischargestatus", "unitdischargestatus"), TEXT),
                "unitdischargeoffset": I64,
                **dict.fromkeys(("admissionheight", "admissionweight", "dischargeweight"), F64),
            },
            records={"unitadmitsource": TEXT},
            groups=("ethnicity", "hospitalid"),
            ignored={
                KEY: "wardid",
                REPEATED: "hospitaldischargetime24 unitadmittime24 unitdischargetime24",
                OUTCOME: "hospitaldischargelocation unitdischargelocation",
                NOT_YET: "apacheadmissiondx hospitaladmitsource",
                TIMES_DECIDE: "unitstaytype",
            },
        ),
        "diagnosis": TableColumns(
            {**STAY, "diagnosisoffset": I64, "diagnosisstring": TEXT, "icd9code": TEXT},
            ignored={KEY: "diagnosisid", OUTCOME: "activeupondischarge", NOT_YET: "diagnosispriority"},
        ),
        "treatment": TableColumns(
            {**STAY, "treatmentoffset": I64, "treatmentstring": TEXT},
            ignored={KEY: "treatmentid", OUTCOME: "activeupondischarge"},
        ),
        "medication": TableColumns(
            {**STAY, "drugorderoffset": I64, "drugstartoffset": I64, "drugname": TEXT, "drugordercancelled": TEXT},
            drug_keys=("routeadmin",),
            ignored={
                KEY: "medicationid",
                END: "drugstopoffset",
                DOSE: "dosage frequency loadingdose prn drugivadmixture",
                NOT_YET: "drughiclseqno gtc",
            },
        ),
        "lab": TableColumns(
            {
                **STAY,
                "labresultoffset": I64,
                "labresultrevisedoffset": I64,
                "labname": TEXT,
                "labresult": F64,
                "labresulttext": TEXT,
            },
            {"labmeasurenamesystem": TEXT},
            ignored={KEY: "labid", REPEATED: "labmeasurenameinterface", NOT_YET: "labtypeid"},
        ),
        "vitalperiodic": TableColumns(
            {
                **STAY,
                "observationoffset": I64,
                **dict.fromkeys(("temperature", "sao2", "heartrate", "respiration"), F64),
                **dict.fromkeys(("systemicsystolic", "systemicdiastolic", "systemicmean"), F64),
            },
            ignored={KEY: "vitalperiodicid", NOT_YET: "cvp etco2 pasystolic padiastolic pamean st1 st2 st3 icp"},
        ),
        "vitalaperiodic": TableColumns(
            {
                **STAY,
                "observationoffset": I64,
                **dict.fromkeys(("noninvasivesystolic", "noninvasivediastolic", "noninvasivemean"), F64),
            },
            ignored={KEY: "vitalaperiodicid", NOT_YET: "paop cardiacoutput cardiacinput svr svri pvr pvri"},
        ),
        "nursecharting": TableColumns(
            {
                **STAY,
                **dict.fromkeys(("nursingchartoffset", "nursingchartentryoffset"), I64),
                **dict.fromkeys(("nursingchartcelltypevallabel", "nursingchartcelltypevalname"), TEXT),
                "nursingchartvalue": TEXT,
            },
            ignored={KEY: "nursingchartid", REPEATED: "nursingchartcelltypecat"},
        ),
        "infusiondrug": TableColumns(  # data.more
            {**STAY, "infusionoffset": I64, "drugname": TEXT, "drugrate": TEXT},
            ignored={
                KEY: "infusiondrugid",
                DOSE: "drugamount volumeoffluid",
                REPEATED: "infusionrate patientweight",
            },
        ),
        "respiratorycharting": TableColumns(
            {
                **STAY,
                "respchartoffset": I64,
                "respchartentryoffset": I64,
                "respchartvaluelabel": TEXT,
                "respchartvalue": TEXT,
            },
            ignored={KEY: "respchartid", REPEATED: "respcharttypecat"},
        ),
    },
    {
        NOT_YET: "admissiondx admissiondrug allergy customlab intakeoutput microlab note nurseassessment "
        "nursecare pasthistory physicalexam respiratorycare",
        "score that is computed from other tables, some of its parts after the first day": "apacheapsvar apachepredvar",
        OUTCOME: "apachepatientresult",
        "plan of care, which is no fact about the patient": "careplangeneral careplangoal careplaneol "
        "careplaninfectiousdisease",
        STAFF: "careplancareprovider",
        "facts of the hospital; its number is read for groups": "hospital",
    },
)
