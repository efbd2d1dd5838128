"""`lastgood.attach()`: signals, a spool, snapshots and coded exits for a script under somebody else's launcher.

Exit codes are the only words that a launcher hears. 75 says: nothing is wrong with this job, start it again (it was
asked to stop, or a peer died). 93 says: starting it again will not help (the same error of user code came back).
Every other end keeps Python's own code.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lastgood.base.errors import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE, BadInput
from lastgood.base.units import parse_duration_us
from lastgood.signals.reading import Phase
from lastgood.training.attach.failures import Failures, signature_of
from lastgood.training.attach.hopeless import end_where_no_step_comes
from lastgood.training.attach.live import Joined, LiveDir, StopPage, live_root
from lastgood.training.attach.place import NamedBy, Place, find_place
from lastgood.training.attach.spool import attempts_of
from lastgood.training.attach.warning import launcher_warnings, name_warning
from lastgood.training.observe.ending import write_ending
from lastgood.training.rank.attach_name import name_launch
from lastgood.training.rank.attach_snapshot import HostSnapshots
from lastgood.training.rank.counting import Counting, current_counting
from lastgood.training.rank.dump_thread import answer_dump_requests
from lastgood.training.rank.group import is_group_error
from lastgood.training.rank.observed import let_in
from lastgood.training.slot import StatusSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType, TracebackType

STOP_AFTER_STEPS = 2
"""From a notice to the last step: the other ranks are at most one step away, and must hear of it before they pass."""

_attached: list[Attached] = []


@dataclass(frozen=True, slots=True)
class _Settings:
    snapshots: HostSnapshots | None
    snapshot_every: int
    on_stop: Callable[[int], None] | None
    repeat_limit: int


def attach(
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    spool: str | os.PathLike[str] | None = None,
    run: str | None = None,
    snapshot_every: int = 0,
    snapshot_dir: str | os.PathLike[str] | None = None,
    on_stop: Callable[[int], None] | None = None,
    hang_after: str = "30s",
    repeat_limit: int = 2,
) -> Attached:
    """Return the attachment of this rank. Call it early: before the group, the wrapper and the first step are made.

    Args:
        model: with `optimizer`, what a snapshot holds; wrapped or bare.
        optimizer: see `model`.
        spool: folder of spools, one sub-folder a host [default: $LASTGOOD_SPOOL, else ./lastgood-spool].
        run: name of the run; all ranks must give the same [default: from the launcher].
        snapshot_every: steps between snapshots of this host; 0 for none.
        snapshot_dir: where snapshots lie [default: node-local, under the temporary folder].
        on_stop: called with the step when the job stops because it was asked to, on every rank, before it exits with 75.
        hang_after: floor of the limit after which a silent rank counts as hung.
        repeat_limit: so many times may the same error of user code end a run; the next time the exit code is 93.

    Raises:
        BadInput: the launcher's environment contradicts itself, or an argument has no meaning.
    """
    if _attached:
        return _attached[0]
    place = _own_place(run)
    folder = Path(spool or os.environ.get("LASTGOOD_SPOOL") or "lastgood-spool") / place.host
    if place.attempt is None:
        place = replace(place, attempt=1 + attempts_of(folder, place.run))
    assert place.attempt is not None
    if snapshot_every and (model is None or optimizer is None):
        raise BadInput(
            "a snapshot of nothing",
            where="lastgood.attach(snapshot_every=...)",
            needs="the model and the optimizer",
            next="write: lastgood.attach(model=model, optimizer=optimizer, snapshot_every=100)",
        )
    snapshots = None
    if model is not None and optimizer is not None:
        snapshots = HostSnapshots(_snapshot_folder(snapshot_dir, place), model, optimizer)
    settings = _Settings(snapshots, snapshot_every, on_stop, repeat_limit)
    watched = current_counting()
    if (
        watched is not None
    ):  # under `lastgood run`: its supervisor watches, and hears how the script ends
        stop = StopPage(Path(os.environ["LASTGOOD_RUN_DIR"]) / f"stop-{place.attempt}")
        attached = Attached(place, watched, stop, settings)
    else:
        live = LiveDir(live_root(run=place.run, host=place.host, attempt=place.attempt))
        attached = HostAttached(place, live, folder, settings)
        attached.begin(hang_after_us=parse_duration_us(hang_after))
    _attached.append(attached)
    attached.take_signals()
    return attached


def _own_place(run: str | None) -> Place:
    started_as = (os.getcwd(), *sys.argv)
    place = find_place(os.environ, hostname=os.uname().nodename, run=run, started_as=started_as)
    # Under `lastgood run` the supervisor has named the run.
    return place if current_counting() is not None else name_launch(place, os.environ)


def _snapshot_folder(given: str | os.PathLike[str] | None, place: Place) -> Path:
    if given is not None:
        return Path(given) / place.host
    # Not in memory: it must be there when the node comes back with the next attempt.
    base = Path(os.environ.get("TMPDIR", "/var/tmp")) / f"lastgood-snapshots-{os.getuid()}"  # noqa: S108
    return base / place.job / place.host


class Attached:
    """What a script may ask of its attachment; nothing needs to be called."""

    def __init__(
        self, place: Place, counting: Counting, stop: StopPage, settings: _Settings
    ) -> None:
        self.place = place
        self._counting = counting
        self._settings = settings
        self._stop = stop
        self._is_asked = False
        self._term_before: object = None
        """What SIGTERM did before; it does that until the first step is done."""
        self._is_term_due = False
        counting.on_step = self._behind_step

    # --- for the script ---------------------------------------------------------------------------

    @property
    def steps_done(self) -> int:
        """Newest step that this rank has done."""
        return self._counting.steps_done

    @property
    def is_stopping(self) -> bool:
        """True once the job was asked to stop."""
        return self._is_asked or self._stop.step > 0

    def step(self, number: int, *, loss: float | None = None) -> None:
        """Say that a step is done, by the script's own number; from the first call on optimizers are not counted."""
        if not self._counting.is_counted_by_script:
            self._counting.count_by_script(number)
        self._counting.step_done(number, loss=loss)

    def section(self, name: str, *, limit: str | None = None) -> AbstractContextManager[None]:
        """Declare a long phase outside the steps, with its own limit for the hang detector."""
        return self._section(name, 0 if limit is None else parse_duration_us(limit))

    @contextmanager
    def _section(self, name: str, limit_us: int) -> Generator[None]:
        self._counting.slot.open_section(name, limit_us)
        try:
            yield
        finally:
            self._counting.slot.close_section()
            self._counting.slot.enter(Phase.BETWEEN)

    def resume(self) -> int:
        """Load the newest snapshot that every rank has and whose bytes hold; returns its step, 0 when there is none.

        Call it on every rank, after `init_process_group`.
        """
        if self._settings.snapshots is None:
            raise BadInput(
                "nothing to load into",
                where="lastgood.attach",
                needs="the model and the optimizer",
                next="write: lastgood.attach(model=model, optimizer=optimizer, snapshot_every=100)",
            )
        step = self._settings.snapshots.restore()
        if step:
            self._counting.resume_from(step)
        return step

    # --- signals and steps ------------------------------------------------------------------------

    def take_signals(self) -> None:
        """Take the launcher's notices, where Python lets this thread take signals: SIGTERM from the first step on.

        Before it there is no step to stop behind. A rank that waits in `init_process_group` never comes back to Python
        to run a handler, and a launcher that ends the others would wait for it until it kills it.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._asked)
            self._term_before, self._is_term_due = signal.getsignal(signal.SIGTERM), True

    def _take_term(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._is_term_due = False
        if (
            is_main and signal.getsignal(signal.SIGTERM) == self._term_before
        ):  # else the script took it meanwhile
            signal.signal(signal.SIGTERM, self._asked)
            end_where_no_step_comes(lambda: self._stop.is_broken)

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        self._is_asked = True

    def _behind_step(self, step: int) -> None:
        """Snapshot when it is due, and leave behind the step on which all ranks agreed."""
        settings = self._settings
        if self._is_term_due:
            self._take_term()
        if not self._stop.step:
            self._stop.step = (
                self._agree(step + STOP_AFTER_STEPS) if self._is_asked else self._heard()
            )
        last = self._stop.step
        is_last = bool(last) and step >= last
        is_due = settings.snapshot_every and step % settings.snapshot_every == 0
        if (is_due or (is_last and settings.snapshot_every)) and self.place.local_rank == 0:
            assert settings.snapshots is not None
            settings.snapshots.save(step)
        if is_last:
            if settings.on_stop is not None:
                settings.on_stop(step)
            self._end(EXIT_REQUEUE)

    def _agree(self, step: int) -> int:
        """The last step, agreed through the job's store: whoever asks first decides."""
        store = self._shared_store()
        if store is not None:
            with suppress(RuntimeError, ValueError):
                return int(store.compare_set(self._stop_key, "", str(step)))
        return step

    def _heard(self) -> int:
        """The step that another host agreed on, whose notice may come earlier than this one's; 0 when there is none.

        Whoever was asked says so behind a step k, before it enters the collectives of step k + 1. One rank of each host
        asks behind every step, so it hears of it behind k + 1 at the latest, and its host stops behind k + 2 like all.
        """
        store = self._shared_store() if self.place.local_rank == 0 else None
        if store is not None:
            with suppress(RuntimeError, ValueError):
                if store.check([self._stop_key]):
                    return int(store.get(self._stop_key))
        return 0

    def _shared_store(self) -> dist.Store | None:
        """The job's store, where the job has other hosts: nothing else is shared with them."""
        if self.place.world == self.place.local_world or not dist.is_initialized():
            return None
        with suppress(RuntimeError, ValueError, AttributeError):
            return dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no other name for it
        return None

    @property
    def _stop_key(self) -> str:
        """A store may outlive the ranks and serve those that are started in their place."""
        return f"lastgood/stop/{self.place.attempt}"

    def _end(self, code: int) -> None:
        """Leave with a code, as `sys.exit` does: what the script cleans up behind itself still runs."""
        raise SystemExit(code)


