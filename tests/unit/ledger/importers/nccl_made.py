"""Flight-recorder dumps as a rank would leave them, made here."""

from __future__ import annotations

from typing import Any

START_S = 1_793_601_000


def made_dump(
    *, called: int, completed: int, ranks: list[int], name: str = "0", op: str | None = None
) -> dict[str, Any]:
    """A rank that called so many collectives, one a second, and saw so many of them complete."""
    return {
        "version": "2.5",
        "pg_config": {name: {"name": name, "desc": "default_pg", "ranks": str(ranks)}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": called,
                "last_started_collective": min(called, completed + 1),
                "last_completed_collective": completed,
            }
        },
        "entries": [made_entry(seq, completed, name, op) for seq in range(1, called + 1)],
        "nccl_comm_state": {},
    }


def made_entry(seq: int, completed: int, name: str, op: str | None) -> dict[str, Any]:
    is_done = seq <= completed
    created_ns = (START_S + seq) * 10**9
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/venv/torch/distributed/c10d.py", "line": 28},
            {"name": "step", "filename": "/srv/train.py", "line": 40},
        ],
        "record_id": seq - 1,
        "pg_id": 0,
        "process_group": (name, "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": op if op and not is_done else "nccl:all_reduce",
        "time_created_ns": created_ns,
        "state": "completed" if is_done else "started" if seq == completed + 1 else "scheduled",
        "time_discovered_started_ns": created_ns + 1000,
        "time_discovered_completed_ns": created_ns + 5000 if is_done else None,
        "retired": is_done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
