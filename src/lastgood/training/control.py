"""What the supervisor and a worker say to each other over their socket: JSON lines, one message a line."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lastgood.base.utf8_text import utf8_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of the tagged union."""


# --- supervisor to worker -------------------------------------------------------------------------


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank of a new generation restores, and how it is verified (see `recovery.messages.RestorePlan`)."""

    tier: str
    mode: str
    restore_step: int
    target_step: int
    digest: str
    locator: str = ""


class Assignment(_Message):
    """Serve a rank in a generation. Without a plan the run starts from the script's own initial state."""

    generation: int
    rank: int
    world: int
    plan: Plan | None = None
    tolerance: str | None = None
    """Largest relative difference between two runs of one step, as a hex float; None while steps are bit-equal."""
    stripes: int = 1
    """In how many stripes the ranks keep their snapshots; 1 = every rank keeps whole ones."""
    standby: tuple[int, int] | None = None
    """Where a group of exactly these workers stands by: the number of its order, and the rank that was lost."""


class Revoked(_Message):
    """Leave this generation: cut its sockets and park."""

    generation: int
    newest_step: int = -1
    """The state to read ahead, as in `ReadAhead`; -1 = none, or it was said before."""


class ReadAhead(_Message):
    """A generation is probably over: read the newest state that every rank has published, the likely one to come."""

    newest_step: int


class Prepare(_Message):
    """A spare will probably serve this rank: it reads its states and opens its data while others leave."""

    generation: int
    rank: int
    world: int
    newest_step: int


class FormStandby(_Message):
    """Form a group for each rank that may be lost, in which the newest spare serves in its place."""

    number: int
    """Grows with every order; all workers get the same."""
    world: int
    rank: int | None = None
    """That this worker serves now; None in the spare."""


class Proceed(_Message):
    """Every rank found its bytes right: enter the group and run the passes of the plan."""

    generation: int
    has_standby: bool = False
    """Every rank has the group that stands by; else they form one now."""
    has_buckets: bool = False
    """Every rank knows the gradient buckets of the step to replay, and they are the same."""


class ReplayAgain(_Message):
    """Some rank did not keep to its recorded gradient buckets: replay once more, the long way."""

    generation: int


class Resumed(_Message):
    """The replay was accepted; go on after `step`."""

    generation: int
    step: int


class StopAfter(_Message):
    """Finish this step, publish it, then hold: the run is being preempted."""

    step: int


class FinishAcknowledged(_Message):
    """Every rank has finished the last step; the script may go on behind its loop."""


class DumpStack(_Message):
    """Write the Python stacks of all threads to a file."""

    path: str


# --- worker to supervisor -------------------------------------------------------------------------


class Hello(_Message):
    """The process has imported what it needs and checked itself."""

    worker: str
    pid: int
    golden: str
    """Digest of a small fixed computation: equal on every healthy worker of one machine."""
    versions: dict[str, str]


class Ready(_Message):
    """The script has reached `lastgood.start` and waits for an assignment."""

    state_bytes: int
    """Of the parameters."""
    snapshot_bytes: int = 0
    """Of all tensors that a snapshot will hold; 0 where that is only known in a generation."""


class Parked(_Message):
    """The worker has left its generation and waits for an assignment."""

    generation: int


class StepRaised(_Message):
    """An exception left the body of a step, or came out of the user's loader."""

    generation: int
    step: int
    type_name: str
    message: str
    is_group_error: bool
    trace: str
    loader: str = ""
    """Where in the loader it was raised, such as `in its loader, for step 7`; empty when something else raised."""


class StateRestored(_Message):
    """The state of the plan was re-read and loaded, or found wrong."""

    generation: int
    rank: int
    is_intact: bool
    bad_step: int | None = None
    detail: str = ""
    buckets: str = ""
    """Digest of the gradient buckets of the step to replay; empty where they are not known."""
    has_standby: bool = False
    """This rank has the group of the assignment's `standby`."""


