"""One fault: what happens, to whom, when, how often.

A fault is data. Injection and the simulated job read the same records, so a drill and a simulation that
share a tape speak about the same faults. An injected fault is a model and not silicon: how often it occurs
in a drill says nothing about a fleet.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

import msgspec

from lastgood.base.errors import Problem
from lastgood.contract.taxonomy import DomainKind, FailureClass

PHASES = frozenset({"suspect", "isolating", "restoring", "verifying"})
"""Phases of a recovery in which a fault may strike."""
REPEAT_COUNT_MAX = 100_000
FACTOR_MAX = 1000.0
T_US_MAX = 100 * 366 * 24 * 3600 * 1_000_000
"""A hundred years, for tapes of whole fleets."""


class FaultKind(enum.StrEnum):
    """What happens."""

    SIGKILL = "sigkill"
    """The process is gone at once."""
    KILL_SPARE = "kill_spare"
    """A parked spare is gone at once; `target.rank` counts the parked spares, from 0."""
    EXIT_PROCESS = "exit_process"
    """The process ends in the middle of a step with exit code 0, and says nothing."""
    LEAVE_LOOP = "leave_loop"
    """The script of one rank leaves its loop with `sys.exit(0)`, while the others go on."""
    KILL_IN_SECTION = "kill_in_section"
    """The process is gone inside its next declared section."""
    KILL_IN_START = "kill_in_start"
    """The process is gone inside `lastgood.start`, while it builds its data."""
    SIGSTOP = "sigstop"
    """The process stops and stays, or goes on after `duration_us`: a hang."""
    SLOW = "slow"
    """The process is stopped for a share of the time: fail-slow."""
    EXCEPTION = "exception"
    """The step raises."""
    NAN_GRADIENT = "nan_gradient"
    """The gradient of one rank holds NaN before the reduction."""
    SPIN = "spin"
    """The step never leaves a C loop that holds the interpreter lock: no thread of the process runs again."""
    SPIN_THREAD = "spin_thread"
    """The same in another thread than the one that trains."""
    DEADLOCK = "deadlock"
    """The step takes a lock twice and waits for itself."""
    KERNEL_WAIT = "kernel_wait"
    """The step sits in the kernel in uninterruptible sleep, and answers to no signal but SIGKILL."""
    SLOW_STEP = "slow_step"
    """Every step of the process takes `factor` times as long from then on: fail-slow."""
    FLIP_SNAPSHOT = "flip_snapshot"
    """One bit of a snapshot file changes."""
    TRUNCATE_SNAPSHOT = "truncate_snapshot"
    """A snapshot file loses its end."""
    FLIP_PARAMETER = "flip_parameter"
    """One bit of a parameter changes in the memory of one replica."""
    KILL_SUPERVISOR = "kill_supervisor"
    """The supervisor of the run is gone at once."""
    INTERRUPT = "interrupt"
    """A person presses Ctrl-C, once: SIGINT to the supervisor. No failure, but the run has to end in order."""
    STOP_SUPERVISOR = "stop_supervisor"
    """The supervisor stops for a while."""
    KILL_HELPER = "kill_helper"
    """The checkpoint helper is gone at once."""
    STOP_HELPER = "stop_helper"
    """The checkpoint helper stops and stays."""
    KILL_LOADER = "kill_loader"
    """A data loader process of the rank is gone at once."""
    FULL_LEDGER = "full_ledger"
    """The disk under the ledger takes nothing for a while."""
    FULL_CHECKPOINTS = "full_checkpoints"
    """The disk under the checkpoints takes nothing for a while."""
    FULL_MEMORY = "full_memory"
    """Shared memory gives the ranks and the spares nothing more than they have: a snapshot cannot grow any more."""
    REMOVE_STORE = "remove_store"
    """The file through which a generation meets vanishes while its ranks look for each other."""


FAILURE_CLASS: dict[FaultKind, FailureClass] = {
    FaultKind.SIGKILL: FailureClass.FAIL_STOP,
    FaultKind.KILL_SPARE: FailureClass.FAIL_STOP,
    FaultKind.EXIT_PROCESS: FailureClass.FAIL_STOP,
    FaultKind.LEAVE_LOOP: FailureClass.FAIL_STOP,
    FaultKind.KILL_IN_SECTION: FailureClass.FAIL_STOP,
    FaultKind.KILL_IN_START: FailureClass.FAIL_STOP,
    FaultKind.SIGSTOP: FailureClass.FAIL_SLOW,
    FaultKind.SLOW: FailureClass.FAIL_SLOW,
    FaultKind.EXCEPTION: FailureClass.FAIL_STOP,
    FaultKind.NAN_GRADIENT: FailureClass.SDC,
    FaultKind.SPIN: FailureClass.FAIL_SLOW,
    FaultKind.SPIN_THREAD: FailureClass.FAIL_SLOW,
    FaultKind.DEADLOCK: FailureClass.FAIL_SLOW,
    FaultKind.KERNEL_WAIT: FailureClass.FAIL_SLOW,
    FaultKind.SLOW_STEP: FailureClass.FAIL_SLOW,
    FaultKind.FLIP_SNAPSHOT: FailureClass.SDC,
    FaultKind.TRUNCATE_SNAPSHOT: FailureClass.SDC,
    FaultKind.FLIP_PARAMETER: FailureClass.SDC,
    FaultKind.KILL_SUPERVISOR: FailureClass.FAIL_STOP,
    FaultKind.INTERRUPT: FailureClass.PLANNED,
    FaultKind.STOP_SUPERVISOR: FailureClass.FAIL_SLOW,
    FaultKind.KILL_HELPER: FailureClass.FAIL_STOP,
    FaultKind.STOP_HELPER: FailureClass.FAIL_SLOW,
    FaultKind.KILL_LOADER: FailureClass.FAIL_STOP,
    FaultKind.FULL_LEDGER: FailureClass.FAIL_STOP,
    FaultKind.FULL_CHECKPOINTS: FailureClass.FAIL_STOP,
    FaultKind.FULL_MEMORY: FailureClass.FAIL_STOP,
    FaultKind.REMOVE_STORE: FailureClass.FAIL_STOP,
}
"""The class in which a fault shows itself, as taxonomy v1 names it."""
IN_STEP = frozenset(
    {
        FaultKind.EXCEPTION,
        FaultKind.NAN_GRADIENT,
        FaultKind.EXIT_PROCESS,
        FaultKind.LEAVE_LOOP,
        FaultKind.KILL_IN_SECTION,
        FaultKind.KILL_IN_START,
        FaultKind.SPIN,
        FaultKind.SPIN_THREAD,
        FaultKind.DEADLOCK,
        FaultKind.KERNEL_WAIT,
        FaultKind.SLOW_STEP,
    }
)
"""Faults that only the step itself can have; the injector leaves them to `in_step.py`."""
BESIDE = frozenset(
    {
        FaultKind.KILL_SUPERVISOR,
        FaultKind.INTERRUPT,
        FaultKind.STOP_SUPERVISOR,
        FaultKind.KILL_HELPER,
        FaultKind.STOP_HELPER,
        FaultKind.KILL_LOADER,
        FaultKind.FULL_LEDGER,
        FaultKind.FULL_CHECKPOINTS,
        FaultKind.FULL_MEMORY,
        FaultKind.REMOVE_STORE,
    }
)
"""Faults of what surrounds the ranks (`surroundings.py`); the target only says whose steps are counted until then."""
FOR_A_WHILE = frozenset(
    {FaultKind.STOP_SUPERVISOR, FaultKind.FULL_LEDGER, FaultKind.FULL_CHECKPOINTS}
)
ON_SNAPSHOT = frozenset({FaultKind.FLIP_SNAPSHOT, FaultKind.TRUNCATE_SNAPSHOT})

_KINDS_OF_OPTION: dict[str, frozenset[FaultKind]] = {
    "bit": frozenset({FaultKind.FLIP_SNAPSHOT, FaultKind.FLIP_PARAMETER}),
    "tensor": frozenset({FaultKind.FLIP_PARAMETER}),
    "duration_us": frozenset({FaultKind.SLOW, FaultKind.SIGSTOP}) | FOR_A_WHILE,
    "stopped_ratio": frozenset({FaultKind.SLOW}),
    "factor": frozenset({FaultKind.SLOW_STEP}),
    "then_sigkill": ON_SNAPSHOT,
}


class Which(enum.StrEnum):
    """Which snapshot of a rank."""

    NEWEST = "newest"
    OLDEST = "oldest"


class Target(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Who is hit: one rank (0-based), or one fault domain written as `kind:id`. Exactly one of the two."""

    rank: int | None = None
    domain: str | None = None


