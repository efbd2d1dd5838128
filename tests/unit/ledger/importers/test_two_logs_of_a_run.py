"""A scheduler's records and the job's own log of one run, in one ledger: queueing from one, work from the other."""

from __future__ import annotations

from lastgood.evidence.imported_run_part import build_imported_run
from lastgood.ledger.ettr import measure_run
from tests.unit.ledger.importers.import_cases import NOW_US, import_text
from tests.unit.ledger.importers.test_goodput import T0, US, end, lines, start, steps, us

HEADER = "JobIDRaw|JobName|State|ExitCode|Submit|Start|End|ElapsedRaw|Restarts|NNodes|NodeList|FailedNode|AllocTRES\n"
JOBS = (
    f"7|train|NODE_FAIL|1:0|{T0 - 100}|{T0}|{T0 + 520}|520|0|2|n[1-2]|n1|gres/gpu=16\n"
    f"7|train|COMPLETED|0:0|{T0 + 520}|{T0 + 2400}|{T0 + 3420}|1020|1|2|n[3-4]||gres/gpu=16\n"
)


def both(folder):
    import_text(folder, HEADER + JOBS, name="sacct.psv", ledger="one")
    log = [start(20), *steps(0, 46, 30), start(2440), *steps(45, 99, 2850), end(3400)]
    return import_text(folder, lines(log), name="job.jsonl", ledger="one", run="slurm/7").events


def test_queueing_comes_from_the_scheduler_and_work_from_the_job(tmp_path):
    times = measure_run(both(tmp_path), run="slurm/7", as_of_us=NOW_US)
    wall = times.wall
    assert (wall.start_us, wall.end_us) == (us(-100), us(3420))
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "down.schedule": 100 + 1880,  # from the submission, and between the attempts
        "warmup": 30 + 450,
        "productive": 45 * 10 + 55 * 10,
        "lost": 2 * 10,  # steps 45 and 46 ran again
        "down.detect": 20,  # from the last step to the end that the scheduler recorded
        "unknown": 20,  # behind the end of the job
    }
    assert times.lost_device_time.value == 16 * (30 + 20 + 20 + 450)
    assert times.ettr.value == 1000 / 3520


def test_a_start_that_both_recorded_is_one_restart(tmp_path):
    section = build_imported_run(both(tmp_path), run="slurm/7", as_of_us=NOW_US)
    assert section.headline
    assert "with 1 restart;" in section.headline.sentence
    assert section.lead == "Read from: goodput, slurm_jobs. All times are those of its logs."
