"""Wrong options written by an engine (Figure 8, EXPRAG), checked, with those made by rule where the check fails.

The engine sees what is right, what wrong options may be made of, and the background. Of diagnoses and medications it
picks and shortens names from the tables; of instructions it rewrites half of the right set three times. Checked:
    it is JSON with a list of different options, none of which may mean the same as a right one;
    a name is one of those given or a part of it, and at most ten words long; at least one is left;
    of instructions there are three sets of as many pieces as the right one, any two of the four with as many in common.
An answer that cannot be read is asked for again; a question whose answer fails keeps its options by rule, and counts
say how many do, and why.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.data.sections import sentences
from ghar.envs.exprag.discharge_items import essence, same, styled
from ghar.envs.exprag.dischargeqa import LONGEST, SETS, DischargeQuestion
from ghar.envs.exprag.options import LETTERS
from ghar.llm.cached_llm import CachedQuestion as Asked
from ghar.llm.cached_llm import UnreadableAnswer, ask
from ghar.llm.engine import Engine
from ghar.llm.engines import asking, engine_key
from ghar.llm.prompts import load_prompts

RULES = {
    False: "Pick those that a doctor could take for right. Keep each name as it is given, or shorten it to at most ten "
    "words.",
    True: "Write three sets of as many sentences as the right one has. Keep the sentences that all sets given here "
    "have in common, and put different ones in the place of the others.",
}
OBJECT = re.compile(r"\{.*\}", re.DOTALL)


def options_by_engine(
    config: Config, address: str, questions: Sequence[DischargeQuestion], credentialed: bool
) -> tuple[list[DischargeQuestion], dict[str, int]]:
    """The questions with options of the model at `address`, and how many have them, or why not.

    Answers are kept under data.cache, so that none is paid for twice. BadInput, before the first byte, where the text
    is of credentialed patients and privacy.allow does not name the host.
    """
    store = Path(config.data.cache) / "answers" / f"exprag-{config.task.name}-{engine_key(config, address)}.jsonl"
    with asking(config, address, credentialed) as engine:
        return rewritten(engine, store, questions, config.task.split_seed)


def rewritten(
    engine: Engine, store: Path, questions: Sequence[DischargeQuestion], seed: int
) -> tuple[list[DischargeQuestion], dict[str, int]]:
    """The same with an engine that is there already. store: of its answers; seed: of the order of options."""
    template = load_prompts("ghar.envs.exprag", "full", ("options",))["options"]
    asked = [
        Asked(
            question.sample_id,
            template.render(
                question=question.asked,
                right="\n".join(_chosen(question, True)),
                wrong="\n".join(_chosen(question, False)),
                background=question.background,
                rule=RULES[question.single],
            ),
            template.max_tokens,
        )
        for question in questions
    ]
    answers = ask(engine, asked, store, read_wrong, seed=seed, title="Options by an engine")
    counts: Counter[str] = Counter()
    made = []
    for question in questions:
        wrong = answers.values.get(question.sample_id)
        fault = answers.failed.get(question.sample_id) if wrong is None else checked(question, wrong)
        counts["options by engine" if fault is None else f"options by rule, engine: {fault}"] += 1
        made.append(question if fault is not None or wrong is None else _with(question, wrong, seed))
    return made, dict(counts)


def read_wrong(text: str) -> tuple[str, ...]:
    """The wrong options of an answer. Unreadable where it holds no list of texts."""
    match = OBJECT.search(text)
    try:
        answer: Any = json.loads(match[0]) if match else None
    except ValueError:
        answer = None
    wrong = answer.get("wrong") if isinstance(answer, dict) else None
    if not isinstance(wrong, list) or not wrong or not all(isinstance(one, str) and one.strip() for one in wrong):
        raise UnreadableAnswer("no_list")
    return tuple(" ".join(one.split()) for one in wrong)


def checked(question: DischargeQuestion, wrong: Sequence[str]) -> str | None:
    """What is wrong with wrong options, in a word or two; None where nothing is."""
    right = _chosen(question, True)
    if question.single:
        return _fault_of_sets([right[0], *wrong])
    if len(right) + len(wrong) > len(LETTERS):
        return "too many"
    if any(same(one, other) for one in wrong for other in right) or any(same(*two) for two in combinations(wrong, 2)):
        return "the same twice"
    given = [essence(name) for name in _chosen(question, False)]
    if any(len(one.split()) > LONGEST or not any(essence(one) <= name for name in given) for one in wrong):
        return "not in the tables"
    return None


def _fault_of_sets(texts: Sequence[str]) -> str | None:
    sets = [sentences(text) for text in texts]
    if len(sets) != SETS or len({len(one) for one in sets}) > 1:
        return "other sets"
    shared = {sum(any(same(a, b) for b in other) for a in one) for one, other in combinations(sets, 2)}
    return None if len(shared) == 1 and shared != {len(sets[0])} else "unequal sets"


def _chosen(question: DischargeQuestion, right: bool) -> list[str]:
    return [option for i, option in enumerate(question.options) if bool(question.answer >> i & 1) is right]


def _with(question: DischargeQuestion, wrong: Sequence[str], seed: int) -> DischargeQuestion:
    right = _chosen(question, True)
    options = [*right, *(wrong if question.single else map(styled, wrong))]
    random.Random(f"{seed} {question.sample_id} engine").shuffle(options)
    answer = sum(1 << i for i, option in enumerate(options) if option in right)
    return replace(question, options=tuple(options), answer=answer)
