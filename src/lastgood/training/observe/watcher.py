"""The look at a job from outside: steps, liveness, one incident at a time, and stacks when there is one.

Used by `lastgood run --mode observe` and by the process that `lastgood.attach` starts on each host. It records and it
dumps; it never signals a rank.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lastgood.base.clock import SystemClock
from lastgood.base.errors import EXIT_REQUEUE
from lastgood.signals import liveness
from lastgood.signals.reading import Assessment, Phase, Question, Symptom, Verdict
from lastgood.training.observe import case
from lastgood.training.observe.words import (
    broken_groups,
    has_left,
    left_early,
    numbered_on,
    of_a_group,
    with_advice,
    without_later_ends,
)
from lastgood.training.recorder import STEPS_PER_CHUNK
from lastgood.training.slot import RING_LENGTH
from lastgood.training.watching.dumps import JobDump
from lastgood.training.watching.observing import read_rank
from lastgood.training.watching.pauses import TOLD_US_MIN, told_pause
from lastgood.training.watching.stack_groups import group_stacks
from lastgood.training.watching.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lastgood.signals.limits import Limits
    from lastgood.signals.reading import RankReading
    from lastgood.training.observe.ending import EndingNote
    from lastgood.training.observe.first_note import FirstNote
    from lastgood.training.recorder import Recorder
    from lastgood.training.slot import StatusSlot

LIVENESS_EVERY_US = 40_000
WAITS_FOR_HOST = "the ranks of this host wait for another host"
ENDED_OF_HOST = "the ranks of this host ended because another host's did"
MISSED_STEPS = RING_LENGTH - 4
"""So far may the ranks run ahead of the look before steps are counted without being timed one by one."""


class Watched(Protocol):
    """A rank as the watcher sees it; whether it is a child of this process does not matter."""

    rank: int
    name: str
    pid: int
    slot: StatusSlot

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    @property
    def ending(self) -> EndingNote | None:
        """What it said about its end."""
        ...

    @property
    def first_step(self) -> FirstNote | None:
        """What it says about its first step."""
        ...


class FirstStep(NamedTuple):
    """The first step that all ranks did in an attempt."""

    step: int
    source: str
    """`optimizer` or `script` know the number; `count` only counts from the start of the process."""


class Watcher:
    """Watches the ranks of one attempt after another."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        run: str,
        limits: Limits,
        stacks: Path,
        world: int,
        host: str | None = None,
        is_all: bool = True,
        group_advice: Sequence[str] = (),
    ) -> None:
        """`is_all` is False where other hosts have ranks of the job too: then waiting alone names nobody here.

        `group_advice` is what is known to keep a restarted job from forming its group; said where that happens.
        """
        self.recorder = recorder
        self.ranks: Sequence[Watched] = ()
        self.attempt = 0
        self.first_step: FirstStep | None = None
        self.last_verdict: Assessment | None = None
        self.step_offset = 0
        """Added to the ranks' own numbers where they only count: a restarted process counts from 1 again."""
        long_us = case.NOBODY_FACTOR * limits.step_floor_us
        # One host of several does not see who waits for its ranks elsewhere: what the kernel says has to do.
        limits = replace(limits, unawaited_us=long_us, is_stop_enough=not is_all)
        self._watch = Watch(limits, is_observing=True)
        self._stacks = stacks
        self._is_all = is_all
        self._group_advice = group_advice
        self._own_name = "the supervisor" if host is None else f"the watcher of {host}"
        self._book = case.Book(run=run, host=host or os.uname().nodename, world=world)
        self._dump: JobDump | None = None
        self._through: set[int] = set()
        """Ranks whose script had ended when the dump began."""
        self._next_liveness_us = 0
        self._looked_us: int | None = None
        self._memory: liveness.LivenessMemory | None = None
        self._slow: tuple[int, ...] = ()
        self._traced: set[str] = set()
        self._said: dict[str, object] = {}
        self.is_leaving = False
        """True once the job was told to stop: what ends now is no failure."""
        self._clock = SystemClock()
        self._step_before = 0
        self._stepped_us = 0
        """Wall time at which the newest step was done."""

    @property
    def open_case(self) -> case.Case | None:
        """The incident that is open."""
        return self._book.open

    @property
    def step(self) -> int:
        """Newest step that all ranks have done, in the numbers of the ledger."""
        return self._watch.next_step - 1 + self.step_offset

    def begin_attempt(self, ranks: Sequence[Watched], number: int) -> None:
        """Watch these ranks from now on."""
        self._step_before = self.step
        self.ranks, self.attempt = ranks, number
        self.recorder.attempt = number
        self.first_step = None
        self._looked_us = None
        self._memory = None
        self._watch.begin_generation(number, next_step=1)

    def look(self, now_us: int) -> None:
        """One turn."""
        self._notice_pause(now_us)
        self._collect_steps(now_us)
        if now_us >= self._next_liveness_us and not self.is_leaving:
            self._next_liveness_us = now_us + LIVENESS_EVERY_US
            self._look_for_hangs(now_us)
        self._advance_dump(now_us)

    def _notice_pause(self, now_us: int) -> None:
        """Forgive the time in which nobody looked: what froze this process, such as its container, froze the ranks too."""
        before_us, self._looked_us = self._looked_us, now_us
        if before_us is None or now_us - before_us < TOLD_US_MIN:
            return
        self._watch.forgive(since_us=before_us, until_us=now_us)
        self._memory = None
        body = told_pause(self._own_name, now_us - before_us)
        began_us = self.recorder.wall_us(before_us)
        self.recorder.record("annotation", t_occurred_us=began_us, body=body)

    def close_case(self, now_us: int, outcome: str, **body: object) -> None:
        """The job ended, or moved on by other means than its own."""
        self._finish_dump(now_us)
        self._keep(case.close(self._book, now_us=now_us, step=self.step, outcome=outcome, **body))

    def finish(self, now_us: int) -> None:
        """Take in the last steps and verdicts of ranks that have all ended."""
        self._collect_steps(now_us)
        if not self.is_leaving:
            self._look_for_hangs(now_us)
        self._finish_dump(now_us)

    def hand_over(self) -> case.Case | None:
        """Give up the open incident to whoever acts on it: he closes it, and the next failure is another one."""
        found, self._book = self._book.open, replace(self._book, open=None)
        return found

    def reopen(self, found: case.Case) -> None:
        """Take an incident back, to close it."""
        self._book = replace(self._book, open=found)

    @property
    def is_diagnosed(self) -> bool:
        """True when the open incident has its stacks, as far as they come."""
        return self._book.open is not None and self._book.open.diagnosed_us is not None

    @property
    def has_passed(self) -> bool:
        """True when nothing is wrong at the moment, though the open incident waits for a step to follow it."""
        return self.last_verdict is not None and self.last_verdict.verdict is Verdict.OK

    # --- steps ------------------------------------------------------------------------------------

    def _collect_steps(self, now_us: int) -> None:
        if not self.ranks or (self.first_step is None and not self._found_first()):
            return
        self._skip_missed()
        for assessed in self._watch.assess_steps(self.ranks, now_us=now_us):  # type: ignore[arg-type]
            finished = assessed.finished
            # The slot of an observed rank holds monotonic times: it does not know the time base of the run.
            self._stepped_us = self.recorder.wall_us(finished.done_wall_us)
            self.recorder.step_done(
                finished.step + self.step_offset,
                done_wall_us=self._stepped_us,
                loss=finished.mean_loss,
            )
            self._say_slow(assessed.performance)

    def _found_first(self) -> bool:
        notes = [rank.first_step for rank in self.ranks]
        known = [note for note in notes if note is not None]
        if len(known) < len(notes):
            return False
        number, source, began_us = max(known)
        if source == "count":
            # Where nobody knows the number, steps go on behind what was counted before: redone or not, nobody can say.
            self.step_offset = self._step_before
            text = "the script tells no step number: its steps are counted from its start"
            self.recorder.record("annotation", body={"text": text, "numbered_by": source})
        else:
            self.step_offset = 0
        self._watch.begin_generation(self.attempt, next_step=number)
        self.first_step = FirstStep(number + self.step_offset, source)
        self._stepped_us = self.recorder.wall_us(began_us)
        self.recorder.begin_steps(first=self.first_step.step, began_us=self._stepped_us)
        return True

    def _skip_missed(self) -> None:
        """Steps faster than the look: counted, their times spread evenly over the time that they took together."""
        done = min(rank.slot.view().published_step for rank in self.ranks)
        first = self._watch.next_step
        if done - first < MISSED_STEPS:
            return
        self.recorder.close_chunk()
        count, now_us = done - first, self.recorder.wall_us(self._clock.monotonic_us())
        began_us = min(self._stepped_us, now_us)
        ended_us = [began_us + (now_us - began_us) * k // count for k in range(1, count + 1)]
        number = first + self.step_offset
        for at in range(0, count, STEPS_PER_CHUNK):
            part = ended_us[at : at + STEPS_PER_CHUNK]
            body = {
                "first": number + at,
                "last": number + at + len(part) - 1,
                "began_us": ended_us[at - 1] if at else began_us,
                "ended_us": part,
                "spread": True,
            }
            self.recorder.record("step", t_occurred_us=body["began_us"], body=body)
        self._stepped_us = now_us
        self.recorder.begin_steps(first=done + self.step_offset)
        self._watch.begin_generation(self.attempt, next_step=done)

    def _say_slow(self, found: Assessment) -> None:
        """A rank that is slow among its peers, once each time the names change."""
        if found.culprits == self._slow or found.verdict is Verdict.UNKNOWN:
            return
        self._slow = found.culprits
        if found.culprits:
            self.recorder.record(
                "observation",
                symptom=str(Symptom.SLOW),
                ranks=found.culprits,
                body={"evidence": list(found.evidence)},
            )

    # --- liveness ---------------------------------------------------------------------------------

    def _look_for_hangs(self, now_us: int) -> None:
        if not self.ranks:
            return
        readings = [self._read(rank) for rank in self.ranks]
        found = liveness.assess(
            readings, limits=self._watch.limits, now_us=now_us, previous=self._memory
        )
        found = with_advice(self._patient(found, readings, now_us), readings)
        self._memory = liveness.remember(self._memory, readings, now_us=now_us)
        self.last_verdict = found
        was_open = self._book.open
        self._keep(
            case.look(
                self._book, found, now_us=now_us, at=self._progress(readings), attempt=self.attempt
            )
        )
        self._say_traces()
        if was_open is None and self._book.open is not None:
            self._through = {r.rank for r in self.ranks if r.ending is not None}
            self._dump = JobDump(self.ranks, self._stacks, now_us=now_us)

    def _progress(self, readings: Sequence[RankReading]) -> case.Progress:
        launches = [r.launches for r in readings]
        return case.Progress(self.step, min(launches), max(launches))

    def _read(self, rank: Watched) -> RankReading:
        code = rank.exit_code
        note = (
            rank.ending
        )  # written before the slow way out of the process: the culprit speaks before its peers end
        raised = note.raised if note is not None else None
        reading = read_rank(rank.rank, rank, generation=self.attempt, raised=raised)  # type: ignore[arg-type]
        reading = replace(reading, progress_us=self._watch.heard_us(reading.progress_us))
        if self.step_offset:
            reading = numbered_on(reading, self.step_offset)
        is_asked = code == EXIT_REQUEUE and note is not None and raised is None
        if code == 0 or is_asked:
            # `os._exit(0)` in the middle of a job is an end like any other, if the others still wait for it.
            return replace(reading, phase=Phase.FINISHED, exit_code=0)
        return reading

    def _patient(
        self, found: Assessment, readings: Sequence[RankReading], now_us: int
    ) -> Assessment:
        """What an unchanged script needs besides: it declares no sections, and a rank may leave early."""
        found = without_later_ends(found, readings, self._seen_alive())
        left = [r for r in readings if has_left(r)]
        broken = broken_groups(readings)
        if broken and found.verdict is not Verdict.OK and set(found.culprits) <= set(broken):
            return self._of_victims(found, readings, left, now_us - min(broken.values()))
        if found.verdict is not Verdict.UNKNOWN or found.symptom is not Symptom.HANG:
            return found
        living = [r for r in readings if r.exit_code is None and not has_left(r)]
        if left and living:
            return left_early(left, living, onset_us=found.onset_us)
        is_waiting = any(r.phase is Phase.COLLECTIVE for r in living)
        if is_waiting and not self._is_all:
            self._say_waiting(found, readings)
            return Assessment(question=Question.LIVENESS, verdict=Verdict.SUSPECT)
        return found

    def _of_victims(
        self,
        found: Assessment,
        readings: Sequence[RankReading],
        left: Sequence[RankReading],
        broken_for_us: int,
    ) -> Assessment:
        """Only ranks that ended of a peer's end are in sight: the peer left early, or it is on another host."""
        if left:
            others = [r for r in readings if not has_left(r)]
            return left_early(left, others, onset_us=found.onset_us)
        if self._is_all:
            is_open = any(r.exit_code is None and r.raised is None for r in readings)
            if is_open and broken_for_us <= self._watch.limits.group_error_us:
                # What ended the group may show only now: sockets close before a process is gone.
                return Assessment(question=Question.LIVENESS, verdict=Verdict.SUSPECT)
            return of_a_group(found, readings, self._group_advice)
        victims = list(broken_groups(readings))
        self._say_once(ENDED_OF_HOST, found, {"victims": victims})
        return Assessment(question=Question.LIVENESS, verdict=Verdict.SUSPECT)

    def _seen_alive(self) -> set[int]:
        """Ranks that left no word and that a peer saw alive when its group broke: a launcher ended them afterwards."""
        notes = {rank.rank: rank.ending for rank in self.ranks}
        seen = {peer for note in notes.values() if note is not None for peer in note.peers_alive}
        return {rank for rank in seen if notes.get(rank) is None}

    def _say_waiting(self, found: Assessment, readings: Sequence[RankReading]) -> None:
        """Everybody here waits for another host: its watcher names the rank, this one only says what it saw."""
        launches = {str(r.rank): r.launches for r in readings}
        self._say_once(WAITS_FOR_HOST, found, {"launches": launches})

    def _say_once(self, text: str, found: Assessment, more: dict[str, object]) -> None:
        """Said again as soon as there is something else to say, such as the next silence of the same attempt."""
        if self._said.get(text) == more:
            return
        self._said[text] = more
        self.recorder.record(
            "observation",
            symptom=None if found.symptom is None else str(found.symptom),
            role="context",
            body={"text": text, "evidence": list(found.evidence), **more},
        )

    def _say_traces(self) -> None:
        """The trace of what each rank raised, once."""
        for rank in self.ranks:
            if rank.name in self._traced:
                continue
            note = rank.ending
            if note is None or note.raised is None:
                continue
            self._traced.add(rank.name)
            self.recorder.record(
                "observation",
                role="cascade" if note.raised.is_group_error else "initiating",
                ranks=(rank.rank,),
                incident=self._book.open.id if self._book.open is not None else None,
                body={"raised": "group_error" if note.raised.is_group_error else "exception", "type": note.raised.type_name, "message": note.raised.message, "trace": note.trace, "where": f"in step {note.raised.step + self.step_offset}"},
            )  # fmt: skip

    # --- stacks -----------------------------------------------------------------------------------

    def _advance_dump(self, now_us: int) -> None:
        if self._dump is not None and self._dump.advance(now_us):
            self._finish_dump(now_us)

    def _finish_dump(self, now_us: int) -> None:
        if self._dump is None:
            return
        dump, self._dump = self._dump, None
        dump.close()
        groups = group_stacks(dump.stacks(), through=self._through)
        self._keep(case.diagnosed(self._book, groups, asked=dump.asked_count, now_us=now_us))

    def _keep(self, book: case.Book) -> None:
        self._book = replace(book, said=())
        for said in book.said:
            fields = {k: v for k, v in said.fields.items() if v is not None}
            self.recorder.record_from_loop(said.kind, fields)
