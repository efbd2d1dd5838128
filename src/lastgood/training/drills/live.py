"""Break a training job on purpose, end to end, and judge from records whether it held.

Three parties that share no code path: the job under its supervisor, an injector process whose log the supervisor
cannot read, and a twin in plain torch that nobody disturbs. Afterwards the injector's log is laid beside the
ledger: which fault was detected, how fast, was the right rank named, what was lost, and are the weights equal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.base.errors import RecoveryError
from lastgood.base.figures import FigureKind
from lastgood.faults.spec import IN_STEP, Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape, write_tape
from lastgood.ledger.store import open_store
from lastgood.training.drills import judging
from lastgood.training.drills.judging import FaultOutcome
from lastgood.training.drills.plain import run_plain
from lastgood.training.rundir import default_root
from lastgood.training.supervising.session import run_training

if TYPE_CHECKING:
    from lastgood.ledger.event import Event
    from lastgood.training.options import RunOptions
    from lastgood.training.supervising.supervisor import Supervisor

SETTLE_STEPS = 12
"""Steps between one recovery and the next fault, and behind the last."""
SLOW_STEPS = 150
"""So many steps a slow rank is given to cost as much as replacing it."""
MORE_STEPS = 4
_TWIN_LIMIT_US = 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """One drill: a supervised job, a tape, and where the evidence goes."""

    run: RunOptions
    """Its script must write `weights-rank<r>.json` to the folder behind `--out` and know `--plain` and `--steps`."""
    tape: Tape
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """What the records say."""

    faults: tuple[FaultOutcome, ...]
    is_bitwise_equal: bool
    steps: int
    exit_code: int

    @property
    def has_held(self) -> bool:
        """Every fault detected, the right rank named, recovered and verified, and the weights those of the twin."""
        return (
            self.exit_code == 0
            and self.is_bitwise_equal
            and all(fault.has_held for fault in self.faults)
        )


def demo_tape() -> Tape:
    """The five faults of `lastgood demo`."""
    killed_in_the_middle = _fault("kill a middle rank", FaultKind.SIGKILL, 2, is_first=True)
    others = [
        _fault("kill rank 0", FaultKind.SIGKILL, 0),
        _fault("stop a rank", FaultKind.SIGSTOP, 1),
        _fault("corrupt the newest snapshot", FaultKind.FLIP_SNAPSHOT, 3, then_sigkill=True),
        _fault("flip a parameter bit", FaultKind.FLIP_PARAMETER, 2, tensor="head.weight", bit=21),
    ]
    return Tape(
        faults=(killed_in_the_middle, *others),
        seed=0,
        provenance=Provenance(
            kind=FigureKind.ASSUMED, source="lastgood demo: faults chosen to exercise each path"
        ),
    )


def _fault(
    name: str, kind: FaultKind, rank: int, *, is_first: bool = False, **options: Any
) -> Fault:
    when = When(
        step=SETTLE_STEPS,
        after_recovered=not is_first,
        settle_steps=0 if is_first else SETTLE_STEPS,
    )
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=when, **options)


class Injecting:
    """Starts the injector once the job runs, and ends the job once the injector is done and all is recovered."""

    def __init__(self, options: DrillOptions, on_turn: Callable[[Supervisor], None] | None) -> None:
        self._options = options
        self._on_turn = on_turn
        self._process: subprocess.Popen[bytes] | None = None
        self._done_step: int | None = None
        own = [fault for fault in options.tape.faults if fault.kind in IN_STEP]
        self._fault_step = max((fault.when.step or 0 for fault in own), default=0)
        """Of the last fault that a step itself has: the injector does not wait for it."""
        slow = any(fault.kind is FaultKind.SLOW_STEP for fault in own)
        self._least_step = self._fault_step + (SLOW_STEPS if slow else 0)
        """The job goes on to this step at least, or until an incident shows that the fault came."""
        self.log = options.folder / "injector.jsonl"

    def turn(self, supervisor: Supervisor) -> None:
        """Called once a turn of the supervisor."""
        if self._on_turn is not None:
            self._on_turn(supervisor)
        if self._process is None:
            self._start()
        elif self._process.poll() is not None and supervisor.last_step is None:
            self._end_when_settled(supervisor)

    def _start(self) -> None:
        tape = self._options.folder / "tape.jsonl"
        write_tape(self._options.tape, tape)
        root = self._options.run.root or default_root(self._options.run.run_id)
        self._process = start_injector(root, tape=tape, log=self.log)

    def _end_when_settled(self, supervisor: Supervisor) -> None:
        """The last fault needs time to be noticed: let settled steps pass, with no incident open, before the end."""
        assert supervisor.state is not None
        step = supervisor.page.assessed_step
        if supervisor.state.case is not None:
            self._done_step = None
            if step >= self._fault_step:
                self._least_step = 0
        elif self._done_step is None:
            self._done_step = max(step, self._least_step)
        elif step >= self._done_step + SETTLE_STEPS:
            supervisor.finish_after(MORE_STEPS)

    def close(self) -> None:
        """End the injector, whatever it still waits for."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def start_injector(run_dir: Path, *, tape: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the process that plays a tape against the run whose live files lie in `run_dir`."""
    command = [sys.executable, "-m", "lastgood.faults.injector", "--run-dir", str(run_dir)]
    return subprocess.Popen(
        [*command, "--tape", str(tape), "--log", str(log)], stdin=subprocess.DEVNULL
    )


def run_drill(
    options: DrillOptions,
    *,
    listener: Callable[[Event], None] | None = None,
    on_turn: Callable[[Supervisor], None] | None = None,
    on_twin: Callable[[int], None] | None = None,
    on_twin_turn: Callable[[], None] | None = None,
) -> DrillResult:
    """Run the job, break it, run the twin, and judge; the verdicts become events of the same ledger."""
    injecting = Injecting(options, on_turn)
    try:
        result = run_training(options.run, listener=listener, on_turn=injecting.turn)
    finally:
        injecting.close()
    if result.exit_code != 0:
        return DrillResult(faults=(), is_bitwise_equal=False, steps=0, exit_code=result.exit_code)
    weights = _read_weights(options.folder, options.run.ranks)
    steps = weights[0]["steps"]
    if on_twin is not None:
        on_twin(steps)
    twin_folder = options.folder / "twin"
    twin_folder.mkdir()
    run_plain(
        options.run.script,
        ["--plain", "--steps", str(steps), "--out", str(twin_folder)],
        ranks=options.run.ranks,
        results=[twin_folder / f"weights-rank{rank}.json" for rank in range(options.run.ranks)],
        limit_us=_TWIN_LIMIT_US,
        on_turn=on_twin_turn,
    )
    twin = _read_weights(twin_folder, options.run.ranks)
    digests = {w["weights_sha256"] for w in (*weights, *twin)}
    is_equal = len(digests) == 1 and {w["steps"] for w in (*weights, *twin)} == {steps}
    with open_store(options.run.ledger) as store:
        events = list(store.events(run=options.run.run_id))
        outcomes = judging.judge(injecting.log, events, tape=options.tape)
        store.append(judging.annotations(outcomes, events, is_bitwise_equal=is_equal, steps=steps))
    return DrillResult(faults=outcomes, is_bitwise_equal=is_equal, steps=steps, exit_code=0)


def _read_weights(folder: Path, ranks: int) -> list[dict[str, Any]]:
    found = []
    for rank in range(ranks):
        path = folder / f"weights-rank{rank}.json"
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise RecoveryError(
                "a rank did not write its final weights",
                where=str(path),
                found=str(error),
                needs="a script that writes them at its end",
            ) from error
    return found
