import json

import pytest

from ghar.envs.kare.graph.answers import read_triples
from ghar.envs.kare.graph.scripted import scripted_extractor
from ghar.llm.prompts import load_prompts
from tests.kg.graphs import ALS, DIABETES, METFORMIN, RILUZOLE, WEAKNESS, Edge, graph_of

COURSE = (31, "effect/phenotype", "grade 7 course")
EDGES: list[Edge] = [
    (RILUZOLE, "indication", "indication", ALS),
    (METFORMIN, "indication", "indication", DIABETES),
    (ALS, "disease_phenotype_positive", "phenotype present", WEAKNESS),
    (ALS, "disease_phenotype_positive", "phenotype present", COURSE),
    (DIABETES, "disease_phenotype_positive", "phenotype present", COURSE),
]
PROMPTS = load_prompts("ghar.envs.kare", "triples", ("abstract", "concepts"))
NAMES = "amyotrophic lateral sclerosis; riluzole"


@pytest.fixture(scope="module")
def extract(tmp_path_factory: pytest.TempPathFactory):
    return scripted_extractor(graph_of(tmp_path_factory.mktemp("kg"), EDGES))


def of_text(extract, text: str, concepts: str = NAMES, most: int = 10) -> list[list[str]]:
    return json.loads(extract(PROMPTS["abstract"].render(text=text, concepts=concepts, most=most)))


def test_sentences_of_one_fact_are_read(extract) -> None:
    text = (
        "On ALS. 30 patients were seen. Amyotrophic lateral sclerosis takes a grade 2 course. Lead is linked to gout."
    )
    assert of_text(extract, text) == [["amyotrophic lateral sclerosis", "takes", "grade 2 course"]]


def test_another_disease_of_a_longer_name_is_another_disease(extract) -> None:
    assert of_text(extract, "Amyotrophic lateral sclerosis of late onset takes a grade 2 course.") == []


def test_no_more_than_asked_for(extract) -> None:
    text = "Riluzole is given for gout. Riluzole is given for scurvy. Riluzole is given for cough."
    assert len(of_text(extract, text)) == 3 and len(of_text(extract, text, most=2)) == 2


def test_what_the_world_knows_of_the_listed_concepts(extract) -> None:
    told = read_triples(extract(PROMPTS["concepts"].render(concepts=NAMES))).triples
    als = "amyotrophic lateral sclerosis"
    assert set(told) == {
        (als, "indication", "riluzole"),
        (als, "phenotype present", "muscle weakness"),
        (als, "phenotype present", f"grade 7 course of {als}"),
    }


def test_a_course_behind_a_drugs_protein_is_told_with_it(tmp_path) -> None:
    """A patient's drug alone: nobody asks about its target, which he does not name."""
    gene, plain = (50, "gene/protein", "TARG"), (51, "gene/protein", "PLAIN")
    extract = scripted_extractor(graph_of(tmp_path, [
        (RILUZOLE, "drug_protein", "target", gene), (COURSE, "phenotype_protein", "associated with", gene),
        (RILUZOLE, "drug_protein", "carrier", plain),
    ]))  # fmt: skip
    told = set(read_triples(extract(PROMPTS["concepts"].render(concepts="riluzole"))).triples)
    assert told == {("riluzole", "target", "targ"), ("targ", "associated with", "grade 7 course of targ")}


def test_other_questions_are_refused(extract) -> None:
    with pytest.raises(ValueError, match="something else"):
        extract("What is the weather like?")


def test_the_example_in_the_prompt_is_an_answer_we_can_read() -> None:
    example = next(line for line in PROMPTS["abstract"].text.splitlines() if line.startswith("[["))
    assert len(read_triples(example).triples) == 2
