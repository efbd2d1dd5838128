"""Logs that a site already has, as events of the ledger: one module a format, one driver for all of them.

Imports `ledger`, `contract`, `base`. Read `importer.py` (what a format implements), `registry.py` (which formats there
are), `driver.py` (how a file becomes events) and `quality.py` (what is said about what was not taken).
"""
