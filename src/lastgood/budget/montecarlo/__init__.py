"""Checkpoint plans by simulation: what the closed forms leave out, and the tail that a mean hides.

Read `model.py` (what happens in the simulated world), then `kernel.py` (the loop), `draws.py` (the random numbers)
and `replicate.py` (many runs, quantiles with intervals). Everything that comes out is *simulated*.
"""
