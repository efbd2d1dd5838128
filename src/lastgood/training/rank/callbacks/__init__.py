"""Callbacks of training frameworks: they tell `lastgood.attach()` what the framework does.

One module a framework, which imports it; `sealing.py` says which of the framework's own checkpoints still holds.
Users import them from `lastgood.training.frameworks`. The framework keeps its loop, its wrapper and its checkpoints,
so what recovers is the hard path: all ranks end and start again from the newest checkpoint that holds.
"""
