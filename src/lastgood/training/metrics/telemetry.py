"""What a live run amounts to so far: its events and steps folded into the few numbers that a scraper asks for.

Pure bookkeeping on the supervisor's thread, a few microseconds a step. Readers on other threads never see this
object; they get a `Reading`, which does not change. The ledger stays the record: a report recomputes every number,
while these cover the time since this start of the run and forget it with the process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.evidence.drilled_runs import DRILL_MODES
from lastgood.ledger.executions import COUNTED
from lastgood.ledger.timeline import SECTION_STATES

if TYPE_CHECKING:
    from lastgood.ledger.event import Event

STEP_COUNT_KEPT = 65_536
"""Steps whose own time is remembered, to take it back when they are lost; older ones count with the mean."""
STEP_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
INCIDENT_BOUNDS_S = (
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    900.0,
)
OUTCOMES = ("recovered", "escalated")
_CLASSES = tuple(c.value for c in FailureClass if c is not FailureClass.PLANNED)
_NO_PROGRESS = SECTION_STATES - {"productive"}
_RECOVERY_PARTS = ("diagnose_us", "isolate_us", "recover_us", "verify_us")


class IncidentKey(NamedTuple):
    """What incidents are counted by."""

    class_: str
    outcome: str
    injected: str
    """`true`, or `not_declared`: nobody said that it was caused on purpose."""


class Buckets(NamedTuple):
    """A histogram: how many values fell under each bound (the last count is above all), and their sum."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    sum_us: int

    def with_value(self, value_us: int) -> Buckets:
        """The histogram with one more value."""
        at = bisect_left(self.bounds_s, value_us / 1e6)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Buckets(self.bounds_s, counts, self.sum_us + value_us)


def empty_buckets(bounds_s: tuple[float, ...]) -> Buckets:
    """A histogram without a value."""
    return Buckets(bounds_s, (0,) * (len(bounds_s) + 1), 0)


_NO_STEPS = empty_buckets(STEP_BOUNDS_S)


class Turn(NamedTuple):
    """What the supervisor knows at the end of one turn."""

    phase: str = "starting"
    generation: int = 0
    ranks: int = 0
    spares_parked: int = 0
    spares_wanted: int = 0
    last_good_step: int | None = None


