"""What experience could tell at best, where it is known which stays follow which habits (generated summaries alone).

Eq. 7 brings some reports whose habits are the patient's own and some whose are not. A reader who is told which they are
chooses what most of the former list. "experience": of the reports that were ranked; "gold reports": of as many, all of
which follow the patient's habits. "experience only": what one comes to who is not told, to
whom every ranked report counts alike. A question about which no such report says anything is answered by chance, or an
option of many by whether most are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ghar.data.sections import split_sections
from ghar.envs.exprag.dischargeqa import DischargeQuestion
from ghar.envs.exprag.report_corpus import RankReports, ReportCorpus
from ghar.envs.exprag.rule import HALF, listed_share
from ghar.episode import Evidence, Passage
from ghar.progress import track
from ghar.retrieval.reports import allowed_stays


def experience_ceilings(
    corpus: ReportCorpus,
    habits: Mapping[int, int],
    top_k: int,
    train: Sequence[DischargeQuestion],
    questions: Sequence[DischargeQuestion],
) -> dict[str, float]:
    """Accuracy of these readers on `questions`: {"experience only": ..., "experience": ..., "gold reports": ...}.

    habits: stay -> phenotype.
    """
    usual = _share_right(train) > HALF
    accuracies: dict[str, list[float]] = {"experience only": [], "experience": [], "gold reports": []}
    for question in track(questions, "What experience could tell"):
        own = habits[question.visit_id]
        ranked = corpus.retrieve([RankReports(question.text, None, top_k, question.visit_id)])[0]
        every = [passage.ident for passage in ranked.passages]
        accuracies["experience only"].append(readable(question, whole_reports(corpus, every), usual))
        stays = [stay for stay in every if habits[stay] == own]
        accuracies["experience"].append(readable(question, whole_reports(corpus, stays), usual))
        allowed = np.flatnonzero(allowed_stays(corpus.index, corpus.queries[question.visit_id]))
        gold = [stay for stay in corpus.index.visit_id[allowed].tolist() if habits[stay] == own][:top_k]
        accuracies["gold reports"].append(readable(question, whole_reports(corpus, gold), usual))
    return {name: float(np.mean(values)) for name, values in accuracies.items()}


def readable(question: DischargeQuestion, evidence: Evidence, usual: bool) -> float:
    """How probably the reader is right. usual: what an option is that no report names."""
    shares = [listed_share(option, question, evidence) for option in question.options]
    if question.single:
        best = max(share or 0.0 for share in shares)
        ties = [i for i, share in enumerate(shares) if (share or 0.0) == best]
        return 1 / len(ties) if any(question.answer >> i & 1 for i in ties) else 0.0
    chosen = sum(1 << i for i, share in enumerate(shares) if (usual if share is None else share > HALF))
    return float(chosen == question.answer)


def whole_reports(corpus: ReportCorpus, stays: Sequence[int]) -> Evidence:
    """All sections of the stays' reports."""
    passages = [
        Passage(f"{section.heading}: {section.text}", "excerpt", stay, 1.0, 0)
        for stay in stays
        for section in split_sections(corpus.notes.text(stay))
    ]
    return Evidence(tuple(passages))


def _share_right(questions: Sequence[DischargeQuestion]) -> float:
    return sum(q.answer.bit_count() for q in questions) / max(1, sum(len(q.options) for q in questions))
