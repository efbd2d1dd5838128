"""What `lastgood doctor` checks about a machine, each answer with what to do about it.

Every check is pure: it judges numbers that `machine.py` read. A check that cannot be carried out says
unknown, which is never ok.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lastgood.base.clock import ClockSync
from lastgood.base.errors import LedgerError, pip_command
from lastgood.base.figures import Figure, FigureKind, render
from lastgood.base.units import format_bytes, format_duration
from lastgood.cli.machine import CLOCK_WATCH_US, SHM, LedgerFile
from lastgood.ledger.place import VARIABLE, StorageKind

SLOTS_PER_RANK = 3
"""State k-1, state k and the one being written: what a verified restore needs."""
SHARED_STORE_VARIABLE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
SHARED_STORE_DEFECT_IN = "2.13"
"""The release in which the defect was seen: a restart under torchrun reuses the dead attempt's store."""
CLOCK_DRIFT_US_MAX = 1_000
SQLITE_OLDEST = (3, 51, 3)
"""The first release without the WAL-reset defect."""


class Condition(enum.StrEnum):
    """The answer of one check."""

    OK = "ok"
    WARN = "warn"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the doctor's report."""

    check: str
    condition: Condition
    found: str
    action: str | None = None
    """What to do; None when nothing is needed."""


def check_shared_memory(
    *, shm_free_bytes: int | None, memory_free_bytes: int | None, state: Figure, nproc: Figure
) -> Row:
    """Judge whether three slots of every rank's state fit into /dev/shm, and into memory at all.

    A need that nobody typed (an assumed state) can warn, and never fails.
    """
    name = "shared memory"
    need_bytes = SLOTS_PER_RANK * int(state.value or 0) * int(nproc.value or 0)
    need = f"needs {format_bytes(need_bytes)} = {SLOTS_PER_RANK} slots x {render(nproc)} x {render(state)}"
    if shm_free_bytes is None:
        return Row(
            check=name,
            condition=Condition.UNKNOWN,
            found=f"{SHM} cannot be read; {need}",
            action=f"mount a tmpfs at {SHM}: slots of a rank's state live there",
        )
    found = f"{format_bytes(shm_free_bytes)} free in {SHM}; {need}"
    if shm_free_bytes < need_bytes:
        is_typed = "typed" in {state.source, nproc.source}
        return Row(
            check=name,
            condition=Condition.FAILED if is_typed else Condition.WARN,
            found=found,
            action=f"enlarge it: mount -o remount,size={need_bytes * 5 // 4} {SHM}, or in a container "
            f"--shm-size={need_bytes * 5 // 4}; say the real size with --state and --nproc",
        )
    if memory_free_bytes is not None and memory_free_bytes < need_bytes:
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"{found}; but only {format_bytes(memory_free_bytes)} of memory available",
            action="slots take memory beside the ranks' own: use fewer ranks or a larger machine",
        )
    return Row(check=name, condition=Condition.OK, found=found)


def check_abandoned_runs(abandoned: Mapping[Path, int]) -> Row:
    """Judge whether runs that were killed left live files in shared memory."""
    name = "abandoned runs"
    if not abandoned:
        return Row(check=name, condition=Condition.OK, found=f"none in {SHM}")
    size = format_bytes(sum(abandoned.values()))
    names = ", ".join(folder.name for folder in abandoned)
    return Row(
        check=name,
        condition=Condition.WARN,
        found=f"{size} in {SHM} of runs whose supervisor is gone: {names}",
        action="start a run again under its --run-id to go on from there, or run: lastgood doctor --clean",
    )


def check_supervisors(silent: Mapping[Path, tuple[int, int]]) -> Row:
    """Judge whether every supervisor that lives also turns."""
    name = "supervisors"
    if not silent:
        return Row(check=name, condition=Condition.OK, found="none that lives and does not turn")
    told = [
        f"{folder.name} (process {pid}) has not turned for {format_duration(age_us)}"
        for folder, (pid, age_us) in silent.items()
    ]
    pids = " ".join(str(pid) for pid, _ in silent.values())
    return Row(
        check=name,
        condition=Condition.WARN,
        found="; ".join(told),
        action=f"run: kill -CONT {pids}; or kill -9 it, and start its run again under the same --run-id",
    )


def check_stack_dumps(
    *, py_spy: str | None, ptrace_scope: int | None, probe_error: str | None
) -> Row:
    """Judge whether the stacks of a hung rank can be dumped from outside."""
    name = "stack dumps"
    scope = "no yama" if ptrace_scope is None else f"yama ptrace_scope {ptrace_scope}"
    fallback = (
        "until then a suspect's stack comes from faulthandler, which needs a live interpreter"
    )
    if py_spy is None:
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"py-spy is not installed; {scope}",
            action=f"{pip_command('torch')}; {fallback}",
        )
    if probe_error is None:
        return Row(check=name, condition=Condition.OK, found=f"py-spy read a test process; {scope}")
    reasons = {
        2: "ptrace_scope 2 asks for CAP_SYS_PTRACE: sysctl kernel.yama.ptrace_scope=1",
        3: "ptrace_scope 3 stays until the next boot: set kernel.yama.ptrace_scope=1 and boot",
    }
    remedy = reasons.get(ptrace_scope or 0, "in a container add --cap-add=SYS_PTRACE")
    return Row(
        check=name,
        condition=Condition.WARN,
        found=f"py-spy could not read a test process ({probe_error}); {scope}",
        action=f"{remedy}; {fallback}",
    )


