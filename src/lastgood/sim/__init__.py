"""A world that does not exist, run to the end: the discrete-event kernel under every simulator.

Imports `base` only. Read `kernel.py` first.
"""
