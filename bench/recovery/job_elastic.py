"""The job under torchrun or ft_launcher: plain DDP, a checkpoint on disk every ten steps, a restart loads it."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import workload

diary = workload.Diary()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

diary.write("imported")
monitor = None
if os.environ.get("BENCH_HEARTBEATS"):  # ft_launcher
    from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

    monitor = RankMonitorClient()
    monitor.init_workload_monitoring()
model = workload.make_model()
optimizer = workload.make_optimizer(model)
limit = dt.timedelta(seconds=float(os.environ["BENCH_GROUP_TIMEOUT_S"]))
dist.init_process_group("gloo", timeout=limit)
rank, world = dist.get_rank(), dist.get_world_size()
folder = Path(os.environ["BENCH_OUT"])
done = workload.load(folder, model, optimizer)
wrapped = torch.nn.parallel.DistributedDataParallel(model)
diary.write("ready", rank=rank, resumed=done)
while done < workload.STEPS_MAX:
    loss = workload.train_step(wrapped, optimizer, workload.batch_of(done + 1, rank, world))
    done += 1
    if monitor is not None:
        monitor.send_heartbeat()
    diary.write("step", rank=rank, step=done, loss=float(loss).hex(), members=world)
    if rank == 0 and done % workload.CHECKPOINT_EVERY == 0:
        workload.save(folder, done, model, optimizer)
