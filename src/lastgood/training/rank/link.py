"""A worker's side of its socket: what the supervisor said last, and a thread that hears it while the rank is blocked.

The thread is what makes a blocked collective recoverable: it cuts the group's sockets when a generation is revoked.
"""

from __future__ import annotations

import enum
import faulthandler
import os
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from lastgood.training import control
from lastgood.training.rank.group import Group
from lastgood.training.rank.interrupting import Interruption
from lastgood.training.rank.vigil import LOOK_US, Vigil

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood.training.control import Assignment, Channel, Prepare
    from lastgood.training.rundir import RunDir
    from lastgood.training.slot import ControlPage, StatusSlot

SUPERVISOR_GONE = 70


class ReplayVerdict(enum.Enum):
    """What becomes of a replay."""

    RESUMED = enum.auto()
    AGAIN = enum.auto()
    REVOKED = enum.auto()


_POLL_S = 0.2
"""How often a waiting main thread looks at itself; it is woken at once by what it waits for."""


class Link:
    """Everything a rank shares with its supervisor."""

    def __init__(
        self, *, worker: str, channel: Channel, run: RunDir, slot: StatusSlot, page: ControlPage
    ) -> None:
        self.worker = worker
        self.channel = channel
        self.run = run
        self.slot = slot
        self.page = page
        self.group = Group()
        self.interruption = Interruption()
        self._changed = threading.Condition()
        """Guards what the control thread sets and the main thread waits for."""
        self._assignments: deque[Assignment | Prepare] = deque()
        self._has_served = False
        """True once there was an assignment."""
        self._revoked_generation = 0
        self._proceed_generation = 0
        self.has_buckets = False
        """What the last word to proceed said of the gradient buckets."""
        self.has_standby = False
        """What it said of the group that stands by."""
        self._resumed: dict[int, int] = {}
        self._again_generation = 0
        """The generation that has to replay again, until it does."""
        self._is_finish_acknowledged = False
        self.stop_after: int | None = None
        self.has_left_loop = False
        """True once the script's training loop came to its end by itself."""
        self.on_hint: Callable[[int], None] | None = None
        """Called on the control thread with the step of the state that may be read ahead."""
        self.on_process_end: Callable[[], None] | None = None
        """Set by the run: lets go of what holds the group."""
        self.on_script_end: Callable[[int], None] | None = None
        """Set by the run and called with the exit code, so that a loop left early still ends in order."""

    def listen(self) -> None:
        """Start the control thread."""
        threading.Thread(target=self._listen, name="lastgood-control", daemon=True).start()

    def _listen(self) -> None:
        vigil = Vigil(self.run.life)
        while not self.channel.is_closed:
            if not self.channel.has_input(LOOK_US / 1e6):
                # Before the first assignment it starts others, and does not turn yet.
                if self._has_served:
                    vigil.look()
                continue
            for message in self.channel.receive():
                self._take(message)
        os._exit(
            SUPERVISOR_GONE
        )  # without a supervisor nobody would name a culprit or restore a state

    def _take(self, message: object) -> None:
        if isinstance(message, control.DumpStack):
            with open(message.path, "w") as out:
                faulthandler.dump_traceback(out, all_threads=True)
            return
        if isinstance(message, control.FormStandby):
            self.group.standby.form(message, partial(self.run.standby_store, message.number))
            return
        with self._changed:
            match message:
                case control.Assignment():
                    self._has_served = True
                    self._assignments.append(message)
                case control.Prepare():
                    self._assignments.append(message)
                case control.Revoked():
                    self._revoked_generation = max(self._revoked_generation, message.generation)
                case control.Proceed():
                    self._proceed_generation = max(self._proceed_generation, message.generation)
                    self.has_buckets = message.has_buckets
                    self.has_standby = message.has_standby
                case control.ReplayAgain():
                    self._again_generation = message.generation
                case control.Resumed():
                    self._resumed[message.generation] = message.step
                case control.StopAfter():
                    self.stop_after = message.step
                case control.FinishAcknowledged():
                    self._is_finish_acknowledged = True
            self._changed.notify_all()
        if isinstance(message, control.Revoked) and message.generation >= self.group.generation:
            self.interruption.ask()
        if (
            isinstance(message, control.Revoked | control.ReadAhead)
            and message.newest_step >= 0
            and self.on_hint is not None
        ):
            self.on_hint(message.newest_step)
        if isinstance(message, control.Revoked):
            self.group.revoke(message.generation)

    def is_revoked(self, generation: int) -> bool:
        """True when this generation is over."""
        return self._revoked_generation >= generation

    def wait_assignment(self) -> Assignment | Prepare:
        """Wait, parked, for the next assignment that is not already revoked, or for the announcement of one."""
        with self._changed:
            while True:
                while self._assignments:
                    assignment = self._assignments.popleft()
                    if isinstance(assignment, control.Prepare):
                        if not self._assignments:
                            return assignment
                        continue  # what it announced has come
                    if not self.is_revoked(assignment.generation):
                        return assignment
                    # Whoever revoked it waits for this worker to park, which it never left.
                    self.channel.send(control.Parked(generation=assignment.generation))
                self._changed.wait(_POLL_S)

    def wait_revoked(self, generation: int) -> None:
        """Wait until the supervisor ends this generation (or this process)."""
        with self._changed:
            while not self.is_revoked(generation):
                self._changed.wait(_POLL_S)

    def wait_proceed(self, generation: int) -> bool:
        """Wait until every rank has found its bytes right; False when the generation was revoked instead."""
        with self._changed:
            while not self.is_revoked(generation):
                if self._proceed_generation >= generation:
                    return True
                self._changed.wait(_POLL_S)
        return False

    def wait_verdict(self, generation: int) -> ReplayVerdict:
        """Wait for the verdict on a replay."""
        with self._changed:
            while not self.is_revoked(generation):
                if generation in self._resumed:
                    return ReplayVerdict.RESUMED
                if generation == self._again_generation:
                    self._again_generation = 0
                    return ReplayVerdict.AGAIN
                self._changed.wait(_POLL_S)
        return ReplayVerdict.REVOKED

    def wait_finish(self, generation: int) -> bool:
        """Wait until every rank has finished; False when the generation was revoked instead."""
        with self._changed:
            while not self.is_revoked(generation):
                if self._is_finish_acknowledged:
                    return True
                self._changed.wait(_POLL_S)
        return False
