"""The states that a run could go back to: snapshots in shared memory, checkpoints on disk, room for both.

Read `sources.py` for the order in which they are tried. Nobody here reads a tensor: that is `rank/`.
"""
