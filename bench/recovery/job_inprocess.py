"""The job under NVRx's in-process restart: the function runs again in the processes that live, and loads a checkpoint.

With `BENCH_ACTIVE` fewer ranks train than were started: the others are reserves, which keep the world whole.
"""

# No `from __future__ import annotations` here: the wrapper looks at the annotation of `call` itself.
import datetime as dt
import os
from pathlib import Path

import workload

diary = workload.Diary()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from nvidia_resiliency_ext import inprocess  # noqa: E402

diary.write("imported")
FOLDER = Path(os.environ["BENCH_OUT"])
GROUP_TIMEOUT_S = 2
"""Below the soft time-out: a rank that waits in gloo has to wake up before it is taken for hung and killed."""


def seconds(value: float) -> dt.timedelta:
    """Short for the many arguments below."""
    return dt.timedelta(seconds=value)


def train(call: inprocess.CallWrapper | None = None) -> None:
    """One attempt."""
    assert call is not None, "the wrapper fills it in"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore(
        str(call.iteration),
        dist.TCPStore(
            "127.0.0.1",
            int(os.environ["BENCH_STORE_PORT"]),
            is_master=False,
            timeout=seconds(30),
        ),
    )
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=seconds(GROUP_TIMEOUT_S)
    )
    model = workload.make_model()
    optimizer = workload.make_optimizer(model)
    done = workload.load(FOLDER, model, optimizer)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    diary.write("ready", rank=rank, resumed=done)
    while done < workload.STEPS_MAX:
        loss = workload.train_step(wrapped, optimizer, workload.batch_of(done + 1, rank, world))
        done += 1
        diary.write("step", rank=rank, step=done, loss=float(loss).hex(), members=world)
        if rank == 0 and done % workload.CHECKPOINT_EVERY == 0:
            workload.save(FOLDER, done, model, optimizer)


def main() -> None:
    """The wrapper with the short intervals of its own documentation's examples, and a tenth of a second where it may."""
    active = int(os.environ.get("BENCH_ACTIVE", "0"))
    layers = (
        inprocess.rank_assignment.MaxActiveWorldSize(active)
        if active
        else inprocess.rank_assignment.ActivateAllRanks()
    )
    wrapper = inprocess.Wrapper(
        store_kwargs={"port": int(os.environ["BENCH_WRAPPER_PORT"]), "host_name": "127.0.0.1"},
        rank_assignment=inprocess.Compose(layers, inprocess.rank_assignment.ShiftRanks()),
        monitor_thread_interval=seconds(0.1),
        monitor_process_interval=seconds(0.1),
        heartbeat_interval=seconds(0.1),
        progress_watchdog_interval=seconds(0.1),
        last_call_wait=seconds(0.1),
        soft_timeout=seconds(5),
        hard_timeout=seconds(6),
        heartbeat_timeout=seconds(5),
        termination_grace_time=seconds(1),
    )
    wrapper(train)()


if __name__ == "__main__":
    main()
