"""What is seen of the ranks: readings from slots and the kernel, detectors over them, and stacks of a suspect.

Read `watch.py` first.
"""
