"""The five questions that every reader of a fleet's report has, answered at its top in plain sentences.

How many of what, is it getting worse, which repairs did not hold, which nodes to pull, what we do not know. Each answer
is built from the same studies as the tables below, so it cannot say more than they do; "not shown" and "not known" are
answers.
"""

from __future__ import annotations

from typing import Final

from lastgood.base.units import US_PER_DAY, format_duration
from lastgood.budget.family import Adjusted
from lastgood.budget.finding import format_p
from lastgood.budget.trend import Trend
from lastgood.contract.taxonomy import CauseStatus
from lastgood.evidence.rates_leads import recent_words, source_words
from lastgood.evidence.rates_study import BEGIN_TO_END, FleetStudies, GroupedStudies, GroupStudy
from lastgood.evidence.report import Headline, Words

NAMED_MAX: Final = 4
QUESTIONS: Final = (
    "How many of what?",
    "Is it getting worse?",
    "Which repairs did not hold?",
    "Which nodes to pull?",
    "What do we not know?",
)


def fleet_headline(studies: FleetStudies) -> Headline:
    """The report in one sentence: how many, on how many nodes, in how long, and the trend of the whole."""
    records, count = studies.records, studies.all.sample.count
    if not count:
        sentence = f"No failure is recorded in {span_words(studies)}."
    else:
        hit = len(records.incidents.host.counts())
        on = f" on {hit:,} node{'s' if hit > 1 else ''}" if hit else ""
        trend = studies.all.trend
        way = {1: "the rate is rising", -1: "the rate is falling", 0: "no trend shown overall"}
        said = "too few to test" if trend.headline.is_rejected is None else way[trend.direction]
        said = (
            "no trend can be told, because sources cover different times"
            if trend.is_untold
            else said
        )
        sentence = f"{_incidents(count)}{on} in {span_words(studies)}; {said}."
    return Headline(state="nothing", sentence=sentence)


def fleet_answers(
    studies: FleetStudies, *, quality_gaps: tuple[str, ...] = ()
) -> tuple[Words, ...]:
    """The five answers in their fixed order."""
    answers = (
        _how_many(studies),
        _getting_worse(studies),
        _repairs(studies),
        _nodes(studies),
        _not_known(studies, quality_gaps),
    )
    return tuple(
        Words(title=question, sentences=tuple(s for s in sentences if s))
        for question, sentences in zip(QUESTIONS, answers, strict=True)
    )


def _how_many(studies: FleetStudies) -> list[str]:
    count = studies.all.sample.count
    primary = studies.primary
    parts = ""
    if primary is not None and primary.rows:
        branches = [row for row in primary.rows if row.group.depth == 0]
        leaves = [row for row in primary.rows if row.group.depth == 1]
        parts = f": {_counted(branches)}"
        if leaves:
            leaves.sort(key=lambda row: -row.group.count)
            parts += f". The most frequent: {_counted(leaves, leaf=True)}"
    sentences = [f"{_incidents(count)}{parts}."]
    if studies.records.injected_count:
        left = _incidents(studies.records.injected_count)
        sentences.append(
            f"{left} more {_were(studies.records.injected_count)} caused on purpose, in no count here."
        )
    mean = studies.all.fleet_mean_time
    if mean is not None and mean.value is not None and mean.interval is not None:
        within = mean.interval
        sentences.append(
            f"One every {format_duration(mean.value)} ({format_duration(within.lo)} to {format_duration(within.hi)}, "
            f"95 %, {within.method})."
        )
    elif studies.records.exposure is None:
        sentences.append("Exposure unknown; give --devices or node events: counts only, no rate.")
    return sentences


def _counted(rows: list[GroupStudy], *, leaf: bool = False) -> str:
    shown = ", ".join(
        f"{row.group.count:,} {row.group.name.rpartition('/')[2] if leaf else row.group.name}"
        for row in rows[:NAMED_MAX]
    )
    rest = sum(row.group.count for row in rows[NAMED_MAX:])
    return f"{shown} and {rest:,} others" if rest and not leaf else shown


