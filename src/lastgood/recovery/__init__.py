"""Verdicts in, verified recovery out: diagnosis, quarantine, last good state, the loop, verification.

Pure: no sockets, no processes, no files. The same loop runs on real ranks and under the seeded simulator.
Read `messages.py` (what goes in and out), then `loop.py` (the transition table).
"""
