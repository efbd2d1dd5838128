"""The numbers of a live run for a scraper.

Read `declared.py` for what there is, then `page.py` for how it is said and `server.py` for who may ask.
"""
