"""A run that a rank refused: its last checkpoint is waited for, and a person may end the wait."""

import signal
from types import SimpleNamespace

import pytest

from lastgood.base.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_REFUSED, LastgoodError
from lastgood.signals.limits import Limits
from lastgood.training import control
from lastgood.training.supervising.ending import Ending


def refused(code: int, *, presses: int = 0) -> LastgoodError:
    """What the run ends with; `presses` of Ctrl-C come while its last checkpoint is written."""
    supervisor = SimpleNamespace(
        options=SimpleNamespace(limits=Limits()), run_dir=SimpleNamespace(stacks=None), recorder=None,
        has_gone_on=True, exit_code=None, now_us=lambda: 0,
    )  # fmt: skip

    def keep_newest() -> None:
        for _ in range(presses):
            ending.notice(signal.SIGINT)

    ending = Ending(supervisor, SimpleNamespace(keep_newest=keep_newest))  # type: ignore[arg-type]
    with pytest.raises(LastgoodError, match="no room for a snapshot") as caught:
        ending.refuse(control.ScriptRefused(text="no room for a snapshot", exit_code=code))
    return caught.value


@pytest.mark.parametrize("code", [EXIT_BAD_INPUT, EXIT_REFUSED])
@pytest.mark.parametrize("presses", [0, 1])
def test_it_ends_with_the_code_of_the_refusal(code, presses):
    assert refused(code, presses=presses).exit_code == code


@pytest.mark.parametrize("code", [EXIT_BAD_INPUT, EXIT_REFUSED])
def test_a_second_ctrl_c_ends_it_as_interrupted_and_the_refusal_is_still_said(code):
    assert refused(code, presses=2).exit_code == EXIT_INTERRUPTED
