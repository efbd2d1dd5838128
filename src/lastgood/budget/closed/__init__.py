"""Closed forms: what a checkpoint plan is worth, computed without drawing a number.

Plain floats in and out, all times in one unit that the caller chooses (the plans use microseconds).
Read `regime.py` first, then `interval.py` and `efficiency.py`; each other module is one alternative.
"""
