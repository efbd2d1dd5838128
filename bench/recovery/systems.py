"""How each system is started, what it is told, and how it is ended. Every flag that matters for time is here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from others import INJECTOR_LOG, write_faults

from lastgood.training.drills.drill import Drill
from lastgood.training.drills.live import start_injector
from lastgood.training.rundir import default_root

HERE = Path(__file__).resolve().parent
WORLD = 4
STOP_LIMIT_S = 1.0
"""Limit after which lastgood takes a silent rank for hung: the same in every row and in the noise test."""


@dataclass(slots=True)
class Job:
    """A started job and everything that the bench started for it."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    on_turn: Callable[[], None] = lambda: None
    """Called while waiting: torchft's replicas are started again here, as an outer launcher would."""

    @property
    def run_folder(self) -> Path:
        """The live files of lastgood."""
        return default_root(self.folder.name)

    def end(self) -> None:
        """End the processes of this job, whatever state they are in, and nothing else; shared memory is given back."""
        family = []
        for process in self.processes:
            try:
                parent = psutil.Process(process.pid)
                family += [parent, *parent.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        known = {member.pid for member in family}
        family += [p for p in _marked(self.folder) if p.pid not in known]
        for member in family:
            try:
                member.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        for process in self.processes:
            process.wait()
        psutil.wait_procs(family, timeout=10)
        shutil.rmtree(self.run_folder, ignore_errors=True)


def _marked(folder: Path) -> list[psutil.Process]:
    """Processes of this job that lost their parent: they still carry its folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BENCH_OUT") == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(job: Job, command: list[str], **extra: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "BENCH_OUT": str(job.folder),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONWARNINGS": "ignore",
        **extra,
    }
    log = (job.folder / f"log-{len(job.processes)}.txt").open("ab")
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd=HERE,
    )
    job.processes.append(process)
    return process


def start_lastgood(
    job: Job, python: str, drill: Drill | None = None, *, script: str = "job_lastgood.py"
) -> None:
    """Four ranks and one spare; the durable checkpoint of the others is not needed and not made.

    With a drill: its faults, its spares and its checkpoints; a supervisor that is killed is started again at once.
    """
    del python
    command = [
        str(Path(sys.executable).with_name("lastgood")), "run", "--nproc-per-node", str(WORLD),
        "--spares", str(drill.run.spares if drill else 1), "--hang-after", f"{STOP_LIMIT_S}s",
        "--ledger", str(job.folder / "ledger.db"), "--run-id", job.folder.name,
    ]  # fmt: skip
    if drill is not None:
        tape = write_faults(drill, job.folder)
        command += ["--drill", "--fault-tape", str(tape)]
        if drill.run.checkpoint_every_us is not None:
            command += ["--checkpoint-dir", str(job.folder / "checkpoints")]
            command += ["--checkpoint-every", f"{drill.run.checkpoint_every_us // 1000}ms"]
    command.append(script)
    first = _start(job, command)
    if drill is None:
        return
    log = job.folder / INJECTOR_LOG
    job.processes.append(start_injector(job.run_folder, tape=tape, log=log))
    supervisors = [first]

    def again() -> None:
        if supervisors[-1].poll() is not None and len(supervisors) < drill.run.starts:
            supervisors.append(_start(job, command))

    job.on_turn = again


def start_torchrun(job: Job, python: str) -> None:
    """With the opt-out of the shared store, without which torch 2.13 does not restart reliably."""
    _start(
        job,
        [
            python, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(WORLD), "--max-restarts", "3",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "job_elastic.py",
        ],
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        BENCH_GROUP_TIMEOUT_S="10",
    )  # fmt: skip


def start_ft_launcher(job: Job, python: str) -> None:
    """Heartbeats of 5 s (its own documentation's smallest example), checked every second."""
    _start(
        job,
        [
            str(Path(python).with_name("ft_launcher")), "--nnodes", "1", "--nproc-per-node", str(WORLD),
            "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
            "--ft-rank-heartbeat-timeout", "5", "--ft-initial-rank-heartbeat-timeout", "60",
            "--ft-workload-check-interval", "1", "--ft-enable-nic-monitor", "false", "job_elastic.py",
        ],
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        BENCH_GROUP_TIMEOUT_S="60",
        BENCH_HEARTBEATS="1",
    )  # fmt: skip


def _store(job: Job, python: str, port: int) -> None:
    """A store in a process of its own, so that no rank's death takes it along."""
    _start(
        job,
        [
            python, "-c",
            ("import sys, time, torch.distributed as d\n"
            "s = d.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False)\n"
            "time.sleep(900)"),
            str(port),
        ],
    )  # fmt: skip


def _inprocess(job: Job, python: str, *, ranks: int, active: int) -> None:
    store, wrapper = free_port(), free_port()
    _store(job, python, store)
    for rank in range(ranks):
        _start(
            job,
            [python, "job_inprocess.py"],
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(wrapper),
            BENCH_WRAPPER_PORT=str(wrapper),
            BENCH_STORE_PORT=str(store),
            BENCH_ACTIVE=str(active),
        )


def start_inprocess(job: Job, python: str) -> None:
    """Without a reserve, as its examples show it: the world shrinks."""
    _inprocess(job, python, ranks=WORLD, active=0)


def start_inprocess_reserve(job: Job, python: str) -> None:
    """One rank in reserve: the world stays whole."""
    _inprocess(job, python, ranks=WORLD + 1, active=WORLD)


def start_torchft(job: Job, python: str) -> None:
    """Heartbeat and join limits of one second; a dead replica is started again at once."""
    port = free_port()
    _start(
        job,
        [
            str(Path(python).with_name("torchft_lighthouse")), "--min_replicas", "2", "--bind", f"127.0.0.1:{port}",
            "--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "1000", "--quorum_tick_ms", "50",
        ],
    )  # fmt: skip
    replicas: dict[int, subprocess.Popen[bytes]] = {}

    def start(rank: int) -> None:
        store = free_port()
        _store(job, python, store)
        replicas[rank] = _start(
            job,
            [python, "job_torchft.py"],
            TORCHFT_LIGHTHOUSE=f"http://127.0.0.1:{port}",
            REPLICA_GROUP_ID=str(rank),
            NUM_REPLICA_GROUPS=str(WORLD),
            BENCH_STORE_PORT=str(store),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(store),
        )

    def again() -> None:
        for rank, process in list(replicas.items()):
            if process.poll() is not None:
                start(rank)

    for rank in range(WORLD):
        start(rank)
    job.on_turn = again


SYSTEMS: dict[str, Callable[[Job, str], None]] = {
    "lastgood": start_lastgood,
    "torchrun": start_torchrun,
    "ft_launcher": start_ft_launcher,
    "nvrx in-process": start_inprocess,
    "nvrx in-process + 1 reserve": start_inprocess_reserve,
    "torchft": start_torchft,
}
DETECTION: dict[str, tuple[str, str]] = {
    "lastgood": ("its end is seen", "1 s without progress"),
    "torchrun": ("its end is seen", "10 s group time-out"),
    "ft_launcher": ("its end is seen", "5 s without a heartbeat"),
    "nvrx in-process": ("2 s group time-out", "2 s group time-out, 6 s hard time-out"),
    "nvrx in-process + 1 reserve": ("2 s group time-out", "2 s group time-out, 6 s hard time-out"),
    "torchft": ("1 s without a heartbeat", "5 s time-out of a collective"),
}
"""What each system waits for after SIGKILL and after SIGSTOP, as it is told above and in its job."""