class When(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """When it happens: once the target has published a step, or a time after the start. Exactly one of the two."""

    step: int | None = None
    """The newest published step of the target is at least this."""
    t_us: int | None = None
    """Microseconds after the start of the run (of the simulation, of the window)."""
    after_recovered: bool = False
    """Wait besides until the run has recovered from the fault before, and a spare is parked again."""
    settle_steps: int = 0
    """With `after_recovered`: let that many steps more be published first."""
    phase: str | None = None
    """Wait besides until the recovery loop is in this phase, such as `restoring` or `verifying`."""


class Repeat(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How often: `count` times in all, a fixed distance apart, in the unit of `when`."""

    count: int
    every_steps: int | None = None
    every_us: int | None = None


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One fault of a tape."""

    id: str
    kind: FaultKind
    target: Target
    when: When
    repeat: Repeat | None = None
    """None = once."""
    seed: int = 0
    """Chooses the byte, the tensor and the bit that the record leaves open."""
    bit: int | None = None
    """Bit of the chosen byte (snapshot, 0 to 7) or of the chosen element (parameter, 0 = lowest)."""
    tensor: str | None = None
    """Name of the parameter; None = chosen by the seed."""
    which: Which = Which.NEWEST
    """Snapshot faults only."""
    then_sigkill: bool = False
    """Snapshot faults only: kill the rank while its snapshot is corrupt, so that the corrupt state matters."""
    duration_us: int | None = None
    """How long it lasts; faults that end by themselves only."""
    stopped_ratio: float | None = None
    """Slow faults only: share of the time in which the process is stopped."""
    factor: float | None = None
    """Slow steps only: how many times as long a step takes."""


def find_problems(fault: Fault, *, where: str) -> list[Problem]:
    """All that is wrong with a fault, in words; `where` is its place in a file."""
    found = [*_target_problems(fault.target), *_when_problems(fault.when), *_repeat_problems(fault)]
    if not fault.id or len(fault.id) > 100 or not fault.id.isprintable():
        found.append(_problem("id", repr(fault.id)[:60], "printable text of 1 to 100 characters"))
    for option, kinds in _KINDS_OF_OPTION.items():
        value = getattr(fault, option)
        if value not in (None, False) and fault.kind not in kinds:
            found.append(
                _problem(
                    option, str(value), f"no {option} for a {fault.kind}", f"leave {option} out"
                )
            )
    if fault.which is not Which.NEWEST and fault.kind not in ON_SNAPSHOT:
        found.append(
            _problem("which", fault.which, f"no which for a {fault.kind}", "leave which out")
        )
    bit_max = 7 if fault.kind is FaultKind.FLIP_SNAPSHOT else 63
    if fault.bit is not None and not 0 <= fault.bit <= bit_max:
        found.append(_problem("bit", str(fault.bit), f"0 to {bit_max}"))
    if fault.kind is FaultKind.SLOW:
        found += _slow_problems(fault)
    is_for_a_while = fault.kind in FOR_A_WHILE or (
        fault.kind is FaultKind.SIGSTOP and fault.duration_us is not None
    )
    if is_for_a_while and not 0 < (fault.duration_us or 0) <= T_US_MAX:
        found.append(
            _problem("duration_us", str(fault.duration_us), f"more than 0 for a {fault.kind}")
        )
    if fault.kind is FaultKind.SLOW_STEP and not 1 < (fault.factor or 0) <= FACTOR_MAX:
        found.append(_problem("factor", str(fault.factor), f"more than 1, at most {FACTOR_MAX:g}"))
    return [dataclasses.replace(item, where=where) for item in found]


def expand(fault: Fault) -> Iterator[Fault]:
    """The fault once for every time that it repeats, with ids `id`, `id#2`, `id#3`, ... of one-shot faults."""
    repeat = fault.repeat
    for number in range(repeat.count if repeat else 1):
        when = fault.when
        if repeat and when.step is not None:
            when = msgspec.structs.replace(
                when, step=when.step + number * (repeat.every_steps or 0)
            )
        elif repeat and when.t_us is not None:
            when = msgspec.structs.replace(when, t_us=when.t_us + number * (repeat.every_us or 0))
        name = fault.id if number == 0 else f"{fault.id}#{number + 1}"
        yield msgspec.structs.replace(
            fault, id=name, when=when, repeat=None, seed=fault.seed + number
        )


def _problem(what: str, found: str, needs: str, write: str | None = None) -> Problem:
    return Problem(what=what, found=found, needs=needs, next=write)


def _target_problems(target: Target) -> Iterator[Problem]:
    if (target.rank is None) == (target.domain is None):
        yield _problem(
            "target", "both" if target.rank is not None else "neither", "a rank or a domain"
        )
    if target.rank is not None and target.rank < 0:
        yield _problem("target.rank", str(target.rank), "0 or more", "write 0 for the first rank")
    if target.domain is not None:
        kind, _, name = target.domain.partition(":")
        if kind not in set(DomainKind) or not name:
            yield _problem(
                "target.domain", target.domain, f"kind:id with kind one of {', '.join(DomainKind)}"
            )


def _when_problems(when: When) -> Iterator[Problem]:
    if (when.step is None) == (when.t_us is None):
        yield _problem("when", "both" if when.step is not None else "neither", "a step or a t_us")
    if when.step is not None and when.step < 0:
        yield _problem("when.step", str(when.step), "0 or more")
    if when.t_us is not None and not 0 <= when.t_us <= T_US_MAX:
        yield _problem("when.t_us", str(when.t_us), f"0 to {T_US_MAX}")
    if when.phase is not None and when.phase not in PHASES:
        yield _problem("when.phase", when.phase, f"one of {', '.join(sorted(PHASES))}")
    if when.settle_steps < 0 or (when.settle_steps and not when.after_recovered):
        yield _problem(
            "when.settle_steps", str(when.settle_steps), "0 or more, and after_recovered"
        )


def _repeat_problems(fault: Fault) -> Iterator[Problem]:
    repeat = fault.repeat
    if repeat is None:
        return
    if not 1 <= repeat.count <= REPEAT_COUNT_MAX:
        yield _problem("repeat.count", str(repeat.count), f"1 to {REPEAT_COUNT_MAX}")
    is_by_step = fault.when.step is not None
    distance, other = (
        (repeat.every_steps, repeat.every_us)
        if is_by_step
        else (repeat.every_us, repeat.every_steps)
    )
    name = "every_steps" if is_by_step else "every_us"
    if distance is None or distance < 1 or other is not None:
        yield _problem(
            "repeat",
            f"every_steps {repeat.every_steps}, every_us {repeat.every_us}",
            f"{name} above 0 and nothing else",
        )


def _slow_problems(fault: Fault) -> Iterator[Problem]:
    if fault.duration_us is None or not 0 < fault.duration_us <= T_US_MAX:
        yield _problem("duration_us", str(fault.duration_us), "more than 0 for a slow fault")
    if fault.stopped_ratio is None or not 0 < fault.stopped_ratio < 1:
        yield _problem(
            "stopped_ratio",
            str(fault.stopped_ratio),
            "more than 0 and less than 1 for a slow fault",
        )
