"""The studies of a fleet as plain data: everything that a machine may want beside the flat rows of the groups."""

from __future__ import annotations

from typing import Any

import msgspec

from lastgood.budget.finding import Finding
from lastgood.budget.repair import Bounces
from lastgood.budget.survival import Durations
from lastgood.evidence.rates_answers import cause_grades, fleet_answers
from lastgood.evidence.rates_study import FleetStudies, exposure_words


def studies_plain(studies: FleetStudies) -> dict[str, Any]:
    """Window, exposure, layers, verdicts, tests, repairs, nodes, bursts, durations."""
    records, whole = studies.records, studies.all
    return {
        "question": msgspec.to_builtins(records.question),
        "window": {
            "begin_us": records.begin_us,
            "end_us": records.end_us,
            "observed_us": records.observed_us,
            "known": records.window_source,
            "source_change": records.source_change.sentence if records.source_change else None,
        },
        "layer": whole.sample.layer,
        "rule": records.rule,
        "exposure": None
        if records.exposure is None
        else {
            "value": records.exposure.total,
            "unit": records.exposure.unit,
            "source": records.exposure.source,
            "is_assumed": records.exposure.is_assumed,
        },
        "exposure_words": exposure_words(records.exposure),
        "counts": {
            "events": records.event_count,
            "incidents": whole.sample.count,
            "nodes_hit": len(records.incidents.host.counts()),
            "unknown_causes": whole.sample.unknown_causes,
            "cause_status": cause_grades(studies),
            "injected_left_out": records.injected_count,
            "planned_left_out": records.planned_count,
            "outside_window": records.outside_count,
            "unlisted_codes": records.unread_codes,
        },
        "answers": {w.title: list(w.sentences) for w in fleet_answers(studies)},
        "verdicts": list(whole.verdicts),
        "findings": [_finding(f) for f in whole.findings],
        "families": {g.grouping.by: g.family.sentence for g in studies.grouped},
        "changes": None
        if whole.changes is None
        else {"sentence": whole.changes.sentence, "count": whole.changes.changes},
        "repairs": [_bounces(b) for b in (whole.bounce_day, whole.bounce_week) if b is not None],
        "nodes": _nodes(studies),
        "bursts": _bursts(studies),
        "durations": [_durations(d) for d in whole.durations],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in Finding.__slots__}


def _bounces(found: Bounces) -> dict[str, Any]:
    names = ("horizon_h", "repairs", "bounces", "share", "lo", "hi", "level", "baseline")
    return {name: getattr(found, name) for name in names} | {"sentence": found.finding.sentence}


def _nodes(studies: FleetStudies) -> dict[str, Any] | None:
    study = studies.all.lemons
    if study is None:
        return None
    return {
        "at_risk": study.nodes,
        "flagged": [studies.node_names[node.node] for node in study.flagged],
        "plain_list": study.naive,
        "after_false_discovery_control": study.controlled,
        "persistence_r": study.persistence.statistic,
        "sentence": study.sentence,
        "recently_bad": [
            {
                "node": studies.node_names[lead.node],
                "since_us": studies.instant_us(lead.since_h),
                "count": lead.count,
                "total": lead.total,
                "times_fleet": lead.times_fleet,
                "p_adjusted": lead.p_adjusted,
            }
            for lead in study.recent
        ],
    }


def _bursts(studies: FleetStudies) -> dict[str, Any] | None:
    found = studies.all.bursts
    if found is None:
        return None
    return {
        "count": found.count,
        "starts": found.starts_in_bursts,
        "gap_h": found.gap_h,
        "sentence": found.finding.sentence,
        "shared_domains": [
            {
                "kind": c.kind,
                "domain": studies.domain_names[c.kind][c.domain],
                "members": c.members,
                "of": c.of,
                "p_adjusted": c.p_adjusted,
            }
            for c in found.candidates
        ],
    }


def _durations(found: Durations) -> dict[str, Any]:
    return {
        "name": found.name,
        "n": found.n,
        "open": found.open,
        "percentiles_h": {p.name: [p.value_h, p.lo_h, p.hi_h] for p in found.percentiles},
        "sentence": found.sentence,
    }