def check_storage(kind: StorageKind) -> Row:
    """Judge the place where the ledger lies."""
    name = "ledger storage"
    found = f"{kind.path} on {kind.fs_type}" + (
        f" at {kind.mount_point}" if kind.mount_point else ""
    )
    move = f"set {VARIABLE} to a path on a disk of this machine"
    if kind.is_network:
        return Row(
            check=name,
            condition=Condition.FAILED,
            found=f"{found}, a network file system",
            action=move,
        )
    if kind.is_pseudo:
        return Row(
            check=name,
            condition=Condition.FAILED,
            found=f"{found}, a view of the kernel that holds no files",
            action=move,
        )
    if kind.is_network is None:
        return Row(
            check=name,
            condition=Condition.UNKNOWN,
            found=f"{found}; what is behind it cannot be told from here",
            action=f"make sure that no other host writes there, or {move}",
        )
    if kind.is_volatile:
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"{found}, which a reboot empties",
            action=move,
        )
    return Row(check=name, condition=Condition.OK, found=found)


def check_ledger_file(storage: Row, file: LedgerFile) -> Row:
    """Judge what stands at the place itself, where the storage below it would do."""
    if storage.condition is Condition.FAILED:
        return storage
    if file.problem is not None:
        found = f"{storage.found}: {file.problem}"
        return replace(storage, condition=Condition.FAILED, found=found, action=file.action)
    return replace(storage, found=f"{storage.found}; {file.state}")


def refused_storage(error: LedgerError) -> Row:
    """Return the row for a place that the ledger itself refused."""
    return Row(
        check="ledger storage",
        condition=Condition.FAILED,
        found=f"{error.where}: {error.what}: {error.found}",
        action=error.next,
    )


def check_clock(*, sync: ClockSync, drift_us: int, boot: str) -> Row:
    """Judge whether times of this host can be ordered, and compared with another host's."""
    name = "clock"
    found = f"wall and monotonic differ by {format_duration(abs(drift_us))} over {format_duration(CLOCK_WATCH_US)}"
    if boot == "unknown":
        return Row(
            check=name,
            condition=Condition.UNKNOWN,
            found=f"{found}; no boot id",
            action="monotonic times of two boots cannot be told apart: mount /proc",
        )
    if abs(drift_us) > CLOCK_DRIFT_US_MAX:
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"{found}: it is being stepped",
            action="wait for the time daemon to settle; durations are monotonic and stay right",
        )
    if sync.is_synchronised is None:
        return Row(
            check=name,
            condition=Condition.UNKNOWN,
            found=f"{found}; the kernel does not tell whether it is synchronised",
            action="on one host nothing is needed; across hosts run chrony",
        )
    if not sync.is_synchronised:
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"{found}; not synchronised, as the kernel says",
            action="on one host nothing is needed; across hosts run chrony: apt install chrony",
        )
    bound = format_duration(sync.uncertainty_us or 0)
    return Row(check=name, condition=Condition.OK, found=f"{found}; synchronised within {bound}")


def check_shared_store(*, torch_version: str | None, environment: Mapping[str, str]) -> Row:
    """Judge torch's shared-store defect: a restart under torchrun may read a dead peer's address.

    `lastgood run` is not affected, because every generation gets a store of its own.
    """
    name = "torch shared store"
    if torch_version is None:
        return Row(
            check=name,
            condition=Condition.UNKNOWN,
            found="torch is not installed",
            action=f"for the training workload: {pip_command('torch')}",
        )
    is_disabled = environment.get(SHARED_STORE_VARIABLE) == "1"
    if is_disabled:
        return Row(
            check=name,
            condition=Condition.OK,
            found=f"torch {torch_version}, {SHARED_STORE_VARIABLE}=1",
        )
    if torch_version.startswith(f"{SHARED_STORE_DEFECT_IN}."):
        return Row(
            check=name,
            condition=Condition.WARN,
            found=f"torch {torch_version}: a restart under torchrun can hang on the old store",
            action=f"lastgood run is not affected; for torchrun: export {SHARED_STORE_VARIABLE}=1",
        )
    return Row(
        check=name,
        condition=Condition.UNKNOWN,
        found=f"torch {torch_version}: the defect was seen in {SHARED_STORE_DEFECT_IN}, not tried here",
        action=f"lastgood run is not affected; for torchrun: export {SHARED_STORE_VARIABLE}=1",
    )


def check_sqlite(version: str | None) -> Row:
    """Judge the SQLite that keeps the ledger (apsw brings its own)."""
    name = "SQLite"
    if version is None:
        return Row(
            check=name,
            condition=Condition.FAILED,
            found="apsw is not installed",
            action=pip_command(None),
        )
    parts = tuple(int(part) for part in version.split(".")[:3])
    if parts < SQLITE_OLDEST:
        oldest = ".".join(map(str, SQLITE_OLDEST))
        return Row(
            check=name,
            condition=Condition.FAILED,
            found=f"{version}, which can lose a write-ahead log",
            action=f"needs {oldest} or newer: pip install --upgrade apsw",
        )
    return Row(check=name, condition=Condition.OK, found=version)


def check_versions(versions: Mapping[str, str | None]) -> Row:
    """List the versions that decide whether two runs can be bit-equal."""
    found = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    return Row(check="versions", condition=Condition.OK, found=found)


def size_figure(*, value_bytes: int, is_typed: bool) -> Figure:
    """Return the size of one rank's state, assumed either way: typed, or the default."""
    return Figure(
        name="state per rank",
        value=value_bytes,
        unit="bytes",
        kind=FigureKind.ASSUMED,
        source="typed" if is_typed else "default",
    )


def count_figure(*, count: int, is_typed: bool) -> Figure:
    """Return the number of ranks, assumed either way: typed, or the default."""
    return Figure(
        name="ranks",
        value=count,
        unit="ranks",
        kind=FigureKind.ASSUMED,
        source="typed" if is_typed else "default",
    )
