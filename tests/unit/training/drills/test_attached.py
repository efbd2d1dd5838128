"""The launcher of the attached drill: two hosts, one spool each, the code of the job, and nothing left running."""

import sys
import textwrap

from lastgood.faults.live_run import LiveRun
from lastgood.training.drills.attached import AttachedJob

RANK = textwrap.dedent("""
    import json, os, signal, sys
    from pathlib import Path
    folder = Path(os.environ["LASTGOOD_SPOOL"]) / os.environ["NODE_NAME"]
    folder.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ["RANK"])
    print("rank", rank, "of", os.environ["WORLD_SIZE"], "local", os.environ["LOCAL_RANK"], flush=True)
    lines = [{"kind": "annotation", "body": {"exit_codes": {}}}]
    if rank == 0:
        lines = [{"kind": "step", "body": {"last": 9}}, *lines, {"kind": "run.end", "body": {"exit_code": 75}}]
    if rank in (0, 3):
        text = "".join(json.dumps({"crc": "0", "event": line}) + "\\n" for line in lines)
        (folder / "x.jsonl").write_text(text)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(75)
""")


def test_the_ranks_stand_on_two_hosts_and_the_job_ends_with_their_word(tmp_path):
    turns: list[int] = []
    job = AttachedJob(["-c", RANK], tmp_path, run_id="r", ranks=4, on_turn=lambda: turns.append(1))
    try:
        assert job.finish(limit_us=50_000_000) == 75
    finally:
        job.close()
    assert sorted(path.name for path in job.spool.iterdir()) == ["host-a", "host-b"]
    assert "rank 3 of 4 local 1" in job.said
    state = LiveRun(job.live).state()
    assert state is not None
    assert sorted(state.ranks) == [0, 1, 2, 3]
    assert turns


def test_a_job_that_does_not_end_is_given_up_and_ended(tmp_path):
    job = AttachedJob(["-c", "import time; time.sleep(100)"], tmp_path, run_id="r", ranks=2, on_turn=None)  # fmt: skip
    assert job.finish(limit_us=0) is None
    job.close()
    state = LiveRun(job.live).state()
    assert state is not None
    assert not any(_runs(member.pid) for member in state.ranks.values())


def _runs(pid: int) -> bool:
    from pathlib import Path

    try:
        return sys.executable in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
