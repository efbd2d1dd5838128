"""Where a rank stands, out of the environments that torchrun, srun and pods give."""

import pytest

from lastgood.base.errors import BadInput
from lastgood.training.attach.place import find_place
from lastgood.training.attach.warning import launcher_warnings

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job-9",
    "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_PROCID": "3", "SLURM_NTASKS": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURMD_NODENAME": "gpu-b",
}  # fmt: skip


def test_under_torchrun_the_ranks_and_restarts_are_torchruns():
    place = find_place(TORCHRUN, hostname="h1")
    assert (place.launcher, place.run, place.host) == ("torchrun", "job-9", "h1")
    assert (place.rank, place.world, place.local_rank, place.local_world) == (5, 8, 1, 4)
    assert place.attempt == 3
    assert not place.is_first_host


def test_under_srun_the_tasks_of_a_node_come_from_the_step():
    place = find_place(SLURM, hostname="ignored")
    assert (place.launcher, place.run, place.host) == ("slurm", "slurm-77", "gpu-b")
    assert (place.rank, place.world, place.local_rank, place.local_world) == (3, 5, 1, 2)
    last = {**SLURM, "SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}
    assert find_place(last, hostname="h").local_world == 1


def test_a_requeue_of_slurm_is_another_attempt_and_restarts_of_torchrun_count_within_it():
    assert find_place(SLURM, hostname="h").attempt == 1
    assert find_place({**SLURM, "SLURM_RESTART_COUNT": "2"}, hostname="h").attempt == 201
    both = {**TORCHRUN, "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"}
    assert find_place(both, hostname="h").attempt == 103
    assert find_place(both, hostname="h").run == "slurm-77"


def test_a_pod_that_counts_nothing_leaves_the_attempt_open():
    place = find_place({"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2"}, hostname="train-1-x")
    assert (place.launcher, place.rank, place.world) == ("kubernetes", 1, 2)
    assert place.attempt is None


def test_without_a_launcher_it_is_rank_0_of_1():
    place = find_place({}, hostname="laptop")
    assert (place.launcher, place.rank, place.world, place.run) == ("plain", 0, 1, "attached")
    assert place.is_first_host


def nameless(folder: str, *, attempt: int = 0, local_rank: int = 0, world: int = 2, **more: str):
    """As torchrun starts a rank that was given no `--rdzv-id`, which is how most call it."""
    ranks = {"RANK": str(local_rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "2"}  # fmt: skip
    error_file = f"/tmp/torchelastic_q/{folder}/attempt_{attempt}/{local_rank}/error.json"
    return find_place(
        {
            **TORCHRUN,
            **ranks,
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_ERROR_FILE": error_file,
            **more,
        },
        hostname="h",
    )


def test_two_launches_of_torchrun_without_a_name_are_two_runs_of_one_job():
    first, second = nameless("none_x7f_2k1a"), nameless("none_b4q9zz10")
    assert (first.run, second.run) == ("attached.x7f_2k1a", "attached.b4q9zz10")
    assert first.job == second.job == "attached"


def job_of(*started_as: str, **environ: str) -> str:
    return find_place(environ, hostname="h", started_as=started_as).job


def test_a_job_without_a_name_goes_by_its_folder_and_command_line():
    """Snapshots of another one of the same shape must not be loaded, and its errors must not be counted."""
    own = job_of("/work", "train.py", "--lr", "1")
    assert job_of("/work", "train.py", "--lr", "1") == own
    assert own.startswith("attached-")
    others = {
        job_of("/other", "train.py", "--lr", "1"),
        job_of("/work", "other.py", "--lr", "1"),
        job_of("/work", "train.py", "--lr", "2"),
        job_of("/work", "train.py", "--lr", "1", "--lora-rank", "8"),
    }
    assert len(others - {own}) == 4
    assert job_of("/work", "train.py", "--lr", "1", LASTGOOD_RUN="mine") == "mine"


@pytest.mark.parametrize(
    "given", [("--local-rank", "3"), ("--local_rank=3",), ("--node_rank", "1", "-rank", "0")]
)
def test_what_is_different_in_each_rank_does_not_name_the_job(given):
    assert job_of("/work", "train.py", *given, "--lr", "1") == job_of(
        "/work", "train.py", "--lr", "1"
    )


def test_the_ranks_and_restarts_of_one_launch_are_one_run():
    again = nameless("none_x7f2k1ab", attempt=1, local_rank=1)
    assert again.run == nameless("none_x7f2k1ab").run
    assert again.attempt == 2


def test_a_launch_on_several_hosts_or_with_a_name_is_named_alike_everywhere():
    assert nameless("none_x7f2k1ab", world=4).run == "attached"
    assert nameless("none_x7f2k1ab", LASTGOOD_RUN="mine").run == "mine"
    assert nameless("none_x7f2k1ab", TORCHELASTIC_ERROR_FILE="/dev/null").run == "attached"
    assert nameless("none_x7f2k1ab", SLURM_JOB_ID="7").run == "slurm-7"


@pytest.mark.parametrize(
    "change", [{"RANK": "eight"}, {"RANK": "8"}, {"LOCAL_RANK": "4"}, {"LOCAL_WORLD_SIZE": "0"}]
)
def test_numbers_that_cannot_be_are_refused(change):
    with pytest.raises(BadInput):
        find_place({**TORCHRUN, **change}, hostname="h")


def test_a_name_that_is_not_safe_in_a_path_is_made_so():
    assert find_place({}, hostname="h", run="../my run").run == "my-run"


def test_the_shared_store_of_torchrun_is_warned_about_unless_the_opt_out_is_set():
    (warning,) = launcher_warnings(TORCHRUN, torch_version="2.13.0")
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in warning
    assert launcher_warnings({**TORCHRUN, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, torch_version="2.13.0") == []  # fmt: skip
    assert launcher_warnings({**TORCHRUN, "TORCHELASTIC_MAX_RESTARTS": "0"}, torch_version="2.13.0") == []  # fmt: skip
    assert launcher_warnings(SLURM, torch_version="2.13.0") == []
