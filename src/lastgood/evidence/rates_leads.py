"""What stands beside a verdict because the verdict alone would mislead: nodes that are bad of late, sources that change."""

from __future__ import annotations

from typing import Final

from lastgood.budget.finding import format_p
from lastgood.evidence.rates_study import FleetStudies
from lastgood.evidence.wording import instant_text

NAMED_MAX: Final = 3


def recent_words(studies: FleetStudies) -> str:
    """Nodes that look bad in the recent part only, with the date from which to ask again; empty when there are none."""
    study = studies.all.lemons
    if study is None or not study.recent:
        return ""
    shown = study.recent[:NAMED_MAX]
    told = []
    for lead in shown:
        since = instant_text(studies.instant_us(lead.since_h))[:10]
        faults = (
            f"all {lead.count}" if lead.count == lead.total else f"{lead.count} of {lead.total}"
        )
        told.append(
            f"{studies.node_names[lead.node]} had {faults} of its faults since {since}, {lead.times_fleet:.0f} times "
            f"the fleet ({format_p(lead.p_adjusted)} after false-discovery control)"
        )
    more = len(study.recent) - len(shown)
    others = f"; {more} more" if more else ""
    earliest = instant_text(studies.instant_us(min(lead.since_h for lead in shown)))[:10]
    return (
        f"{'Besides' if study.flagged else 'No node is shown to be bad over the whole window, but'} in its recent part: "
        f"{'; '.join(told)}{others}. A node that became bad cannot repeat its first half: ask again with --since {earliest}."
    )


def source_words(studies: FleetStudies) -> str:
    """That the sources change inside the window, and what to do; empty while they do not."""
    change = studies.records.source_change
    if change is None:
        return ""
    return (
        f"Whether a trend is one of the fleet: {change.sentence}. Look at stretches of one set with --since and --until, "
        "or at each source in a ledger of its own."
    )
