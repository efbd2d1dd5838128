"""The process of a worker: import first, check itself, then run the user's script up to `lastgood.start`.

Started by the supervisor as `python -m lastgood.training.rank.worker SCRIPT [ARGS]`. It imports torch and warms it
before it parks; it never forks, since torch has threads by then.
"""

from __future__ import annotations

if __name__ == "__main__":
    # Before torch, whose import takes seconds.
    from lastgood.training.starter import end_with_starter

    end_with_starter()

import ctypes
import faulthandler
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

import torch

from lastgood.base.errors import LastgoodError
from lastgood.training import control
from lastgood.training.control import Channel
from lastgood.training.life_lock import hold_life_lock
from lastgood.training.rank import environment
from lastgood.training.rank.golden import golden_digest
from lastgood.training.rank.link import Link
from lastgood.training.rank.raised import step_raised
from lastgood.training.rundir import RunDir
from lastgood.training.slot import ControlPage, StatusSlot
from lastgood.training.teardown import Leaving, flush_files
from lastgood.training.watching.fatal import keep_fatal_errors
from lastgood.training.watching.stacks import STACK_SIGNAL, path_by_signal

EXIT_ERROR = 1
"""Python's own code for an error that nobody caught."""
_PR_SET_PTRACER = 0x59616D61
_PTRACER_ANY = ctypes.c_ulong(-1)

_links: list[Link] = []
_kept: list[object] = []


def current_link() -> Link | None:
    """Return this process's link to its supervisor, or None outside `lastgood run`."""
    return _links[0] if _links else None


def main() -> None:
    """Run the script under supervision."""
    _let_supervisor_in()
    link = _connect()
    _links.append(link)
    if os.environ.get("LASTGOOD_OWN_LOG"):
        faulthandler.enable()
    else:
        keep_fatal_errors(link.run.stacks, link.worker)
    hold_life_lock(link.run.status(link.worker))
    _answer_stack_signal(link)
    digest = golden_digest()
    link.listen()
    link.channel.send(
        control.Hello(worker=link.worker, pid=os.getpid(), golden=digest, versions=_versions())
    )
    environment.guard()
    script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    leaving = Leaving(link.run.status(link.worker))
    try:
        _names = runpy.run_path(script, run_name="__main__")  # kept until its files are written
    except LastgoodError as error:
        place = _line_of(script, error)
        text = f"{place}: {error}" if place else str(error)
        link.channel.send(control.ScriptRefused(text=text, exit_code=error.exit_code))
        _leave(error.exit_code)
    except SystemExit as end:
        # Alone this is a fault, together it is the script's own end: the supervisor knows what the others do.
        _end_run(link, exit_code=_code_of(end))
        leaving.script_ended(_code_of(end))
        raise
    except Exception as error:  # noqa: BLE001 - whatever the script did not catch
        _say_error(link, script, error)
        leaving.script_ended(EXIT_ERROR)
        # Not at once: whoever registered something for the end of the process still gets it.
        sys.exit(EXIT_ERROR)
    else:
        _end_run(link, exit_code=0)
        leaving.script_ended(0)
    finally:
        flush_files()
        # gloo's threads would abort the interpreter on its way out.
        if link.on_process_end is not None:
            link.on_process_end()
        link.group.leave()


def _line_of(script: str, error: BaseException) -> str:
    """Where in the script an error came from, as `train.py:12`; empty when it did not come from there."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == script]
    return f"{Path(script).name}:{places[-1].lineno}" if places else ""


def _code_of(end: SystemExit) -> int:
    """The exit code of `sys.exit(...)`, as Python itself takes it."""
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else EXIT_ERROR


def _end_run(link: Link, *, exit_code: int) -> None:
    """Say that this rank is done, and wait until all of them are; alone, nobody lets it go."""
    if link.on_script_end is not None:
        link.on_script_end(exit_code)


def _say_error(link: Link, script: str, error: Exception) -> None:
    """Tell the supervisor what the script did not catch: it says it once, however many ranks raise it."""
    view = link.slot.view()
    trace = _own_trace(script, error)
    if os.environ.get("LASTGOOD_OWN_LOG"):
        sys.stderr.write(trace)  # on a shared terminal the supervisor shows it
    if link.on_script_end is None and view.generation == 0:
        link.channel.send(control.ScriptFailed(text=trace))
        return
    link.channel.send(step_raised(error, generation=view.generation, step=view.step, trace=trace))


def _own_trace(script: str, error: BaseException) -> str:
    """The trace from the script's own first frame on: what stands before it is this package and `runpy`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _let_supervisor_in() -> None:
    """Let the supervisor dump this process's stacks where the kernel would refuse."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, _PTRACER_ANY)


def _answer_stack_signal(link: Link) -> None:
    """Write the stacks of all threads on a signal, in C: also when a thread holds the interpreter lock for good."""
    out = path_by_signal(link.run.stacks, link.worker).open("w")
    _kept.append(out)  # the handler writes to the descriptor for as long as the process lives
    faulthandler.register(STACK_SIGNAL, file=out, all_threads=True)


def _connect() -> Link:
    worker = os.environ["LASTGOOD_WORKER"]
    run = RunDir(Path(os.environ["LASTGOOD_RUN_DIR"]))
    end = socket.socket(fileno=int(os.environ["LASTGOOD_CHANNEL"]))
    return Link(
        worker=worker,
        channel=Channel(end, control.ToWorker),
        run=run,
        slot=StatusSlot(run.status(worker)),
        page=ControlPage(run.control),
    )


def _versions() -> dict[str, str]:
    found = {"torch": str(torch.__version__), "python": ".".join(map(str, sys.version_info[:3]))}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def _leave(code: int) -> None:
    flush_files()
    os._exit(code)


if __name__ == "__main__":
    # The script imports this module by its real name; both names must share one state.
    from lastgood.training.rank import worker  # noqa: PLW0406

    worker.main()