class StepReplayed(_Message):
    """The replay of the plan was run and compared."""

    generation: int
    rank: int
    step: int
    outcome: str
    digest: str
    detail: str = ""
    is_by_buckets: bool = True
    """False where it began with recorded gradient buckets and they did not lead to the published state."""


class NoiseMeasured(_Message):
    """One step was run again from the same state at the start of the run."""

    rank: int
    step: int
    probe: int
    """Which time it was, from 1; only a step that did not repeat is run again more than once."""
    is_bitwise: bool
    noise: str
    """Largest relative difference, as a hex float."""


class Finished(_Message):
    """The loop has no more steps (or was asked to stop after this one)."""

    generation: int
    step: int
    is_early: bool = False
    """The script came out of its loop before the data, or the number of steps it asked for, was at an end."""
    exit_code: int = 0
    """With which the script wants to end."""


class ScriptFailed(_Message):
    """The script raised before it reached `lastgood.start`."""

    text: str
    """The error and the user's own frames: nothing of the machinery around the script."""


class ScriptRefused(_Message):
    """The script asks for something impossible; no other rank would do better, so the run ends with this."""

    text: str
    exit_code: int


class SectionChanged(_Message):
    """A declared section opened or closed."""

    rank: int
    name: str
    state: str
    is_open: bool
    wall_us: int
    step: int = 0
    """Newest accepted step of the rank."""
    limit_us: int = 0
    """The declared limit of one that opened; 0 = none. Its page may already tell of what comes behind the section."""


class Remark(_Message):
    """The script does what a recovery cannot repeat; training goes on."""

    rank: int
    text: str
    next: str
    """What to write instead."""


ToWorker = (
    Assignment
    | Revoked
    | ReadAhead
    | Prepare
    | FormStandby
    | Proceed
    | ReplayAgain
    | Resumed
    | StopAfter
    | FinishAcknowledged
    | DumpStack
)
ToSupervisor = (
    Hello
    | Ready
    | Parked
    | StepRaised
    | StateRestored
    | StepReplayed
    | NoiseMeasured
    | Finished
    | ScriptFailed
    | SectionChanged
    | Remark
    | ScriptRefused
)

T = TypeVar("T")


class Channel:
    """One end of the socket between a worker and the supervisor."""

    def __init__(self, end: socket.socket, incoming: type) -> None:
        """Wrap a connected stream socket; `incoming` is the union of messages that may arrive."""
        self.socket = end
        self._decoder = msgspec.json.Decoder(incoming)
        self._encoder = msgspec.json.Encoder()
        self._rest = b""
        self.is_closed = False

    def send(self, message: ToWorker | ToSupervisor) -> bool:
        """Send one message; False when the other side is gone (its end is handled where processes are watched)."""
        try:
            line = self._encoder.encode(message)
        except UnicodeEncodeError:
            line = self._encoder.encode(_readable(message))
        try:
            self.socket.sendall(line + b"\n")
        except OSError:
            self.is_closed = True
            return False
        return True

    def receive(self) -> Iterator[ToWorker | ToSupervisor]:
        """Yield the messages that have arrived, waiting for at least one read; ends quietly when the peer is gone."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield self._decoder.decode(line)

    def close(self) -> None:
        """Give the socket back; nothing is heard or said any more."""
        self.is_closed = True
        self.socket.close()

    def has_input(self, timeout_s: float) -> bool:
        """True when something can be read within the time."""
        readable, _, _ = select.select([self.socket], [], [], timeout_s)
        return bool(readable)


def _readable(message: ToWorker | ToSupervisor) -> ToWorker | ToSupervisor:
    """The same with words that JSON can hold: a script's error may name a file whose name is no UTF-8."""
    words = {k: v for k, v in msgspec.structs.asdict(message).items() if isinstance(v, str)}
    return msgspec.structs.replace(message, **{k: utf8_text(v) for k, v in words.items()})
