"""Whether a run's numbers can be trusted, and whether its training worked: verdicts in words, for the top of its page.

Thresholds are rules of thumb, named below; each verdict says the number it rests on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from ghar.metrics import curves
from ghar.metrics.answers import UNREADABLE as NO_RIVAL
from ghar.metrics.answers import HealthVerdict, State, answer_verdicts, at_chance, patients_verdict, unreadable_share
from ghar.metrics.model_size import replies_in_words
from ghar.metrics.style import ReportStyle, metric_title, samples_of, subjects_of

Row = Mapping[str, Any]
LATELY = 5  # updates that a verdict on training is about
COLLAPSED = 0.1  # share of its first entropy below which a policy has no choices left
STRAYED = 0.1, 1.0  # KL to the reference a token, in nats: doubtful, bad
MISMATCH = 0.01, 0.1  # |trainer's - engine's log-probability|, in nats: doubtful, bad
ECE = 0.05, 0.15  # expected calibration error: doubtful, bad
LEAKS = 0.05, 0.5  # share of samples that show what was recorded with the outcome: doubtful, bad
UNREADABLE = 0.01, 0.05  # share of turns whose reply could not be read: doubtful, bad
THAN = {
    "good": "better than", "bad": "worse than", "doubtful": "no different, as far as these {} show, from",
}  # fmt: skip


def verdicts(summary: Mapping[str, Any], rows: Sequence[Row], main: str | None) -> list[HealthVerdict]:
    """All that a summary and metrics.jsonl can tell; "unknown" where a run measured nothing."""
    numbers = (summary.get("policies") or {}).get(main) or {}
    learned = [row for row in rows if row["phase"] == "rl" and row["step"] > 0]
    step = get_weights_step(summary, main)
    training = [_critic(learned), _entropy(learned), _kl(learned, step), _mismatch(learned)] if learned else []
    return [
        *answer_verdicts(summary, main), *_base(summary), *_checkpoint(learned, step), *training, _calibration(numbers),
        _readable(numbers), _leakage(summary),
        patients_verdict(numbers, bool(summary.get("generated")), subjects_of(samples_of(summary))),
    ]  # fmt: skip


def as_json(verdicts: Sequence[HealthVerdict]) -> list[dict[str, str]]:
    """The verdicts as summary.json holds them."""
    return [{"about": v.about, "state": v.state, "sentence": v.sentence} for v in verdicts]


def get_weights_step(summary: Mapping[str, Any], main: str | None) -> int | None:
    """The update after which the main variant's weights were saved; None where no update of RL made them."""
    trained = (summary.get("answered_by") or {}).get(main) == "trained"
    return summary.get("weights_step") if trained else None


def outcome(summary: Mapping[str, Any], about: ReportStyle, main: str | None) -> list[tuple[str, State, str]]:
    """For every variant that the main one is compared with: its title, whether the main one is better, in words.

    No comparison is green that cannot be trusted: few patients, a rival without readable answers, or collapsed answers.
    """
    comparisons = []
    for pair, values in (summary.get("differences") or {}).items():
        first, _, second = pair.partition(" - ")
        interval = values.get(about.metric)
        if first != main or interval is None or None in interval:
            continue
        if second == about.before and get_weights_step(summary, main) == 0:
            same = f"the same weights as {about.title(second)}: the best checkpoint is that of update 0, before RL"
            comparisons.append((second, "doubtful", same))
            continue
        value, low, high = interval
        state: State = "good" if low > 0 else "bad" if high < 0 else "doubtful"
        numbers = f"{value:+.3f} [{low:+.3f}, {high:+.3f}] in {metric_title(about.metric)}, paired"
        doubts = _doubts(summary, about, first, second)
        if doubts and state == "good":
            state = "doubtful"
        than = (THAN[state] if not doubts else _than(low, high)).format(about.subjects)
        words = f"{than} {about.title(second)}: {numbers}"
        comparisons.append((second, state, words + (f"; but {', and '.join(doubts)}" if doubts else "")))
    first_ones = [about.before] if about.before else []
    return sorted(comparisons, key=lambda one: one[0] not in first_ones)


def _than(low: float, high: float) -> str:
    return THAN["good" if low > 0 else "bad" if high < 0 else "doubtful"]


def _doubts(summary: Mapping[str, Any], about: ReportStyle, main: str, rival: str) -> list[str]:
    """Why a comparison with a rival does not count, in words."""
    policies = summary.get("policies") or {}
    own, doubts = policies.get(main) or {}, []
    if (share := unreadable_share(policies.get(rival) or {})) >= NO_RIVAL:
        doubts.append(f"{share:.0%} of the answers of {about.title(rival)} could not be read")
    if own and patients_verdict(own, False).state == "bad":
        doubts.append(f"there are too few {about.subjects} to compare")
    if any(v.about == "answers" and v.state == "bad" for v in answer_verdicts(summary, main)):
        doubts.append(f"the answers of {about.title(main)} have collapsed")
    return doubts


def _graded(value: float, limits: tuple[float, float]) -> State:
    """Good up to the first limit, bad from the second."""
    return "good" if value <= limits[0] else "doubtful" if value <= limits[1] else "bad"


def _lately(rows: Sequence[Row], key: str) -> float | None:
    values = [row[key] for row in rows if row.get(key) is not None][-LATELY:]
    return mean(values) if values else None


