"""Workload 1, training: torch.distributed jobs that lose ranks and go on, on one host.

Two sides that share no code but three small files. The supervisor (`supervising/`) never imports torch;
what runs inside a rank lives under `rank/`. Between them: `slot.py` (what a rank writes into shared memory),
`control.py` (what is said over a socket), `rundir.py` (where a run keeps its files).
Around them: `watching/` (who is at fault), `states/` (what can be restored), `resuming/` (after the supervisor's death),
`observe/` and `attach/` (jobs that are only watched), `report/`, `metrics/`, `drills/`.
Read `supervising/supervisor.py` first, then `rank/run.py`.
"""
