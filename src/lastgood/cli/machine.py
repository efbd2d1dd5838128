"""What `lastgood doctor` reads from this machine. Nothing here judges: see `checks.py`.

A thing that cannot be read comes back as None, and the check that wanted it says unknown.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from lastgood.base.clock import Clock
from lastgood.base.errors import LastgoodError, Refused

SHM = Path("/dev/shm")  # noqa: S108 - the shared memory of the machine, not a temporary file
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
CLOCK_WATCH_US = 50_000
SILENT_US_MIN = 30_000_000
"""A supervisor turns a hundred times a second."""
PROBE_S_MAX = 10.0


def read_free_bytes(path: Path) -> int | None:
    """Return what an unprivileged process may still write below a path."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def find_abandoned_runs(base: Path = SHM) -> dict[Path, int]:
    """Return the live files of runs whose supervisor no longer lives, with the bytes that they take.

    A supervisor holds a lock on its run's folder for as long as it lives, however it ends. A folder of another user
    cannot be opened, and is left out.
    """
    abandoned: dict[Path, int] = {}
    for folder in sorted(base.glob("lastgood-*")):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            continue  # its owner lives
        finally:
            os.close(descriptor)
        abandoned[folder] = sum(_size_bytes(path) for path in folder.rglob("*"))
    return abandoned


def clean_abandoned_runs(base: Path = SHM) -> dict[Path, int]:
    """End what is left of killed runs and remove their live files; returns the folders with their bytes.

    Only a folder that a supervisor made is touched: one with its page and its list of sessions.
    """
    from lastgood.training.resuming.leftovers import end_leftovers, sessions_of
    from lastgood.training.rundir import RunDir, is_left_behind

    cleaned: dict[Path, int] = {}
    for folder, size_bytes in find_abandoned_runs(base).items():
        run = RunDir(folder)
        if folder.is_symlink() or not (run.life.is_file() and run.sessions.is_file()):
            continue
        try:
            if not is_left_behind(folder):
                continue
        except Refused:
            continue  # somebody took it up just now
        end_leftovers(folder, sessions=sessions_of(run))
        run.remove()
        cleaned[folder] = size_bytes
    return cleaned


def find_silent_supervisors(clock: Clock, base: Path = SHM) -> dict[Path, tuple[int, int]]:
    """Return the runs whose supervisor lives and has not turned for a while: its process, and for how long (us)."""
    from lastgood.training.resuming.life import read_life

    silent: dict[Path, tuple[int, int]] = {}
    for page in sorted(base.glob("lastgood-*/life")):
        sign = read_life(page)
        if sign is None or not sign.turn_us or not Path(f"/proc/{sign.pid}").exists():
            continue
        age_us = clock.monotonic_us() - sign.turn_us
        if age_us >= SILENT_US_MIN:
            silent[page.parent] = (sign.pid, age_us)
    return silent


def _size_bytes(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:
        return 0  # somebody removes it just now
    return status.st_blocks * 512


def read_memory_free_bytes() -> int | None:
    """Return the memory that could be used without swapping: the host's, or the container's if less."""
    amounts: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        amounts += [
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
        ]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        amounts += [int(limit) - int(used)] if limit != "max" else []
    except (OSError, ValueError):
        pass  # the root group has no limit file: the host's number stands
    return min(amounts, default=None)


def read_ptrace_scope() -> int | None:
    """Return the kernel's ptrace restriction, None where the kernel has none."""
    try:
        return int(PTRACE_SCOPE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def find_py_spy() -> str | None:
    """Return the py-spy of this environment, else the one on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


# A rank allows its dump the same way (PR_SET_PTRACER_ANY), so the probe asks exactly what a rank will ask.
_PROBE = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0); "
    "print('ready', flush=True); sys.stdin.read()"
)


def probe_stack_dump(py_spy: str) -> str | None:
    """Dump the stack of a short-lived child; return None when it worked, else the reason in a few words."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            dump = subprocess.run(
                [py_spy, "dump", "--pid", str(child.pid)],
                capture_output=True,
                text=True,
                timeout=PROBE_S_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        finally:
            child.kill()
    if dump.returncode == 0:
        return None
    lines = [line.strip() for line in dump.stderr.splitlines() if line.strip()]
    return lines[-1][:120] if lines else f"exit {dump.returncode}"


def read_clock_drift_us(clock: Clock) -> int:
    """Watch both clocks for a moment and return by how much they disagree about it."""
    wall_us, monotonic_us = clock.wall_us(), clock.monotonic_us()
    clock.sleep_us(CLOCK_WATCH_US)
    return (clock.wall_us() - wall_us) - (clock.monotonic_us() - monotonic_us)


def read_version(package: str) -> str | None:
    """Return a package's version from its metadata, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def read_versions() -> dict[str, str | None]:
    """Return what goes into a run's environment key, as far as it can be read without importing torch."""
    kernel = os.uname()
    return {
        "lastgood": read_version("lastgood"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": read_version("torch"),
        "numpy": read_version("numpy"),
        "py-spy": read_version("py-spy"),
        kernel.sysname.lower(): f"{kernel.release} {kernel.machine}",
    }


def read_sqlite_version() -> str | None:
    """Return the version of the SQLite that apsw brings along."""
    try:
        import apsw
    except ImportError:
        return None
    return apsw.sqlite_lib_version()


class LedgerFile(NamedTuple):
    """What stands where the ledger is to lie."""

    state: str
    problem: str | None = None
    """Why no ledger can be read or written there; None when one can."""
    action: str | None = None


def read_ledger_file(path: Path) -> LedgerFile:
    """Look at the place as a command would that uses it, and change nothing."""
    from lastgood.evidence.folder_words import refuse_folder
    from lastgood.ledger.place import default_folder
    from lastgood.ledger.schema import open_read_only

    try:
        refuse_folder(path)
        if os.path.isfile(path):
            open_read_only(path).close()
            return LedgerFile("a ledger is there")
    except LastgoodError as error:
        return LedgerFile("", f"{error.what}, found {error.found}", error.next)
    folder = path.absolute().parent
    above = next((p for p in (folder, *folder.parents) if os.path.exists(p)), Path("/"))
    if not os.path.isdir(above):
        return LedgerFile("", f"{above} is a file and no folder", "name another path")
    if above != folder != default_folder():
        make = f"check the name, or run: mkdir -p {shlex.quote(str(folder))}"
        return LedgerFile("", f"its folder {folder} does not exist", make)
    if not os.access(above, os.W_OK | os.X_OK):
        return LedgerFile("", f"{above} cannot be written by this user", f"run: ls -ld {above}")
    made = "" if above == folder else f", and its folder will be made in {above}"
    return LedgerFile(f"no ledger yet{made}")
