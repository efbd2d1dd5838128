"""What counts as failure, who answers for it, and what has to be proved.

Read `taxonomy.py` first (the frozen words of an event), then `model.py` (what a person may write in a
contract), `load.py` (file in, contract or every problem with its line out) and `explain.py` (a contract
in plain words). May import `base` and `sim` only.
"""