def _getting_worse(studies: FleetStudies) -> list[str]:
    whole = studies.all.trend.headline
    sentences = [f"As a whole: {_lowered(whole.sentence)}"]
    primary = studies.primary
    if primary is not None:
        sentences += _moving(primary)
        if primary.family.tests:
            groups = (
                "1 group was"
                if primary.family.tests == 1
                else f"{primary.family.tests} groups were"
            )
            sentences.append(
                f"{groups} tested; Holm's adjustment keeps chance out of all of them together."
            )
        suspects = [
            f"{row.group.name.rpartition('/')[2]} ({row.study.trend.laplace.statistic:+.2f})"
            for row in primary.rows
            if not row.study.trend.direction
            and row.study.trend.laplace.is_rejected
            and not row.study.trend.is_untold
            and row.group.depth
        ]
        if suspects:
            sentences.append(
                "Only Laplace's test, which takes bursts for trends, would also name (z): "
                f"{', '.join(suspects[:6])}."
            )
    if studies.all.changes is not None and studies.all.changes.changes:
        sentences.append(studies.all.changes.sentence)
    return sentences


def _moving(grouped: GroupedStudies) -> list[str]:
    """Groups that rise and fall, each with the test that decides and its p value among all groups.

    Laplace's z stands behind them as what it is: the number that others print, with no correction for bursts.
    """
    adjusted = {a.name: a for a in grouped.family.rows}
    found: dict[str, list[str]] = {}
    for row in grouped.rows:
        own, trend = adjusted.get(row.group.name), row.study.trend
        if own is None or not trend.direction:
            continue
        word = "Rising" if trend.direction > 0 else "Falling"
        found.setdefault(
            word if own.is_rejected else f"{word} by itself, but not after Holm", []
        ).append(f"{row.group.name.rpartition('/')[2]} ({_decided(trend, own)})")
    return [f"{word}: {'; '.join(found[word])}." for word in sorted(found, key=_MOVES.index)]


_MOVES: Final = (
    "Rising",
    "Falling",
    "Rising by itself, but not after Holm",
    "Falling by itself, but not after Holm",
)


def _decided(trend: Trend, own: Adjusted) -> str:
    """The deciding test first; Laplace's z beside it unless it is the one that decides."""
    decides, first = trend.headline, trend.laplace
    said = f"{decides.test} {decides.statistic_name} {decides.statistic:+.2f}, after Holm {format_p(own.p_holm)}"
    if decides.test == first.test:
        return said
    return f"{said}; uncorrected: Laplace z {first.statistic:+.2f}"


def _repairs(studies: FleetStudies) -> list[str]:
    found = studies.all.bounce_day
    if found is None and studies.all.is_too_few:
        return [too_few_words(studies)]
    if found is None:
        return ["Not known: no ends of faults with their nodes are recorded."]
    sentences = [found.finding.sentence]
    if studies.records.node_count is None:
        sentences.append(chance_caveat(studies))
    pairs = zip(found.nodes.tolist(), found.bounces_of_node.tolist(), strict=True)
    named = [
        f"{studies.node_names[node]} ({count})"
        for node, count in list(pairs)[:NAMED_MAX]
        if count > 1
    ]
    if named:
        sentences.append(f"Most often: {', '.join(named)}.")
    return sentences


def too_few_words(studies: FleetStudies) -> str:
    """Nothing is said about repairs and nodes from a handful of incidents."""
    return f"Too few to say: {_incidents(studies.all.sample.count)}, and ten are needed."


def chance_caveat(studies: FleetStudies) -> str:
    """What is wrong with the baseline of repairs while nobody says how many nodes there are."""
    hit = len(studies.records.incidents.host.counts())
    return f"Chance is computed over the {hit:,} nodes that failed, which is too high: give --nodes or node events."


