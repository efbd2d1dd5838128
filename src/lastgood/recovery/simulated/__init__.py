"""The recovery loop under seeded faults in a world that does not exist.

`python -m lastgood.recovery.simulated --seed 1234` replays one tape, `--seeds 2000` sweeps.
Read `world.py` (ranks, workers, states), `tape.py` (what goes wrong), `invariants.py` (what must hold).
"""
