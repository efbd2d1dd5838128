"""The command line: one small module per group of commands, loaded only when one of them is called.

May import everything below it. Read `main.py` first; `lazy.py` is why `lastgood --help` stays fast, and
`failure.py` decides what a person sees when something goes wrong, and with which exit code.
"""
