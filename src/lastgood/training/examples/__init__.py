"""Training scripts that ship with lastgood, written as a user writes them.

They run as scripts inside a rank and are never imported, so they may use torch and read their arguments.
"""
