"""Incidents whose starts follow each other count as one: `incident_merge.merge_starts` on a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lastgood.ledger.grouping import SITE, Rule
from lastgood.ledger.table import INCIDENT_DOMAINS, NO_TIME, Coded, IncidentTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def merge_table(incidents: IncidentTable, rule: Rule) -> IncidentTable:
    """The merged incidents, by begin; each speaks with the words of its first member and ends with its last."""
    import numpy as np

    if not len(incidents):
        return incidents
    place = _places(incidents, rule)
    order = np.argsort(place, kind="stable")
    place, begin_us = place[order], incidents.begin_us[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (place[1:] != place[:-1]) | (begin_us[1:] - begin_us[:-1] > (rule.merge_us or 0))
    is_new |= place < 0
    starts = np.flatnonzero(is_new)
    is_open = np.logical_or.reduceat(incidents.is_open[order], starts)
    end_us = np.maximum.reduceat(incidents.end_us[order], starts)
    merged = replace(
        incidents.take(order[starts]),
        end_us=np.where(is_open, NO_TIME, end_us),
        correlated=np.logical_or.reduceat(incidents.correlated[order], starts),
        event_count=np.add.reduceat(incidents.event_count[order], starts),
        **_domains(incidents, order, is_new),
    )
    return merged.take(np.argsort(order[starts], kind="stable"))


def _domains(
    incidents: IncidentTable, order: NDArray[np.int64], is_new: NDArray[np.bool_]
) -> dict[str, Any]:
    """The first domain of each kind that some member names."""
    import numpy as np

    number = np.cumsum(is_new) - 1
    found: dict[str, Any] = {}
    for kind in INCIDENT_DOMAINS:
        column: Coded = getattr(incidents, kind)
        codes = column.codes[order]
        known = np.flatnonzero(codes >= 0)[::-1]
        first = np.full(number[-1] + 1, -1, np.int32)
        first[number[known]] = codes[known]
        found[kind] = Coded(first, column.names)
    return found


def _places(incidents: IncidentTable, rule: Rule) -> NDArray[np.int64]:
    """Where an incident may meet others; -1 for one that stays alone."""
    import numpy as np

    if rule.merge_kind == SITE:
        place = np.zeros(len(incidents), np.int64)
    else:
        place = getattr(incidents, rule.merge_kind).codes.astype(np.int64)
    return np.where(incidents.planned, -1, place)
