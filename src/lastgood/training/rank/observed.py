"""The process of a rank whose script is not changed: hook torch, then run the script as `python SCRIPT` would.

Started by the supervisor of observe mode as `python -m lastgood.training.rank.observed SCRIPT [ARGS]`, with torchrun's
environment. The script sees itself as `__main__`, with its own arguments and its folder first on the path.
"""

from __future__ import annotations

import os

if __name__ == "__main__" and os.environ.get("LASTGOOD_MODE") == "act":
    # Before torch, whose import takes seconds. In observe mode the job outlives whoever watches it.
    from lastgood.training.starter import end_with_starter

    end_with_starter()

import atexit
import ctypes
import runpy
import shutil
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.training.observe.ending import write_ending
from lastgood.training.rank.counting import Counting
from lastgood.training.rank.dump_thread import answer_dump_requests
from lastgood.training.rank.group import is_group_error
from lastgood.training.slot import StatusSlot
from lastgood.training.starter import has_starter
from lastgood.training.teardown import Leaving, flush_files

if TYPE_CHECKING:
    from types import TracebackType

_PR_SET_PTRACER = 0x59616D61
_PTRACER_ANY = ctypes.c_ulong(-1)


def main() -> None:
    """Run the script under observation."""
    worker = os.environ["LASTGOOD_WORKER"]
    let_in()
    folder = live_folder(worker)
    slot = StatusSlot(folder / "status" / worker)
    rank = int(os.environ["RANK"])
    slot.begin_generation(int(os.environ["LASTGOOD_ATTEMPT"]), rank)
    Counting(slot, rank=rank, first_step=folder / "first" / worker).install()
    answer_dump_requests(folder / "stacks", worker)
    script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    ending = folder / "endings" / worker
    leaving = Leaving(ending)
    try:
        _names = runpy.run_path(script, run_name="__main__")  # kept until its files are written
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        leaving.script_ended(code)
        write_ending(ending, slot, code=code)
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the script raised is said, and shown as Python does
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        leaving.script_ended(code)
        write_ending(ending, slot, code=code, error=error, is_group_error=is_group_error(error))
        traceback.print_exception(type(error), error, _of_script(error.__traceback__, script))
        sys.exit(code)
    else:
        leaving.script_ended(0)
        write_ending(ending, slot, code=0)
    finally:
        flush_files()


def let_in() -> None:
    """Let the stack dumper read this process where the kernel would refuse."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, _PTRACER_ANY)


def live_folder(worker: str) -> Path:
    """Return the folder of the run that started this rank, whatever lies under its name later.

    A rank goes on when its supervisor is killed, and the next start makes another folder of the same name, perhaps with
    a worker of the same name: so it is held by a descriptor. A rank that comes too late for its own gets one that
    nobody reads.
    """
    with suppress(OSError):
        held = os.open(os.environ["LASTGOOD_RUN_DIR"], os.O_PATH | os.O_DIRECTORY)
        if has_starter():  # its owner lives, so it was the right one
            return Path(f"/proc/self/fd/{held}")
        os.close(held)
    unread = Path(tempfile.mkdtemp(prefix="lastgood-unobserved-"))
    atexit.register(shutil.rmtree, unread, ignore_errors=True)
    for name in ("status", "first", "endings", "stacks"):
        (unread / name).mkdir()
    StatusSlot(unread / "status" / worker, create=True).close()
    os.environ["LASTGOOD_RUN_DIR"] = str(unread)  # for `lastgood.attach` in the script
    return unread


def _of_script(trace: TracebackType | None, script: str) -> TracebackType | None:
    """The trace from the script's own first frame on: what stands above it is this module and runpy."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found or trace


if __name__ == "__main__":
    # The script may import this module by its real name; both names must share one state.
    from lastgood.training.rank import observed  # noqa: PLW0406

    observed.main()
