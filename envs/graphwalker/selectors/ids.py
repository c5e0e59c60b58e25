"""IDS. Needs: generation. Examples like the model's own reasoning, asked for again with them (Qin et al. 2024).

The model reasons about the patient without examples; the k examples whose text is nearest to that reasoning (cosine of
text embeddings) are shown, it reasons again, and so on for three rounds. The original lets the answers of all rounds
vote; here, as everywhere in this folder, the last examples are put into the one prompt of all selectors. An empty
reply counts as the patient's own text. Where the prompt of a reasoning is longer than the context allows, its last
examples are left out.
"""

from __future__ import annotations

from functools import partial

from ghar.envs.graphwalker.selectors.protocol import (
    ExamplePool,
    Generate,
    Selection,
    SelectionQuery,
    Shots,
    Walk,
    cosines,
    nothing_shared,
)

ROUNDS = 3  # the original's number
TOKENS = 128  # of a reasoning; ours

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    shots: Shots = ()
    for _ in range(ROUNDS):
        asked = pool.longest(partial(reasoning_prompt, pool, query), shots, TOKENS)
        [reasoning] = yield Generate((asked,), TOKENS)
        words = pool.embed([reasoning.strip() or query.patient.text])[0]
        shots = pool.best(cosines(pool.words, words), query.allowed, pool.selector.k)
    return Selection(shots, scored=ROUNDS)


def reasoning_prompt(pool: ExamplePool, query: SelectionQuery, shots: Shots) -> str:
    case_head, answer_head = ("Another text", "Its summary") if pool.texts else ("An earlier patient", "It turned out")
    chosen = [pool.patients[row] for row in shots]
    examples = "".join(f"{case_head}:\n{one.text}\n{answer_head}: {one.answer}\n\n" for one in chosen)
    if pool.texts:
        return (
            f"{examples}The text now:\n{query.patient.text}\n\nTask: {pool.question}\n"
            "Which of its findings belong in the summary, and why? Think step by step."
        )
    facts = "findings" if query.patient.series is None else "measurements"
    return (
        f"{examples}The patient now:\n{query.patient.text}\n\nQuestion: {pool.question}\n"
        f"Which of these {facts} speak for which answer, and why? Think step by step."
    )
