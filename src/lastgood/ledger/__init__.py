"""What happened: events, their proof, and what follows from them (incidents, exposure, wall time, ETTR).

Imports `contract`, `sim`, `base`. Read `event.py` (what a record holds), `store.py` (how it becomes durable),
`verify.py` (how a stranger checks it), then `walltime.py` and `ettr.py` (what the records say about time).
"""