_BEFORE_THE_FIRST = Turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of a run at one moment. Instants are monotonic microseconds; None is not there yet."""

    run: str = ""
    mode: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    started_us: int | None = None
    turn: Turn = _BEFORE_THE_FIRST
    accepted_steps: int = 0
    productive_us: int = 0
    step_count: int = 0
    lost_step_count: int = 0
    step_last_us: int | None = None
    steps: Buckets = _NO_STEPS
    accepted_at_us: int | None = None
    checkpoint_step: int | None = None
    checkpoint_at_us: int | None = None
    checkpoint_failure_count: int = 0
    incidents: Mapping[IncidentKey, int] = field(default_factory=dict)
    open_count: int = 0
    detection: Mapping[str, Buckets] = field(default_factory=dict)
    recovery: Mapping[str, Buckets] = field(default_factory=dict)
    event_count: int = 0


class Telemetry:
    """Folds a run. `reading` may be asked for at any time."""

    def __init__(self) -> None:
        self._run, self._mode, self._is_injected = "", "", False
        self._versions: Mapping[str, str] = {}
        self._started_us: int | None = None
        self.turn = _BEFORE_THE_FIRST
        self._kept: deque[int] = deque(maxlen=STEP_COUNT_KEPT)
        self._next_step = 1
        self._accepted_steps = self._productive_us = 0
        self._step_count = self._lost_step_count = 0
        self._step_last_us: int | None = None
        self._steps = _NO_STEPS
        self._accepted_at_us: int | None = None
        self._sections: dict[str, int] = {}
        self._aside_us = 0
        """Declared time since the last step that is no progress, such as a blocking checkpoint."""
        self._checkpoint: tuple[int, int] | None = None
        self._checkpoint_failure_count = 0
        self._open: set[str] = set()
        self._incidents: dict[IncidentKey, int] = {}
        self._detection = {name: empty_buckets(INCIDENT_BOUNDS_S) for name in _CLASSES}
        self._recovery = dict(self._detection)
        self._event_count = 0

    # --- steps ------------------------------------------------------------------------------------

    def steps_begin(self, first: int) -> None:
        """Step `first` comes next: what was accepted from there on is lost."""
        self._aside_us = 0
        for _ in range(min(self._next_step - first, self._accepted_steps)):
            mean_us = self._productive_us // self._accepted_steps
            self._productive_us -= self._kept.pop() if self._kept else mean_us
            self._accepted_steps -= 1
            self._lost_step_count += 1
        self._next_step = first

    def step_done(self, step: int, *, took_us: int, now_us: int) -> None:
        """One more accepted step, which took so long since the one before it ended."""
        useful_us = max(0, took_us - self._aside_us)
        self._aside_us = 0
        self._kept.append(useful_us)
        self._next_step = step + 1
        self._accepted_steps += 1
        self._step_count += 1
        self._productive_us += useful_us
        self._step_last_us = useful_us
        self._steps = self._steps.with_value(useful_us)
        self._accepted_at_us = now_us

    # --- events -----------------------------------------------------------------------------------

    def hear(self, event: Event, *, now_us: int) -> None:
        """Take one event of the run."""
        self._event_count += 1
        body = event.body
        match event.kind:
            case EventKind.RUN_START:
                self._run, self._mode = event.run or "", str(body.get("mode", ""))
                self._is_injected = self._mode in DRILL_MODES
                self._started_us = now_us
                for class_ in _CLASSES:
                    for outcome in OUTCOMES:
                        self._incidents[self._key(class_, outcome)] = 0
            case EventKind.ATTEMPT_START:
                self._versions = dict(event.versions or {})
            case EventKind.SECTION_BEGIN if body.get("state") in _NO_PROGRESS:
                self._sections[f"{event.attempt}/{body.get('name')}"] = event.t_occurred_us or 0
            case EventKind.SECTION_END:
                begun_us = self._sections.pop(f"{event.attempt}/{body.get('name')}", None)
                if begun_us is not None:
                    self._aside_us += max(0, (event.t_occurred_us or 0) - begun_us)
            case EventKind.CHECKPOINT_COMMIT:
                self._checkpoint = (int(body["step"]), now_us)
            case EventKind.CHECKPOINT_FAIL:
                self._checkpoint_failure_count += 1
            case EventKind.INCIDENT_OPEN:
                self._open.add(event.incident or event.id)
            case EventKind.INCIDENT_CLOSE:
                self._close(event)
            case EventKind.ANNOTATION if body.get("numbered_by") == COUNTED:
                # Whether the steps before this start are done again nobody knows, and unknown is never good.
                self._accepted_steps = self._productive_us = 0
                self._kept.clear()
            case EventKind.ANNOTATION if body.get("injected") is True:
                self._is_injected = True

    def _key(self, class_: str, outcome: str, *, is_injected: bool = False) -> IncidentKey:
        injected = "true" if self._is_injected or is_injected else "not_declared"
        return IncidentKey(class_, outcome, injected)

    def _close(self, event: Event) -> None:
        self._open.discard(event.incident or event.id)
        class_ = str(event.class_ or "unknown")
        outcome = str(event.body.get("outcome", "unknown"))
        is_injected = event.body.get("injected") is True
        key = self._key(class_, outcome, is_injected=is_injected)
        self._incidents[key] = self._incidents.get(key, 0) + 1
        if event.detect_us is not None:
            _add(self._detection, class_, event.detect_us)
        if outcome == "recovered":
            parts = [getattr(event, name) or 0 for name in _RECOVERY_PARTS]
            _add(self._recovery, class_, sum(parts))

    def reading(self) -> Reading:
        """The state now, as a value that does not change."""
        step, at_us = self._checkpoint or (None, None)
        return Reading(
            run=self._run,
            mode=self._mode,
            versions=self._versions,
            started_us=self._started_us,
            turn=self.turn,
            accepted_steps=self._accepted_steps,
            productive_us=self._productive_us,
            step_count=self._step_count,
            lost_step_count=self._lost_step_count,
            step_last_us=self._step_last_us,
            steps=self._steps,
            accepted_at_us=self._accepted_at_us,
            checkpoint_step=step,
            checkpoint_at_us=at_us,
            checkpoint_failure_count=self._checkpoint_failure_count,
            incidents=dict(self._incidents),
            open_count=len(self._open),
            detection=dict(self._detection),
            recovery=dict(self._recovery),
            event_count=self._event_count,
        )


def _add(histograms: dict[str, Buckets], name: str, value_us: int) -> None:
    histogram = histograms.get(name) or empty_buckets(INCIDENT_BOUNDS_S)
    histograms[name] = histogram.with_value(value_us)
