"""What others published about failures: facts typed in from the source, each with where it stands in print.

Answers: what was reported, and does it agree with its own counts? May import `base` and `contract`. Read `facts.py` first.
"""
