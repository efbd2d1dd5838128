"""A name that belongs to a run which finished, or which trained something else, is not taken again."""

from pathlib import Path

import pytest

from lastgood.base.errors import Refused
from lastgood.training.resuming.interrupted import History
from lastgood.training.resuming.same_run import refuse_other_run

STARTED = {"command": ["jobs/train.py", "--lr", "1"], "world": 2, "contract_digest": "c" * 64}
HERE = {
    "run": "r",
    "ledger": "l.db",
    "script": str(Path("/work/jobs/train.py")),
    "world": 2,
    "contract_digest": "c" * 64,
}


def history(**changes):
    return History(**{"last_step": 9, "started": STARTED, **changes})


def test_a_run_that_was_preempted_goes_on_under_its_name():
    refuse_other_run(history(), HERE)


def test_a_run_that_finished_is_not_begun_again():
    with pytest.raises(Refused) as error:
        refuse_other_run(history(has_finished=True), HERE)
    assert "has finished" in str(error.value)
    assert "after step 9" in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"script": "/work/jobs/other.py"}, "the same script"),
        ({"world": 3}, "as many ranks"),
        ({"contract_digest": "d" * 64}, "the same contract"),
    ],
)
def test_another_script_world_or_contract_is_named(change, words):
    with pytest.raises(Refused) as error:
        refuse_other_run(history(), HERE | change)
    assert words in str(error.value)
    assert "choose another --run-id" in str(error.value)


def test_a_start_that_never_took_a_step_binds_nobody():
    refuse_other_run(history(last_step=None, has_finished=True), HERE | {"world": 3})


def test_an_older_ledger_that_does_not_say_what_it_started_binds_nobody():
    refuse_other_run(history(started={}), HERE)