class HostAttached(Attached):
    """The attachment under a launcher that is not ours: this process says itself how it ends, and starts the watcher."""

    def __init__(self, place: Place, live: LiveDir, spool: Path, settings: _Settings) -> None:
        super().__init__(place, _hook(place, live), live.stop_page, settings)
        self._live = live
        self._spool = spool
        self._exit_code: int | None = None
        self._failures = Failures(spool, run=place.job)
        self._previous_hook = sys.excepthook

    def begin(self, *, hang_after_us: int) -> None:
        """Join the live folder, start the watcher of this host, and take the exits."""
        # A watcher that was killed leaves its folder behind: nothing of an earlier job may speak for this one. A stop is
        # written behind a step, and no rank does one before all have come this far.
        self._stop.step = 0
        for kind in ("endings", "first"):
            self._live.path(kind, self.place.local_rank).unlink(missing_ok=True)
        self._live.join(self.place.local_rank, Joined(self.place.rank, os.getpid()))
        sys.excepthook = self._raised
        self._remember_exit()
        if self.place.local_rank == 0:
            self._start_watcher(hang_after_us)

    def _start_watcher(self, hang_after_us: int) -> None:
        place = self.place
        of_launcher = launcher_warnings(os.environ, torch_version=str(torch.__version__))
        about_name = name_warning(place)
        warnings = [*of_launcher, *([about_name] if about_name else [])]
        for warning in warnings:
            sys.stderr.write(f"lastgood: {warning}\n")
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        given: dict[str, Any] = {
            "live": str(self._live.root), "spool": str(self._spool), "name": f"{place.run}-a{place.attempt}-{os.getpid()}",
            "run": place.run, "attempt": place.attempt, "host": place.host, "launcher": place.launcher,
            "world": place.world, "local_world": place.local_world, "is_first_host": place.is_first_host,
            "is_new_run": restarts == 0 or place.named_by is NamedBy.ROUND, "hang_after_us": hang_after_us, "command": sys.argv,
            "versions": {"torch": str(torch.__version__)}, "warnings": warnings, "group_advice": of_launcher if restarts else [],
        }  # fmt: skip
        subprocess.Popen(
            [sys.executable, "-m", "lastgood.training.attach.host", json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what ends the rank's group must not end what describes it
        )

    # --- ends -------------------------------------------------------------------------------------

    def _raised(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """Note an exception that nobody caught, and turn it into the code that the launcher should hear."""
        is_group = is_group_error(error)
        peers = self._live.running_peers() if is_group else ()  # before the launcher ends them
        self._previous_hook(kind, error, trace)
        if isinstance(error, KeyboardInterrupt):
            self._exit_code = 130
            return
        code = EXIT_REQUEUE if is_group else 1
        if not is_group:
            seen = self._failures.add(signature_of(error), attempt=self.place.attempt or 1)
            if seen > self._settings.repeat_limit:
                code = EXIT_DO_NOT_REQUEUE
                sys.stderr.write(
                    f"lastgood: the same error ended this run {seen} times: do not requeue (code {code})\n"
                )
        self._exit_code = code
        write_ending(
            self._live.path("endings", self.place.local_rank),
            self._counting.slot,
            code=code,
            error=error,
            is_group_error=is_group,
            peers_alive=peers,
        )
        if code != 1:
            _leave(code)

    def _remember_exit(self) -> None:
        """Python tells an exit handler nothing about the code, so `sys.exit` is asked."""
        leave = sys.exit

        def remembered(code: object = None, /) -> None:
            self._exit_code = code if isinstance(code, int) else int(code is not None)
            leave(code)  # type: ignore[arg-type]

        sys.exit = remembered  # type: ignore[assignment]
        ending = self._live.path("endings", self.place.local_rank)

        def note() -> None:
            if not ending.exists():
                write_ending(ending, self._counting.slot, code=self._exit_code or 0)

        atexit.register(note)

    def _end(self, code: int) -> None:
        self._exit_code = code
        ending = self._live.path("endings", self.place.local_rank)
        # Before the slow way out of the interpreter is taken for a hang.
        write_ending(ending, self._counting.slot, code=code)
        super()._end(code)


def _hook(place: Place, live: LiveDir) -> Counting:
    """Hook torch, with a status page in the live folder."""
    let_in()
    slot = StatusSlot(live.path("status", place.local_rank), create=True)
    assert place.attempt is not None
    slot.begin_generation(place.attempt, place.rank)
    answer_dump_requests(live.root / "stacks", f"r{place.rank}")
    first = live.path("first", place.local_rank)
    return Counting(slot, rank=place.rank, first_step=first).install()


def _leave(code: int) -> None:
    """End with a code from within an exception hook, after the exit handlers: Python itself would say 1."""
    held = getattr(sys.stderr, "getvalue", None)
    if held is not None and sys.__stderr__ is not None:
        # torch's own hook, which a group installs, collects the trace to put the rank before its lines.
        sys.__stderr__.write(held())
        sys.__stderr__.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001 - the handlers of others, such as loggers, still run
    os._exit(code)
