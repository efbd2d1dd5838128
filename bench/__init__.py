"""Scripts that measure, each with the peers it is measured against; a package so that no `bench.py` below hides it."""
