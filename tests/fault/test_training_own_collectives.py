"""Collectives of the script's own: in a subgroup that nobody cuts, and in a section outside of every step."""

import os

import pytest

from lastgood.contract.starter import starter_text
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.signals.limits import Limits
from lastgood.training.options import RunOptions
from lastgood.training.supervising.session import run_training
from tests.fault.training_scripts import OWN_COLLECTIVES

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(300)]
SOFT_S = 2


def run_job(folder, *, where):
    script, marks, contract = folder / "own.py", folder / "marks", folder / "contract.yaml"
    script.write_text(OWN_COLLECTIVES)
    marks.mkdir()
    contract.write_text(starter_text().replace("softDeadline: 30s", f"softDeadline: {SOFT_S}s"))
    options = RunOptions(
        script=script, arguments=(str(marks), where), ranks=3, spares=3, contract=contract,
        run_id=f"test-{folder.name}-{os.getpid()}", ledger=folder / "ledger.db",
        limits=Limits(step_floor_us=10_000_000, warmup_floor_us=60_000_000),
    )  # fmt: skip
    code = run_training(options).exit_code
    with open_store(folder / "ledger.db", create=False) as store:
        events = list(store.events())
    (incident,) = fold_incidents(events)
    return code, incident, {path.read_text() for path in marks.glob("weights-*")}


@pytest.mark.parametrize("where", ["subgroup", "section"])
def test_a_death_amid_collectives_of_the_scripts_own_is_named_and_bounded(tmp_path, where):
    """Ranks that sit in a collective that is not cut are taken out by the deadline; those that end of it are not blamed."""
    code, incident, weights = run_job(tmp_path, where=where)
    assert (code, len(weights)) == (0, 1)
    assert (incident.symptom, incident.ranks, incident.outcome) == (
        "process_exit",
        (1,),
        "recovered",
    )
    assert incident.lost_steps == 0
    assert incident.isolate_us is not None
    assert incident.isolate_us < (SOFT_S + 5) * 1_000_000
