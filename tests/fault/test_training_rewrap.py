"""A fresh DDP wrapper before every step from step 2 on must not change a bit, at four ranks and several buckets.

Without the throw-away passes it does: DDP starts again with its first bucket layout.
"""

import json
from pathlib import Path

import pytest

from lastgood.training.drills.plain import run_plain
from tests.fault.training_drill import JOB, RANKS

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
REWRAPPED = Path(__file__).with_name("rewrapped_job.py")
STEPS = 12


def weights_after(folder, *flags, job=REWRAPPED):
    folder.mkdir()
    run_plain(
        job,
        ["--steps", str(STEPS), "--out", str(folder), *flags],
        ranks=RANKS,
        results=[folder / f"weights-rank{rank}.json" for rank in range(RANKS)],
        limit_us=100_000_000,
    )
    return {
        json.loads(path.read_text())["weights_sha256"] for path in folder.glob("weights-*.json")
    }


def test_wrapping_anew_before_every_step_gives_the_bits_of_plain_torch(tmp_path):
    plain = weights_after(tmp_path / "plain", "--plain", job=JOB)
    assert len(plain) == 1, "the replicas of plain torch differ"
    assert weights_after(tmp_path / "rewrapped", "--discards", "1") == plain


def test_without_throw_away_passes_it_does_not(tmp_path):
    """Shows that the test above can fail, and why the passes are taken."""
    plain = weights_after(tmp_path / "plain", "--plain", job=JOB)
    assert weights_after(tmp_path / "bare", "--discards", "0") != plain
