"""Logs that a site already has, as events of the ledger: one module a format, one driver for all of them."""
