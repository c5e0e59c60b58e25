from pathlib import Path

import polars as pl
import pytest

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import link_codes
from ghar.kg.names import disease_key, drug_candidates
from ghar.kg.primekg import read_primekg
from tests.kg.graphs import frame

HEART_FAILURE = (1, "disease", "heart failure")
HYPERTENSION = (2, "disease", "essential hypertension")
PULMONARY = (3, "disease", "pulmonary hypertension")
SMALLPOX = (4, "disease", "smallpox")
HEADACHE = (5, "effect/phenotype", "Headache")
METOPROLOL = (6, "drug", "Metoprolol")
SALINE = (7, "drug", "Sodium chloride")
GROUPED = (8, "disease", "cardiomyopathy")

REFERENCES = """ontology_id,ontology,mondo_id
I50.9,ICD10,0000001
428,ICD9,0000001
I10,ICD10,0000002
I10,ICD10,0000003
B99.8,ICD10,0000004
B99.8,ICD10,0000002
Z99,ICD10,0099999
E849,ICD9,0000004
I42.0,ICD10,0000071
B00-B09,ICD10,0000004
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    nodes = [HEART_FAILURE, HYPERTENSION, PULMONARY, SMALLPOX, HEADACHE, METOPROLOL, GROUPED]
    table = frame([(node, "indication", "indication", SALINE) for node in nodes])
    group = {"x_id": "71_72", "x_source": "MONDO_grouped"}
    table = table.with_columns(
        [
            pl.when(pl.col(f"{end}_name") == "cardiomyopathy").then(pl.lit(value)).otherwise(name).alias(name)
            for end in "xy"
            for name, value in ((f"{end}{column[1:]}", value) for column, value in group.items())
        ]
    )
    path = tmp_path_factory.mktemp("kg") / "kg.csv"
    table.write_csv(path)
    return read_primekg(path)


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("references") / "mondo.csv"
    path.write_text(REFERENCES)
    return path


@pytest.mark.parametrize(
    ("code", "description", "name", "rule"),
    [
        ("ICD10CM/I509", "Heart failure, unspecified", "heart failure", "reference_exact"),
        ("ICD10CM/I50.9", "Heart failure, unspecified", "heart failure", "reference_exact"),
        ("ICD9CM/42823", "Acute on chronic systolic heart failure", "heart failure", "reference_parent"),
        ("ICD10CM/I10", "Essential (primary) hypertension", "essential hypertension", "reference_exact"),
        ("ICD10CM/I420", "Dilated cardiomyopathy", "cardiomyopathy", "reference_exact"),
        ("ICD10CM/I420", "STEMI", None, None),  # a group is called by one of its diseases
        ("ICD10CM/B998", "Other infectious disease", None, None),  # two candidates, neither alike
        ("ICD10CM/Z99", "Dependence on machines", None, None),  # refers to a disease outside the graph
        ("ICD9CM/E8490", "Home accidents", None, None),  # the parent's only disease shares no word
        ("ICD10CM/B05", "Measles", None, None),  # only a range covers it
        ("ICD9CM/7840", "Headache", "Headache", "name"),
        ("ICD9CM/9999", "Hypertension, essential", "essential hypertension", "name"),
        ("ICD10PCS/I509", "Insertion of a thing", None, None),  # a procedure's code is not a diagnosis
        ("ICD10CM/X1", None, None, None),
        ("DRUG/metoprolol", "metoprolol", "Metoprolol", "drug_exact"),
        ("DRUG/metoprolol tartrate 25mg tab", "", "Metoprolol", "drug_stripped"),
        ("DRUG/0.9% sodium chloride", "", "Sodium chloride", "drug_stripped"),
        ("DRUG/headache", "", None, None),
    ],
)
def test_rules(
    graph: KnowledgeGraph, references: Path, code: str, description: str | None, name: str | None, rule: str | None
):
    schema = {"code": pl.String, "description": pl.String}
    links = link_codes(pl.DataFrame([(code, description)], schema=schema, orient="row"), graph, references)
    assert links.rules.get(code) == rule
    assert (graph.names[links.nodes[code]] if code in links.nodes else None) == name
    assert sum(links.counts.values()) == 1 and links.counts[rule or "unlinked"] == 1


def test_without_references_names_carry_all(graph: KnowledgeGraph):
    codes = pl.DataFrame({"code": ["ICD10CM/I509", "ICD10CM/I10"], "description": ["Heart failure", "Hypertension"]})
    links = link_codes(codes, graph, None)
    assert links.counts["name"] == 1 and links.counts["unlinked"] == 1


def test_bad_tables(graph: KnowledgeGraph, tmp_path: Path):
    codes = pl.DataFrame({"code": ["ICD10CM/I10"], "description": ["x"]})
    with pytest.raises(BadInput, match="lacks the column description"):
        link_codes(codes.drop("description"), graph, None)
    with pytest.raises(BadInput, match="no such file"):
        link_codes(codes, graph, tmp_path / "nowhere.csv")
    (tmp_path / "refs.csv").write_text("ontology_id,ontology\nI10,ICD10\n")
    with pytest.raises(BadInput, match=r"refs.csv lacks the column mondo_id"):
        link_codes(codes, graph, tmp_path / "refs.csv")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hypertension, essential", "essential hypertension (disease)"),
        ("Crohn's disease", "Crohn disease"),
        ("Ménière disease", "Meniere's disease, unspecified"),
    ],
)
def test_names_that_say_the_same(one: str, other: str):
    assert disease_key(one) == disease_key(other) != ""


def test_without_is_not_with():
    assert disease_key("pneumonia with fever") != disease_key("pneumonia without fever")


@pytest.mark.parametrize(
    ("written", "reading"),
    [
        ("Metoprolol Tartrate", "metoprolol"),
        ("Lidocaine 5% Patch", "lidocaine"),
        ("Vancomycin Oral Liquid", "vancomycin"),
        ("oxycodone sr (oxycontin)", "oxycodone"),
        ("Aspirin EC 81 mg", "acetylsalicylic acid"),
        ("Potassium Chloride 40 mEq / 1000 mL", "potassium chloride"),
        ("Amlodipine 5 mg/Benazepril 10 mg Cap", "amlodipine benazepril"),
    ],
)
def test_readings_of_a_drug(written: str, reading: str):
    assert reading in drug_candidates(written)


@pytest.mark.slow
def test_the_real_codes(shared_data: Path):
    graph = read_primekg(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz")
    hosp = shared_data / "mimic-iv-demo-2.2/hosp"
    keys = ["icd_code", "icd_version"]
    used = pl.read_csv(hosp / "diagnoses_icd.csv.gz", infer_schema=False).select(keys).unique()
    titles = pl.read_csv(hosp / "d_icd_diagnoses.csv.gz", infer_schema=False)
    diagnoses = used.join(titles, on=keys, how="left").select(
        code=pl.format("ICD{}CM/{}", "icd_version", "icd_code"), description="long_title"
    )
    drug = pl.col("drug").str.to_lowercase().str.strip_chars()
    drugs = pl.read_csv(hosp / "prescriptions.csv.gz", infer_schema=False).select(drug).drop_nulls().unique()
    drugs = drugs.select(code="DRUG/" + pl.col("drug"), description="drug")
    links = link_codes(
        pl.concat([diagnoses, drugs]), graph, shared_data / "kg/primekg-subset/txgnn_mondo_references.csv.gz"
    )
    assert links.counts == PINNED
    assert graph.names[links.nodes["ICD10CM/I5022"]] == "congestive heart failure"
    assert graph.names[links.nodes["DRUG/heparin sodium"]] == "Heparin"


PINNED = {
    "reference_exact": 240,
    "reference_parent": 151,
    "name": 49,
    "drug_exact": 230,
    "drug_stripped": 153,  # "dorzolamide 2%/timolol 0.5%" links by its first ingredient, no longer as dorzolamide alone
    "name_part": 94,
    "drug_ingredient": 95,
    "unlinked": 1060,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "description", "name"),
    [
        ("DRUG/473 ml  -  chlorhexidine gluconate 0.12 % mt soln", "", "Chlorhexidine"),
        ("DRUG/lasix", "", "Furosemide"),
        ("DRUG/cefazolin (ancef) in dextrose ivpb 2 g", "", "Cefazolin"),
        ("DRUG/500 ml bag : dextrose 5 % with heparin", "", "Heparin"),
        ("EICU_TREATMENT/cardiovascular|shock|vasopressors|norepinephrine > 0.1 mcg", "", "Norepinephrine"),
        ("EICU_TREATMENT/infectious diseases|cultures|cultures|blood", "cultures, blood", None),
        # what a class of drugs acts on is none of them
        ("EICU_TREATMENT/gastrointestinal|medications|antiemetic|serotonin antagonist", "", None),
        ("EICU_TREATMENT/cardiovascular|vascular disorders|anticoagulants|thrombin inhibitor", "", None),
        ("EICU_TREATMENT/cardiovascular|vascular disorders|thrombin inhibitor|argatroban", "", "Argatroban"),
        ("EICU_DIAGNOSIS/x|y|status epilepticus|s/p PTCA", "status epilepticus, s/p PTCA", "status epilepticus"),
        ("ICD9CM/5789", "GI bleeding", None),
        ("ICD10CM/I4891", "Unspecified atrial fibrillation", "atrial fibrillation (disease)"),
        ("ICD10CM/K750", "intra-abdominal abscess, hepatic", None),
        ("ICD10CM/Z8673", "Personal history of transient ischemic attack (TIA)", None),
        # forms of which the description says nothing
        ("ICD10CM/E119", "Type 2 diabetes mellitus without complications", "type 2 diabetes mellitus"),
        ("ICD10CM/K859", "pancreatitis, acute", "pancreatitis"),
        ("ICD10CM/C73", "Malignant neoplasm of thyroid gland", "thyroid cancer"),
        ("ICD9CM/34690", "Migraine, unspecified, without mention of intractable migraine", "migraine disorder"),
        ("ICD10CM/G403", "seizures, generalized tonic -clonic", "Seizure"),  # "folinic acid-responsive seizures"
        ("ICD9CM/7291", "Myalgia and myositis, unspecified", "fibromyalgia"),  # "inclusion body myositis"
        # what the description says that it is not
        ("ICD9CM/3222", "meningitis, chronic, non-infectious, vasculitis", "vasculitis"),
        ("ICD10CM/K7581", "Nonalcoholic steatohepatitis (NASH)", "non-alcoholic steatohepatitis"),
        # "malignant" says how severe a hypertension is, and of an effusion that a cancer is its cause
        ("ICD9CM/0", "Hypertensive chronic kidney disease, malignant, with chronic kidney disease stage I", None),
        ("ICD9CM/0", "seizures, neuroleptic syndrome, malignant", "Seizure"),
        ("ICD9CM/1972", "pleural effusion, malignant", "carcinoma"),
        # residual codes
        ("ICD9CM/5778", "Other specified diseases of pancreas", None),  # "exocrine pancreatic insufficiency"
        ("ICD9CM/2662", "Other B-complex deficiencies", None),  # "vitamin B12 deficiency"
        ("ICD10CM/E806", "Other disorders of bilirubin metabolism", None),  # an inborn one of porphyrin
        ("ICD9CM/4588", "Other specified hypotension", "hypotensive disorder"),
        # the last part of a path
        ("ICD9CM/35989", "myopathy, rhabdomyolysis", "rhabdomyolysis (disease)"),  # "myofibrillar myopathy"
        ("ICD9CM/29410", "dementia, Alzheimer's disease", "Alzheimer disease"),
        ("ICD10CM/M3130", "vasculitis, Wegener's granulomatosis", "granulomatosis with polyangiitis"),
    ],
)  # fmt: skip
def test_what_charts_write(shared_data: Path, code: str, description: str, name: str | None):
    graph = read_primekg(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz")
    codes = pl.DataFrame({"code": [code], "description": [description]})
    links = link_codes(codes, graph, shared_data / "kg/primekg-subset/txgnn_mondo_references.csv.gz")
    assert (graph.names[links.nodes[code]] if code in links.nodes else None) == name
