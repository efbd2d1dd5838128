"""The supervisor of one host: starts the ranks, hears them, carries out what the recovery loop decides, ends the run.

Read `supervisor.py` first, then `effects.py`; `session.py` is the whole of one run from outside. No torch here.
"""
