"""Faults on purpose: what to break, when, and the process that breaks it.

Read `spec.py` first (one fault), then `tape.py` (an ordered list of faults, the one format that injection
and the simulated job share). `live_run.py` reads a run directory, `inject.py` breaks one thing in it,
`injector.py` is the process that plays a tape; `in_step.py` serves the faults that only the step itself can
have. May import `base`, `contract`, `ledger` and `fleet`; never `training`, so the injector shares no code
with what it breaks.
"""
