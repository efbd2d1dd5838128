"""Jobs whose script is not changed: watched from outside, and in act mode restarted from their own checkpoints.

Answers: which rank is at fault, what every rank was doing, and when the job moved on by itself.
Read `supervisor.py` first, then `watcher.py` and `case.py`; nothing here imports torch.
"""
