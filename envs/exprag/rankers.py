"""The correlation study of rankers (section 5.2 and Appendix A.7, EXPRAG): which ranker orders other patients as a
judge does who reads both. The judge is any policy, so any engine. Agreement is Pearson's and Spearman's correlation
(Table 4), one pair of numbers a sample, then their mean, with intervals over patients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.data.cohort import Visit
from ghar.envs.exprag.dischargeqa import DischargeQuestion
from ghar.envs.exprag.options import parse_scores
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.report_texts import text_scores
from ghar.envs.rollout import derive_seed
from ghar.episode import Act
from ghar.llm.policy import Policy
from ghar.llm.prompts import load_prompts
from ghar.metrics.bootstrap import Patients, mean_interval
from ghar.progress import track
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.reports import allowed_stays, similarities, weights

CANDIDATES, ANYBODY = 100, 20  # a patient; of which from all, the others share a code (Appendix A.7)
LIMIT = 40  # codes of each kind in the judge's prompt
Numbers = Sequence[float] | np.ndarray  # of one sample's candidates


@dataclass(frozen=True, eq=False)
class RankerStudy:
    """Whom to ask about, and what the rankers know. encoder: of the text-based ranker, None for TF-IDF."""

    config: Config
    questions: Sequence[DischargeQuestion]
    corpus: ReportCorpus
    encoder: Encoder | None
    visits: Mapping[int, Visit]
    names: Mapping[str, str]

    def __call__(self, judge: Policy) -> dict[str, Any]:
        """{"rankers": `judge_rankers`}, as summary.json has it."""
        return {"rankers": judge_rankers(self, judge)}


def judge_rankers(study: RankerStudy, judge: Policy) -> dict[str, Any]:
    """{"rankers": see `agreement`, "pairs": judged, "unreadable": replies without three numbers}.

    A pair that the judge says nothing readable of is left out.
    """
    rankers = _rankers(study)
    scores: dict[str, list[np.ndarray]] = {name: [] for name in rankers}
    judged, unreadable, pairs = [], 0, 0
    for question in track(study.questions, "Judge similar patients"):
        rows = sample_candidates(study, question)
        given = _ask(study, judge, question, rows)
        readable = [i for i, value in enumerate(given) if value is not None]
        unreadable += len(rows) - len(readable)
        pairs += len(rows)
        judged.append(np.array([given[i] for i in readable], dtype=float))
        for name, ranker in rankers.items():
            scores[name].append(ranker(question)[rows[readable]])
    patients = [question.subject_id for question in study.questions]
    draw = {"seed": study.config.seed, "resamples": study.config.eval.bootstrap}
    return {"rankers": agreement(scores, judged, patients=patients, **draw), "pairs": pairs, "unreadable": unreadable}


def _rankers(study: RankerStudy) -> dict[str, Callable[[DischargeQuestion], np.ndarray]]:
    """Scores of all stays of the index for a question's stay: by codes with equal weights, and by its own report (the
    paper compares two summaries here, where a text ranker that plays reads no report of the stay that is asked about).
    """
    index, texts = study.corpus.index, text_scores(study.corpus.index, study.corpus.notes, study.encoder)
    weight = weights("uniform", "diagnoses")
    return {
        "ehr": lambda question: similarities(index, study.corpus.queries[question.visit_id], weight),
        "text": lambda question: texts(study.corpus.notes.text(question.visit_id)),
    }


def sample_candidates(study: RankerStudy, question: DischargeQuestion) -> np.ndarray:
    """Rows of up to 100 stays of other patients: 20 of all, 80 of those that share a code with this one."""
    index, query = study.corpus.index, study.corpus.queries[question.visit_id]
    rng = np.random.default_rng(derive_seed(study.config.seed, "judged", question.visit_id))
    allowed = allowed_stays(index, query)
    everybody = np.flatnonzero(allowed)
    some = rng.permutation(everybody)[:ANYBODY]
    alike = np.flatnonzero(allowed & (similarities(index, query, (1.0, 1.0, 1.0)) > 0))
    rest = np.setdiff1d(alike, some)
    return np.sort(np.concatenate([some, rng.permutation(rest)[: CANDIDATES - ANYBODY]]))


def _ask(study: RankerStudy, judge: Policy, question: DischargeQuestion, rows: np.ndarray) -> list[float | None]:
    template = load_prompts("ghar.envs.exprag", study.config.env.prompts, ("judge",))["judge"]
    first = _in_words(study, question.visit_id)
    stays = [int(study.corpus.index.visit_id[row]) for row in rows]
    acts = [
        Act(
            "top", "judge", template.render(first=first, second=_in_words(study, stay)), (), template.max_tokens, 0,
            parse_scores, {"first": question.visit_id, "second": stay}, credentialed=question.credentialed,
        )
        for stay in stays
    ]  # fmt: skip
    seeds = [derive_seed(study.config.seed, "judge", question.visit_id, stay) for stay in stays]
    return [act.parse(reply.text).value for act, reply in zip(acts, judge.answer(acts, seeds), strict=True)]


def _in_words(study: RankerStudy, stay: int) -> str:
    """A stay as the judge reads it."""
    visit, names = study.visits[stay], study.names
    kinds = (("diagnoses", visit.diagnoses), ("procedures", visit.procedures), ("medications", visit.medications))
    return "\n".join(f"{kind}: {'; '.join(names.get(c, c) for c in codes[:LIMIT]) or 'none'}" for kind, codes in kinds)


def correlations(scores: Numbers, judged: Numbers) -> tuple[float, float] | None:
    """Pearson's r and Spearman's rho over one sample's candidates; None where either side says the same of all."""
    from scipy.stats import pearsonr, spearmanr

    one, two = np.asarray(scores, dtype=float), np.asarray(judged, dtype=float)
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    pearson: Any = pearsonr(one, two)
    spearman: Any = spearmanr(one, two)
    return float(pearson.statistic), float(spearman.statistic)


def agreement(
    scores: Mapping[str, Sequence[Numbers]],
    judged: Sequence[Numbers],
    *,
    patients: Patients,
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    """{ranker: {"pearson": [mean, low, high], "spearman": ..., "n" and "patients": that have a correlation}}.

    scores: of each ranker, one row of candidates a sample, as in `judged`; patients: the patient of each sample.
    Rankers without any are left out.
    """
    who = range(len(judged)) if patients is None else patients
    result = {}
    for ranker, rows in scores.items():
        pairs = [(pair, at) for pair, at in zip(map(correlations, rows, judged), who, strict=True) if pair is not None]
        if pairs:
            ids = [at for _, at in pairs]
            one, two = (
                mean_interval([pair[side] for pair, _ in pairs], patients=ids, seed=seed, resamples=resamples)
                for side in (0, 1)
            )
            count = {"n": len(pairs), "patients": len(set(ids))}
            result[ranker] = {"pearson": one.as_list(), "spearman": two.as_list(), **count}
    return result
