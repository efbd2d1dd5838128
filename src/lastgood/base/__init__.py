"""The words of the whole code base: errors, time, units, figures, canonical bytes, random streams.

May import the standard library and msgspec, and nothing else of lastgood. Read `errors.py` first, then
`figures.py`: a number with its provenance is the idea that the rest of the code leans on.
"""
