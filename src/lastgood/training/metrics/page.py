"""`lastgood run --metrics`: the numbers of a live run as Prometheus text.

The supervisor leaves a `Reading` behind whenever something happened; a scrape turns the newest one into text
on a thread of its own. No lock is shared with the supervisor, and whatever goes wrong in here is counted, not raised.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from lastgood import __version__
from lastgood.base.clock import Clock, SystemClock
from lastgood.contract.taxonomy import TAXONOMY_ID
from lastgood.recovery.policy import LoopPhase
from lastgood.training.metrics.declared import METRICS
from lastgood.training.metrics.server import Address, MetricsServer, Page
from lastgood.training.metrics.telemetry import Buckets, Reading, Telemetry, Turn

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from lastgood.ledger.event import Event
    from lastgood.training.supervising.supervisor import Supervisor

PAGE_AGE_US_MAX = 200_000
"""A page is served again until it is that old, so that many scrapers cost no more than one."""
PHASES = ("starting", *(phase.value for phase in LoopPhase))


class _Sample(NamedTuple):
    labels: tuple[str, ...]
    value: float | Buckets


class RunMetrics:
    """Serves the metrics of one run. Give it to `run_training`, and close it afterwards."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        """Listens from here on.

        Raises:
            BadInput: The address cannot be used.
        """
        # Loaded before the run: a first scrape in the middle of a recovery would pay for it.
        import prometheus_client.exposition  # noqa: F401

        self._clock = clock or SystemClock()
        self._telemetry = Telemetry()
        self._reading = Reading()
        self._is_changed = False
        self._turn_us: int | None = None
        self._error_count = 0
        self._backlog: Callable[[], int] = lambda: 0
        self._page: tuple[int, Page] | None = None
        self._page_lock = threading.Lock()  # among scrapers; the supervisor never takes it
        self._server = MetricsServer(address, self.page)
        self.url = self._server.url

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    # --- the supervisor's side: never waits, never raises -----------------------------------------

    def watch_ledger(self, backlog: Callable[[], int]) -> None:
        """Ask `backlog` at every scrape how much waits for the disk."""
        self._backlog = backlog

    def hear(self, event: Event) -> None:
        """Take one event of the run."""
        with _Counted(self):
            self._telemetry.hear(event, now_us=self._clock.monotonic_us())
            self._reading = self._telemetry.reading()

    def steps_begin(self, first: int) -> None:
        """Step `first` comes next, whatever came before."""
        with _Counted(self):
            self._telemetry.steps_begin(first)
            self._is_changed = True

    def step_done(self, step: int, *, took_us: int) -> None:
        """Take one more accepted step."""
        with _Counted(self):
            self._telemetry.step_done(step, took_us=took_us, now_us=self._clock.monotonic_us())
            self._is_changed = True

    def take_turn(self, supervisor: Supervisor) -> None:
        """Take what is known at the end of a turn."""
        with _Counted(self):
            self._turn_us = self._clock.monotonic_us()
            turn = turn_of(supervisor)
            if self._is_changed or turn != self._telemetry.turn:
                self._telemetry.turn = turn
                self._reading = self._telemetry.reading()
                self._is_changed = False

    def count_error(self) -> None:
        """Something went wrong in here: say so on the page instead of in the run."""
        self._error_count += 1

    # --- the scraper's side -----------------------------------------------------------------------

    def page(self) -> Page:
        """Return the newest page, made again when it is older than 0.2 s."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        with self._page_lock:
            now_us = self._clock.monotonic_us()
            if self._page is None or now_us - self._page[0] >= PAGE_AGE_US_MAX:
                registry = CollectorRegistry(auto_describe=False)
                registry.register(self)
                self._page = now_us, Page(CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
            return self._page[1]

    def describe(self) -> Iterable[Family]:
        """Nothing: without this a registry would collect once more to learn the names."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield every declared metric with the samples that there are."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        now_us, reading = self._clock.monotonic_us(), self._reading
        found = {
            **_time_samples(reading, now_us),
            **_incident_samples(reading),
            **_state_samples(reading, now_us),
            **self._own_samples(now_us),
        }
        for metric in METRICS:
            samples = found.get(metric.name, [])
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
                for labels, value in samples:
                    assert isinstance(value, Buckets)
                    histogram.add_metric(labels, list(_cumulative(value)), value.sum_us / 1e6)
                yield histogram
                continue
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.text, labels=metric.labels)
            for labels, value in samples:
                assert not isinstance(value, Buckets)
                family.add_metric(labels, value)
            yield family

    def _own_samples(self, now_us: int) -> dict[str, list[_Sample]]:
        return {
            "lastgood_ledger_backlog": _one(self._backlog()),
            "lastgood_supervisor_turn_age_seconds": _age(self._turn_us, now_us),
            "lastgood_metrics_errors_total": _one(self._error_count),
        }


class _Counted:
    """Keeps what goes wrong inside a `with` block from the caller, and counts it."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: RunMetrics) -> None:
        self._metrics = metrics

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        self._metrics.count_error()
        return True


def turn_of(supervisor: Supervisor) -> Turn:
    """Return what the supervisor knows now; before the ranks train there is no loop to ask."""
    options, state = supervisor.options, supervisor.state
    spares = {"spares_parked": len(supervisor.spares), "spares_wanted": options.spares}
    if state is None:
        return Turn(ranks=options.ranks, **spares)
    return Turn(
        phase=state.phase.value,
        generation=state.generation,
        ranks=state.world,
        last_good_step=supervisor.page.assessed_step,
        **spares,
    )


# --- from a reading to samples ----------------------------------------------------------------------


def _time_samples(reading: Reading, now_us: int) -> dict[str, list[_Sample]]:
    wall_us = None if reading.started_us is None else now_us - reading.started_us
    ettr = reading.productive_us / wall_us if wall_us else None
    return {
        "lastgood_run_seconds": _age(reading.started_us, now_us),
        "lastgood_productive_seconds": _one(reading.productive_us / 1e6),
        "lastgood_ettr_ratio": _one(ettr),
        "lastgood_accepted_steps": _one(reading.accepted_steps),
        "lastgood_steps_total": _one(reading.step_count),
        "lastgood_lost_steps_total": _one(reading.lost_step_count),
        "lastgood_step_seconds": [_Sample((), reading.steps)],
        "lastgood_step_last_seconds": _one(
            None if reading.step_last_us is None else reading.step_last_us / 1e6
        ),
    }


def _incident_samples(reading: Reading) -> dict[str, list[_Sample]]:
    return {
        "lastgood_incidents_total": [
            _Sample(tuple(key), count) for key, count in sorted(reading.incidents.items())
        ],
        "lastgood_incidents_open": _one(reading.open_count),
        "lastgood_detection_seconds": _by_class(reading.detection),
        "lastgood_recovery_seconds": _by_class(reading.recovery),
    }


def _by_class(histograms: Mapping[str, Buckets]) -> list[_Sample]:
    return [_Sample((name,), found) for name, found in sorted(histograms.items())]


def _state_samples(reading: Reading, now_us: int) -> dict[str, list[_Sample]]:
    turn = reading.turn
    torch = reading.versions.get("torch", "")
    build = (__version__, TAXONOMY_ID, platform.python_version(), torch)
    return {
        "lastgood_build_info": [_Sample(build, 1)],
        "lastgood_run_info": [_Sample((reading.run, reading.mode), 1)] if reading.run else [],
        "lastgood_last_good_step": _one(turn.last_good_step),
        "lastgood_snapshot_age_seconds": _age(reading.accepted_at_us, now_us),
        "lastgood_checkpoint_last_step": _one(reading.checkpoint_step),
        "lastgood_checkpoint_age_seconds": _age(reading.checkpoint_at_us, now_us),
        "lastgood_checkpoint_failures_total": _one(reading.checkpoint_failure_count),
        "lastgood_ranks": _one(turn.ranks),
        "lastgood_spares_parked": _one(turn.spares_parked),
        "lastgood_spares_wanted": _one(turn.spares_wanted),
        "lastgood_generation": _one(turn.generation),
        "lastgood_loop_phase": [_Sample((name,), int(name == turn.phase)) for name in PHASES],
        "lastgood_ledger_events_total": _one(reading.event_count),
    }


def _one(value: float | None) -> list[_Sample]:
    """One sample without labels, or none: what is not known is left out, not zero."""
    return [] if value is None else [_Sample((), value)]


def _age(at_us: int | None, now_us: int) -> list[_Sample]:
    return _one(None if at_us is None else max(0, now_us - at_us) / 1e6)


def _cumulative(buckets: Buckets) -> Iterator[tuple[str, float]]:
    """Prometheus counts everything up to a bound, not between two."""
    total = 0
    for bound, count in zip((*map(str, buckets.bounds_s), "+Inf"), buckets.counts, strict=True):
        total += count
        yield bound, total
