"""Clinical texts to be summarised as GraphWalker's cases: other texts are chosen and shown with their summaries.

python launch/evaluate.py system=graphwalker task=summary data=summary data.root=PATH/aci-bench (or one csv file of
MIMIC-IV-Ext-BHC) env.history_tokens=2000

The paper does so for the open questions of CMB-Clin (Appendix M). Texts stand where patients stand elsewhere, and
embeddings of the texts alone where EHR embeddings stand: no summary is embedded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ghar.config import Config
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.graphwalker.corpus import ExamplesCorpus, SelectExamples
from ghar.envs.graphwalker.encoders.embeddings import embed_texts
from ghar.envs.graphwalker.episode import prompt_text
from ghar.envs.graphwalker.pool import EncodedCases, cut_to, dense, everyone
from ghar.envs.graphwalker.selectors.prompt import Prompt, summary_head
from ghar.envs.graphwalker.selectors.protocol import Name, Patient
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.visits import WITHOUT_SERIES, text_vectors
from ghar.envs.records import Records
from ghar.envs.system import Example, Reader, SftExamples

REPLY = {"full": 640, "compact": 64}  # tokens of a summary by env.prompts, as in the other systems' prompt files
PREDICT = "predict"  # the role whose budget in env.reply_tokens replaces them
REASONS = {  # variants of rules about labels: what texts lack for them
    "scripted_zero_shot": "answers with the usual label, and texts have none",
    "scripted_alike": "weighs outcomes by items of visits, and texts have neither",
    "scripted_ehr_emb": "reads an EHR encoder, which texts have not, so that it would choose as scripted_semantic_emb",
}


def texts_material(records: Records, settings: Settings) -> EncodedCases[TextSample[SummarisedText]]:
    """Read, split and encode the texts."""
    config, task, splits = records.config, records.texts.task, records.texts.splits
    model, samples = dense(config.retriever.kind), tuple(everyone(splits))
    vectors = embed_texts([sample.text.source for sample in samples], model)
    embeddings = text_vectors(tuple(sample.sample_id for sample in samples), vectors)
    return EncodedCases(
        settings, config.seed, task, summary_head(task), splits, embeddings, embeddings, model,
        partial(_piece, config.env.history_tokens), _render_text, _reading, selectors=WITHOUT_SERIES, generated=False,
        credentialed=records.provenance().credentialed, reply=reply_tokens(config),
    )  # fmt: skip


def reply_tokens(config: Config) -> int:
    """Tokens that a summary may have: env.reply_tokens of the role predict, else `REPLY`."""
    return config.env.budgets.get(PREDICT, REPLY[config.env.prompts])


def _piece(budget: int, prompt: Prompt, reader: Reader, sample: TextSample[SummarisedText]) -> Patient:
    return prompt.text(sample.text, sample.subject_id, budget, reader.count)


def _render_text(sample: TextSample[SummarisedText]) -> str:
    return f"{sample.text.source}\n{sample.text.summary}"


def _reading(sample: TextSample[SummarisedText]) -> SummarisedText:
    return sample.text


def reference_examples(
    material: EncodedCases[TextSample[SummarisedText]],
    selector: Name,
    in_flight: int,
    about: Mapping[str, str],
    epochs: int | None,
    reader: Reader,
) -> SftExamples:
    """The prompt about each training text, with the examples of a selector that asks no model, and its own reference,
    uncut. Validation texts choose the weights."""
    pool = cut_to(material, reader)
    corpus = ExamplesCorpus(pool, None, in_flight)
    references = {sample.sample_id: sample.text.summary for sample in everyone(material.splits)}

    def examples(split: str) -> tuple[Example, ...]:
        patients, k = pool.by_split[split], material.settings.k
        requests = [SelectExamples(p.text, None, k, sample_id=p.sample_id, selector=selector) for p in patients]
        pairs = zip(patients, corpus.retrieve(requests), strict=True)
        return tuple(Example(prompt_text(material.head, e, p.text), references[p.sample_id]) for p, e in pairs)

    return SftExamples(examples("train"), examples("valid"), about, epochs)


def text_refusals() -> dict[str, str]:
    """Map each variant that needs labels, visits or an EHR encoder to the sentence that refuses it for texts."""
    choice = "choose scripted_semantic_emb, scripted_random_choice or scripted_rare_items"
    return {name: f"Variant {name} of system=graphwalker {reason}: {choice}." for name, reason in REASONS.items()}
