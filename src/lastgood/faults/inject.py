"""Break one thing in a live run: a process, a snapshot file, or a bit in the memory of one replica.

`inject` returns what it did (`Injected`) or raises `NotInjected` with the reason; nothing is retried. Memory
and snapshots are changed while the process stands still, so that nothing moves below the change.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from lastgood.base.clock import Clock
from lastgood.base.rng import stream
from lastgood.faults.live_run import LiveRun, Member, Parameter, Snapshot
from lastgood.faults.process import Identities, Injected, NotInjected, held, send, stop_for, victim
from lastgood.faults.spec import BESIDE, Fault, FaultKind, Which
from lastgood.faults.surroundings import inject_beside

SLOW_PERIOD_US = 100_000
ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "int64": 8,
    "int32": 4,
}
SHARED_WAIT_US_MAX = 500_000
"""How long the other ranks may take to publish the state whose snapshot is to be changed."""
SHARED_POLL_US = 10_000
DRAW_COUNT = 64
"""Elements that are looked at before a zero is accepted."""
DEFAULT_BIT = {8: 51, 4: 22, 2: 6, 1: 2}
"""Top bit of the mantissa by element size (bfloat16 for two bytes): changes the value, keeps it finite."""


def inject(fault: Fault, *, run: LiveRun, identities: Identities, clock: Clock) -> Injected:
    """Carry out one fault now. Raises `NotInjected` when the target is not there or refuses."""
    rank = fault.target.rank
    if rank is None:
        raise NotInjected("only a rank can be hit in a live run; domains are for simulators")
    if fault.kind in BESIDE:
        return inject_beside(fault, run=run, clock=clock)
    is_spare = fault.kind is FaultKind.KILL_SPARE
    with victim(rank, run=run, identities=identities, is_spare=is_spare) as (member, pidfd):
        match fault.kind:
            case FaultKind.SIGKILL | FaultKind.KILL_SPARE:
                return send(pidfd, signal.SIGKILL, clock=clock)
            case FaultKind.SIGSTOP if fault.duration_us is not None:
                return stop_for(pidfd, fault.duration_us, clock=clock)
            case FaultKind.SIGSTOP:
                return send(pidfd, signal.SIGSTOP, clock=clock)
            case FaultKind.SLOW:
                return _slow(fault, pidfd=pidfd, clock=clock)
            case FaultKind.FLIP_SNAPSHOT | FaultKind.TRUNCATE_SNAPSHOT:
                return _corrupt_snapshot(fault, run=run, member=member, pidfd=pidfd, clock=clock)
            case FaultKind.FLIP_PARAMETER:
                return _flip_parameter(fault, run=run, member=member, pidfd=pidfd, clock=clock)
    raise NotInjected(f"{fault.kind} happens inside the step, not from outside")


def _slow(fault: Fault, *, pidfd: int, clock: Clock) -> Injected:
    """Stop the process for a share of every period; it runs again at the end whatever happens."""
    stopped_us = int(SLOW_PERIOD_US * (fault.stopped_ratio or 0.0))
    first = Injected(wall_us=clock.wall_us(), monotonic_us=clock.monotonic_us(),
                     detail={"stopped_us": stopped_us, "period_us": SLOW_PERIOD_US})  # fmt: skip
    end_us = first.monotonic_us + (fault.duration_us or 0)
    with suppress(NotInjected):  # it may end meanwhile: it was slow until then
        while clock.monotonic_us() < end_us:
            send(pidfd, signal.SIGSTOP, clock=clock)
            try:
                clock.sleep_us(stopped_us)
            finally:
                send(pidfd, signal.SIGCONT, clock=clock)
            clock.sleep_us(SLOW_PERIOD_US - stopped_us)
    return first


# --- snapshots ----------------------------------------------------------------------------------


def _corrupt_snapshot(
    fault: Fault, *, run: LiveRun, member: Member, pidfd: int, clock: Clock
) -> Injected:
    """Change one snapshot file of the rank, while the rank stands still."""
    rank = fault.target.rank or 0
    with held(member, pidfd, clock=clock, is_resumed=not fault.then_sigkill):
        found = run.snapshots(rank)
        if not found:
            raise NotInjected(f"rank {rank} has no complete snapshot")
        snapshot = (
            newest_shared(found, run=run, rank=rank, clock=clock)
            if fault.which is Which.NEWEST
            else found[-1]
        )
        wall_us, monotonic_us = clock.wall_us(), clock.monotonic_us()
        random = stream(fault.seed, "faults/inject", fault.id)
        offset = random.randrange(snapshot.data_bytes)
        try:
            if fault.kind is FaultKind.FLIP_SNAPSHOT:
                bit = random.randrange(8) if fault.bit is None else fault.bit
                detail = flip_file_bit(snapshot, offset=offset, bit=bit)
            else:
                detail = truncate_file(snapshot, kept_bytes=offset)
        except OSError as error:
            raise NotInjected(f"{snapshot.path.name}: {error.strerror}") from None
        if fault.then_sigkill:
            send(pidfd, signal.SIGKILL, clock=clock)
    detail |= {
        "snapshot": snapshot.path.name,
        "snapshot_step": snapshot.step,
        "then_sigkill": fault.then_sigkill,
    }
    return Injected(wall_us=wall_us, monotonic_us=monotonic_us, detail=detail)


def newest_shared(found: list[Snapshot], *, run: LiveRun, rank: int, clock: Clock) -> Snapshot:
    """The newest snapshot of a rank whose step every rank has published; `found` is newest first.

    A rank is up to a step ahead of its peers, and no recovery reads a state that one of them never published: so the
    peers get a moment to come to the newest step of the rank, which stands still.
    """
    state = run.state()
    peers = [other for other in state.ranks if other != rank] if state else []
    deadline_us = clock.monotonic_us() + SHARED_WAIT_US_MAX
    while True:
        held = [{snapshot.step for snapshot in run.snapshots(peer)} for peer in peers]
        shared = [s for s in found if all(s.step in steps for steps in held)]
        if found[0] in shared or clock.monotonic_us() >= deadline_us:
            return shared[0] if shared else found[0]
        clock.sleep_us(SHARED_POLL_US)


def flip_file_bit(snapshot: Snapshot, *, offset: int, bit: int) -> dict[str, object]:
    """Flip one bit of the data of a snapshot file; the offset counts from the first byte of the data."""
    with snapshot.path.open("r+b", buffering=0) as file:
        place = snapshot.data_offset + offset
        before = os.pread(file.fileno(), 1, place)[0]
        after = before ^ 1 << bit
        os.pwrite(file.fileno(), bytes([after]), place)
    return {"offset": offset, "bit": bit, "byte_before": before, "byte_after": after}


def truncate_file(snapshot: Snapshot, *, kept_bytes: int) -> dict[str, object]:
    """Cut the end of the data of a snapshot file off.

    A process that has the file mapped and touches the lost pages gets SIGBUS, as with a real lost page.
    """
    os.truncate(snapshot.path, snapshot.data_offset + kept_bytes)
    return {"kept_bytes": kept_bytes, "lost_bytes": snapshot.data_bytes - kept_bytes}


# --- memory -------------------------------------------------------------------------------------


def _flip_parameter(
    fault: Fault, *, run: LiveRun, member: Member, pidfd: int, clock: Clock
) -> Injected:
    """Flip one bit of one element of one parameter in the memory of a replica."""
    listed = [
        item
        for item in run.parameters(member.worker)
        if fault.tensor in (None, item.name) and item.size_bytes >= _element_bytes(item)
    ]
    if not listed:
        raise NotInjected(f"{member.worker} lists no parameter {fault.tensor or ''}".rstrip())
    random = stream(fault.seed, "faults/inject", fault.id)
    parameter = listed[random.randrange(len(listed))]
    width = _element_bytes(parameter)
    bit = DEFAULT_BIT[width] if fault.bit is None else fault.bit
    if bit >= 8 * width:
        raise NotInjected(f"bit {bit} is outside a {parameter.dtype} of {8 * width} bits")
    draws = [random.randrange(parameter.size_bytes // width) for _ in range(DRAW_COUNT)]
    with held(member, pidfd, clock=clock, is_resumed=True):
        index = _first_not_zero(member.pid, parameter, draws=draws, width=width)
        offset = index * width + bit // 8
        wall_us, monotonic_us = clock.wall_us(), clock.monotonic_us()
        before, after = flip_memory_bit(member.pid, parameter, offset=offset, bit=bit % 8)
    detail: dict[str, object] = {
        "tensor": parameter.name,
        "element": index,
        "bit": bit,
        "dtype": parameter.dtype,
        "byte_before": before,
        "byte_after": after,
    }
    return Injected(wall_us=wall_us, monotonic_us=monotonic_us, detail=detail)


def _element_bytes(parameter: Parameter) -> int:
    return ELEMENT_BYTES.get(parameter.dtype.removeprefix("torch."), 1)


def _first_not_zero(pid: int, parameter: Parameter, *, draws: list[int], width: int) -> int:
    """The first drawn element that is not zero, or the first of all.

    A flipped mantissa bit of zero is a number so small that the next update swallows it.
    """
    with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for index in draws:
            if any(os.pread(memory.fileno(), width, parameter.address + index * width)):
                return index
    return draws[0]


def flip_memory_bit(pid: int, parameter: Parameter, *, offset: int, bit: int) -> tuple[int, int]:
    """Flip one bit of a byte of a parameter in another process; returns the byte before and after.

    Assumes a little-endian machine, on which bit b of an element lies in its byte b // 8.
    """
    assert sys.byteorder == "little", "bit numbers of elements assume little-endian memory"
    address = parameter.address + offset
    if not 0 <= offset < parameter.size_bytes or not _is_writable(pid, address):
        raise NotInjected(
            f"address {address:#x} of {parameter.name} is not writable memory of pid {pid}"
        )
    try:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            before = os.pread(memory.fileno(), 1, address)[0]
            os.pwrite(memory.fileno(), bytes([before ^ 1 << bit]), address)
            after = os.pread(memory.fileno(), 1, address)[0]
    except (OSError, IndexError) as error:
        raise NotInjected(f"/proc/{pid}/mem: {getattr(error, 'strerror', error)}") from None
    if after != before ^ 1 << bit:
        raise NotInjected(f"the byte at {address:#x} did not change")
    return before, after


def _is_writable(pid: int, address: int) -> bool:
    """The address lies in a writable mapping: /proc/PID/mem would write through read-only ones too."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                span, access = line.split(maxsplit=2)[:2]
                low, _, high = span.partition("-")
                if int(low, 16) <= address < int(high, 16):
                    return access[1] == "w"
    except (OSError, ValueError):
        return False
    return False
