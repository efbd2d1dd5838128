"""Answers: can a stranger see what happened, and recompute every claim from the records?

May import what stands below it (recovery, integrity, budget, locality, signals, faults, fleet, ledger,
contract, sim, base) and no workload: each workload builds its own section and `cli` passes the builders in.
Read `report.py` first: a report is plain data, and everything else here draws, stores or recomputes it.
"""
