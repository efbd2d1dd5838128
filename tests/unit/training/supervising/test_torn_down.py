"""Ranks that a signal ends while Python takes itself apart, behind the last step of a supervised run."""

import signal
from types import SimpleNamespace

from lastgood.signals.limits import Limits
from lastgood.training.supervising.ending import Ending
from lastgood.training.teardown import Leaving

ABORTED = -signal.SIGABRT


def ended(folder, *, code_of_script):
    """The code and the events of a run of one rank that was aborted; `code_of_script` is None where it came before."""
    events = []
    leaving = Leaving(folder / "w0")
    if code_of_script is not None:
        leaving.script_ended(code_of_script)
    leaving._note()
    supervisor = SimpleNamespace(
        workers={"w0": SimpleNamespace(exit_code=ABORTED, pid=1, kill=None)}, serving=("w0",), exit_code=None,
        run_dir=SimpleNamespace(status=lambda name: folder / name, stacks=folder), now_us=lambda: 0,
        options=SimpleNamespace(run_id="job", limits=Limits()),
        recorder=SimpleNamespace(record=lambda kind, **_: events.append(kind)),
        state=SimpleNamespace(case_count=0), watch=SimpleNamespace(next_step=7),
    )  # fmt: skip
    Ending(supervisor, SimpleNamespace())._wait_for_exits()  # type: ignore[arg-type]
    return supervisor.exit_code, events


def test_a_script_that_was_through_is_no_incident_and_its_code_is_the_runs(tmp_path):
    code, events = ended(tmp_path, code_of_script=3)
    assert code == 3
    assert "annotation" in events
    assert "incident.open" not in events


def test_a_script_that_was_not_is_named_and_the_run_ends_with_the_signal(tmp_path):
    code, events = ended(tmp_path, code_of_script=None)
    assert code == 128 + 6
    assert "incident.open" in events
