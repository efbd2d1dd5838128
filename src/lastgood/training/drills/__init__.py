"""The catalogue of drills: a fault on purpose, what the records must show afterwards, and who answers for it.

Read `drill.py` first (one drill), then `play.py` (the job that a few drills share) and `verdict.py` (expected beside
found, line by line). The drills themselves are data: `hangs.py`, `deaths.py`, `storage.py`, `numerics.py`;
`catalogue.py` joins them.
"""