def _critic(rows: Sequence[Row]) -> HealthVerdict:
    explained = _lately(rows, "train/explained_variance")
    if explained is None:
        return HealthVerdict("critic", "unknown", "This run was trained without a critic.")
    worthless = any(row.get("train/critic/worthless") for row in rows[-LATELY:])
    state: State = "bad" if worthless or explained <= 0 else "doubtful" if explained < 0.1 else "good"
    sentence = curves.critic(rows) or f"It explains {explained:.0%} of the variance of the returns."
    return HealthVerdict("critic", state, sentence)


def _entropy(rows: Sequence[Row]) -> HealthVerdict:
    values = [row["train/entropy"] for row in rows if row.get("train/entropy") is not None]
    if len(values) < 2 or values[0] <= 0:
        return HealthVerdict("entropy", "unknown", "Entropy was not measured over several updates.")
    share = mean(values[-LATELY:]) / values[0]
    state: State = "bad" if share < COLLAPSED else "doubtful" if share < 2 * COLLAPSED else "good"
    lately = mean(values[-LATELY:])
    return HealthVerdict("entropy", state, f"{lately:.3f} nats a token lately, {share:.0%} of the first update's.")


def _base(summary: Mapping[str, Any]) -> list[HealthVerdict]:
    """Whether a base model that was made for this run had learned to read the prompts that decide."""
    replies = summary.get("base_replies") or {}
    if not replies:
        return []
    shares = replies_in_words(replies)
    if any(_above_usual(of) for of in replies.values()):
        return [HealthVerdict("base model", "good", f"Of the decisions that it practised right: {shares}.")]
    sentence = f"It decides no better than the most common reply: {shares}. A larger trainer.base.steps may help."
    return [HealthVerdict("base model", "doubtful", sentence)]


def _above_usual(of: Mapping[str, float]) -> bool:
    """Whether a share of right replies lies two standard errors of the difference above the most common reply's."""
    right, usual = of["right"], of["usual"]
    return right - usual > 2 * ((right * (1 - right) + usual * (1 - usual)) / of["replies"]) ** 0.5


def _checkpoint(rows: Sequence[Row], step: int | None) -> list[HealthVerdict]:
    """Which weights the main variant's numbers are of."""
    if step is None:
        return []
    last = max((row["step"] for row in rows), default=step)
    if step == 0:
        sentence = f"The numbers are of the policy after SFT: none of {last} updates was better on validation patients."
        return [HealthVerdict("checkpoint", "doubtful", sentence)]
    return [HealthVerdict("checkpoint", "good", f"The numbers are of the weights after update {step} of {last}.")]


def _kl(rows: Sequence[Row], step: int | None) -> HealthVerdict:
    """KL of the weights whose numbers are shown."""
    if step == 0:
        return HealthVerdict("KL", "good", "0 nats: the weights shown are those of the policy after SFT.")
    if step is not None:
        rows = [row for row in rows if row["step"] <= step]
    value = _lately(rows, "train/kl/reference")
    if value is None:
        value = _lately(rows, "train/approx_kl")
        if value is None:
            return HealthVerdict("KL", "unknown", "No divergence from the reference policy was measured.")
        return HealthVerdict(
            "KL", _graded(abs(value), STRAYED), f"{value:.4f} nats a token from the policy that sampled."
        )
    return HealthVerdict("KL", _graded(value, STRAYED), f"{value:.4f} nats a token from the policy after SFT.")


def _mismatch(rows: Sequence[Row]) -> HealthVerdict:
    value = _lately(rows, "train/mismatch/mean")
    if value is None:
        return HealthVerdict("mismatch", "unknown", "Sampler and trainer were not compared.")
    return HealthVerdict(
        "mismatch", _graded(value, MISMATCH), f"Sampler and trainer differ by {value:.1e} nats a token."
    )


def _calibration(numbers: Mapping[str, Any]) -> HealthVerdict:
    after, before = numbers.get("ece_calibrated"), numbers.get("ece")
    interval = after or before
    if not interval or interval[0] is None:
        return HealthVerdict("calibration", "unknown", "No label probabilities were measured.")
    which = "at the temperature fitted on validation patients" if after else "as the model gives them"
    sentence = f"Expected calibration error {interval[0]:.3f} {which}."
    state = _graded(interval[0], ECE)
    if state == "good" and at_chance(numbers):
        return HealthVerdict("calibration", "doubtful", f"{sentence} So is a constant: AUROC is at chance.")
    return HealthVerdict("calibration", state, sentence)


def _readable(numbers: Mapping[str, Any]) -> HealthVerdict:
    interval, failures = numbers.get("format_errors"), numbers.get("failures") or 0
    if not interval or interval[0] is None:
        return HealthVerdict("replies", "unknown", "No replies were asked for.")
    failed = f" {failures} episodes failed and count as wrong." if failures else ""
    state = "doubtful" if failures and interval[0] <= UNREADABLE[0] else _graded(interval[0], UNREADABLE)
    completed = (numbers.get("completed_decisions") or [0.0])[0]
    chosen = f" {completed:.1%} left their decision open, which was then chosen among its options." if completed else ""
    return HealthVerdict("replies", state, f"{interval[0]:.1%} of the replies could not be read.{chosen}{failed}")


def _leakage(summary: Mapping[str, Any]) -> HealthVerdict:
    audit = summary.get("audit") or {}
    numbers = (audit.get("modes") or {}).get(audit.get("used"))
    if not numbers:
        return HealthVerdict("leakage", "unknown", "What was known when was not audited for this task.")
    score = numbers["leak_score"]
    sentence = (
        f"{score:.0%} of the samples show what was recorded only with the outcome, or are predicted no earlier than it "
        f"(data.leakage={audit['used']})."
    )
    return HealthVerdict("leakage", _graded(score, LEAKS), sentence)
