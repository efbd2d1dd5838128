"""What can fail together, and who serves what.

Read `domain.py` first (fault domains as sets of ranks, widening), then `topology.py` (the document that
declares them, with a digest for every event) and `inventory.py` (workers and their legal moves). All pure.
May import `base`, `contract` and `ledger`.
"""
