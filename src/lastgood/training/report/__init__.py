"""The training section of a report, and of `lastgood.open`: events in, plain data out.

Read `section.py` first; the other files are one part of the section each.
"""
