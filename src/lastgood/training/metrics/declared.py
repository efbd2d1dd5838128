"""Every metric of a run, declared once: the page, docs/metrics.md, the dashboard and the alert rules are held to it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One metric as it is declared: its name without the endings that Prometheus adds to a histogram."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    text: str
    labels: tuple[str, ...] = ()


METRICS = (
    Metric("lastgood_build_info", "gauge", "1", "Always 1; the versions are in the labels.", ("version", "taxonomy", "python", "torch")),
    Metric("lastgood_run_info", "gauge", "1", "Always 1; which run this is.", ("run", "mode")),
    Metric("lastgood_run_seconds", "gauge", "s", "Wall time since this start of the run."),
    Metric("lastgood_productive_seconds", "gauge", "s", "Time in accepted steps that were not lost since; falls when steps are lost."),
    Metric("lastgood_ettr_ratio", "gauge", "1", "ETTR so far: productive time over wall time since this start."),
    Metric("lastgood_accepted_steps", "gauge", "steps", "Accepted steps that were not lost since; falls when steps are lost."),
    Metric("lastgood_steps_total", "counter", "steps", "Steps that all ranks completed, with those that were done again."),
    Metric("lastgood_lost_steps_total", "counter", "steps", "Accepted steps that a recovery went back behind."),
    Metric("lastgood_step_seconds", "histogram", "s", "Time from one accepted step to the next."),
    Metric("lastgood_step_last_seconds", "gauge", "s", "Time of the last accepted step."),
    Metric("lastgood_incidents_total", "counter", "incidents", "Closed incidents.", ("class", "outcome", "injected")),
    Metric("lastgood_incidents_open", "gauge", "incidents", "Incidents that are being recovered from."),
    Metric("lastgood_detection_seconds", "histogram", "s", "From the onset of an incident to its detection.", ("class",)),
    Metric("lastgood_recovery_seconds", "histogram", "s", "From the detection of an incident until new steps were allowed, verification included.", ("class",)),
    Metric("lastgood_last_good_step", "gauge", "step number", "Newest step whose signals were assessed as ok on every rank: where a recovery would go back to."),
    Metric("lastgood_snapshot_age_seconds", "gauge", "s", "Time since the newest accepted step, whose snapshot a recovery would go back to."),
    Metric("lastgood_checkpoint_last_step", "gauge", "step number", "Step of the newest durable checkpoint of this start."),
    Metric("lastgood_checkpoint_age_seconds", "gauge", "s", "Time since the newest durable checkpoint was committed."),
    Metric("lastgood_checkpoint_failures_total", "counter", "checkpoints", "Checkpoints that could not be written."),
    Metric("lastgood_ranks", "gauge", "ranks", "Ranks of the generation."),
    Metric("lastgood_spares_parked", "gauge", "processes", "Spares that are ready to take a rank."),
    Metric("lastgood_spares_wanted", "gauge", "processes", "Spares that the run was started with."),
    Metric("lastgood_generation", "gauge", "generation number", "Generation of the process group; each recovery makes a new one."),
    Metric("lastgood_loop_phase", "gauge", "0 or 1", "1 for the phase that the recovery loop is in, 0 for the others.", ("phase",)),
    Metric("lastgood_ledger_backlog", "gauge", "submissions", "Submissions that wait to be durable in the ledger."),
    Metric("lastgood_ledger_events_total", "counter", "events", "Events that this run gave to its ledger."),
    Metric("lastgood_supervisor_turn_age_seconds", "gauge", "s", "Time since the supervisor's last turn; it takes one every 10 ms once the ranks train."),
    Metric("lastgood_metrics_errors_total", "counter", "mistakes", "Mistakes in the making of these metrics; the run goes on."),
)  # fmt: skip
"""Every metric that a page holds, in its order. Times are in seconds, as Prometheus wants them."""
