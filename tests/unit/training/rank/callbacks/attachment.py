"""Stands for `lastgood.attach()`: notes what a callback says, and asks for a stop behind a step."""

from contextlib import contextmanager
from types import SimpleNamespace


class Attachment:
    def __init__(self):
        self.said = []
        self.stop_after = None
        self.on_stop = None
        self.options = None
        self.place = SimpleNamespace(world=1)

    def attach(self, *, on_stop, **options):
        self.on_stop, self.options = on_stop, options
        return self

    def step(self, number, *, loss=None):
        self.said.append(("step", number, loss))
        if self.stop_after is not None and number >= self.stop_after:
            self.on_stop(number)
            raise SystemExit(75)

    @contextmanager
    def section(self, name, *, limit=None):
        self.said.append(("open", name))
        try:
            yield
        finally:
            self.said.append(("close", name))

    @property
    def steps(self):
        return [said[1] for said in self.said if said[0] == "step"]

    @property
    def losses(self):
        return [said[2] for said in self.said if said[0] == "step"]

    @property
    def without_losses(self):
        return [said[:2] for said in self.said]
