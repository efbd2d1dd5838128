"""A run whose supervisor is gone: what it left behind, whether a start is the same run, and what it goes on from.

Read `interrupted.py` first.
"""
