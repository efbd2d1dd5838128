"""A job under somebody else's launcher: torchrun, srun or pods, on any number of hosts.

Answers: where this process stands in the job, what its host writes down, and with which code it ends.
Read `place.py` and `spool.py` first, then `host.py`, the process that watches the ranks of one host. No torch here.
"""
