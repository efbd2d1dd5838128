"""Observations in, verdicts out: are ranks moving, at the expected rate, to an acceptable state?

Pure functions of (state, observation, now); imports `faults`, `fleet`, `ledger`, `contract`, `sim`, `base`.
Read `reading.py` first: it is what every detector sees.
"""