def _nodes(studies: FleetStudies) -> list[str]:
    study = studies.all.lemons
    if study is None and studies.all.is_too_few:
        return [too_few_words(studies)]
    if study is None:
        return [
            "Not known: nodes cannot be compared without the number of nodes at risk; give --nodes or node events."
        ]
    sentences = [study.sentence]
    if study.flagged:
        names = ", ".join(studies.node_names[node.node] for node in study.flagged)
        sentences.append(f"Pull: {names}.")
    elif study.naive:
        sentences.append(
            f"A plain list would have named {study.naive}; {study.persistence.sentence[:1].lower()}{study.persistence.sentence[1:]}"
        )
    sentences.append(recent_words(studies))
    return sentences


def _not_known(studies: FleetStudies, quality_gaps: tuple[str, ...]) -> list[str]:
    records, whole = studies.records, studies.all
    sentences = []
    unknown = whole.sample.unknown_causes or 0
    if unknown:
        share = unknown / whole.sample.count
        sentences.append(
            f"The cause of {unknown:,} of {whole.sample.count:,} incidents ({share:.1%})."
        )
    if whole.sample.count:
        graded = ", ".join(f"{n:,} {status}" for status, n in cause_grades(studies).items())
        sentences.append(f"How sure the causes are, in incidents: {graded}.")
    if records.exposure is None:
        sentences.append("How many devices were at risk: without that there is no rate.")
    elif records.exposure.is_assumed:
        sentences.append(
            f"Whether {records.exposure.source} is right: exposure is as typed, so every rate is assumed."
        )
    known = {d.name for d in whole.durations} - {BEGIN_TO_END}
    missing = [n for n in ("detection", "diagnosis", "recovery") if n not in known]
    if missing:
        sentences.append(f"How long {_joined(missing)} took: not recorded.")
    still = int((records.incidents.is_open & records.incidents.is_interval).sum())
    if still:
        sentences.append(f"When {still:,} incident{'s' if still > 1 else ''} will end: still open.")
    if "inferred" in records.window_source:
        sentences.append(
            "What happened before the first record and after the last: the window is inferred."
        )
    sentences.append(source_words(studies))
    if records.unread_codes:
        total, kinds = sum(records.unread_codes.values()), len(records.unread_codes)
        verb = "means" if kinds == 1 else "mean"
        sentences.append(
            f"What {counted(kinds, 'code')} on {counted(total, 'event')} {verb}: no table lists {'it' if kinds == 1 else 'them'}."
        )
    return [*sentences, *quality_gaps]


def cause_grades(studies: FleetStudies) -> dict[str, int]:
    """How many causes are established, supported, a hypothesis or unknown; a cause without a grade is counted as such.

    A cause that is named is not yet one that is known: a table gives most codes as a hypothesis.
    """
    incidents = studies.records.incidents
    named = (incidents.cause.codes >= 0) & ~incidents.cause.is_one_of([CauseStatus.UNKNOWN])
    named &= ~incidents.cause_status.is_one_of([CauseStatus.UNKNOWN])
    found = {
        str(status): int((named & incidents.cause_status.is_one_of([status])).sum())
        for status in CauseStatus
        if status is not CauseStatus.UNKNOWN
    }
    found[str(CauseStatus.UNKNOWN)] = int((~named).sum())
    if ungraded := len(named) - sum(found.values()):
        found["named without a grade"] = ungraded
    return found


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _incidents(count: int) -> str:
    return counted(count, "incident")


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def span_words(studies: FleetStudies) -> str:
    """The observed time as a person says it; where the records have holes, the span that it lies in as well."""
    records = studies.records
    seen = _days_words(records.observed_us)
    if len(records.windows) == 1:
        return seen
    return f"{seen} observed (of {_days_words(records.end_us - records.begin_us)})"


def _days_words(length_us: int) -> str:
    days = length_us / US_PER_DAY
    return f"{days:,.0f} days" if days >= 2 else format_duration(length_us)


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _lowered(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"
