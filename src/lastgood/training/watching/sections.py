"""Declared sections: recorded, learned from, and said to be unlimited when nobody gave or taught them a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.units import format_duration
from lastgood.signals.limits import has_learned, section_key

if TYPE_CHECKING:
    from lastgood.training.control import SectionChanged
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervising.supervisor import Supervisor

NO_LIMIT = "a section without a limit"
APART = "a section opens behind different steps"


class Sections:
    """What the supervisor remembers of the sections of a run."""

    def __init__(self, supervisor: Supervisor) -> None:
        """No section is open."""
        self._supervisor = supervisor
        self._began_us: dict[tuple[str, str], int] = {}
        self._said: set[str] = set()
        self._attempt = 0
        self._openers: dict[str, set[int]] = {}
        """Name -> every rank that ever opened it: one that a single rank opens for itself is nobody else's."""
        self._open: dict[int, tuple[str, int]] = {}
        """Rank -> the section that it is in, and the step behind which it opened it, in the present attempt."""
        self._opened: set[tuple[int, str, int]] = set()
        """(Rank, name, step) of the present attempt."""
        self._said_apart: set[str] = set()

    def hear(self, worker: WorkerProcess, message: SectionChanged) -> None:
        """A rank opened or closed a section."""
        supervisor = self._supervisor
        supervisor.recorder.record(
            "section.begin" if message.is_open else "section.end",
            t_occurred_us=message.wall_us,
            ranks=(message.rank,),
            body={"name": message.name, "state": message.state},
        )
        place = (worker.name, message.name)
        self._note(message)
        if message.is_open:
            self._began_us[place] = message.wall_us
            self._say_unlimited(message)
            return
        began_us = self._began_us.pop(place, None)
        # One that a fault cut short says nothing about how long it takes.
        if began_us is not None and not supervisor.raised and supervisor.is_running:
            supervisor.watch.learn_section(message.name, message.wall_us - began_us)

    def _note(self, message: SectionChanged) -> None:
        attempt = self._supervisor.recorder.attempt
        if self._attempt != attempt:
            self._attempt = attempt
            self._open.clear()
            self._opened.clear()
        if message.is_open:
            self._openers.setdefault(message.name, set()).add(message.rank)
            self._open[message.rank] = (message.name, message.step)
            self._opened.add((message.rank, message.name, message.step))
        else:
            self._open.pop(message.rank, None)

    def look(self) -> None:
        """Say once a name that a rank is in a section which another one passed by, though it opened it before.

        A counter of the script's own does that: it begins at 0 again in a spare. What follows is an error of the
        process group that names the wrong rank, so it is said before anybody is blamed.
        """
        supervisor = self._supervisor
        attempt = supervisor.recorder.attempt
        if attempt != self._attempt:
            return
        for rank, (name, step) in list(self._open.items()):
            if name in self._said_apart or len(self._openers[name]) == 1:
                continue
            views = {r: supervisor.workers[w].slot.view() for r, w in enumerate(supervisor.serving)}
            passed = {
                other: view.step
                for other, view in views.items()
                if other in self._openers[name]
                and view.generation == attempt
                and view.step > step
                and (other, name, step) not in self._opened
            }
            if passed:
                self._say_apart(name, {**passed, rank: step}, rank)

    def _say_apart(self, name: str, steps: dict[int, int], inside: int) -> None:
        self._said_apart.add(name)
        self._supervisor.recorder.record(
            "annotation",
            ranks=tuple(sorted(steps)),
            body={
                "text": APART,
                "section": name,
                "inside": inside,
                "steps": {str(rank): step for rank, step in sorted(steps.items())},
                "next": "decide by run.steps_done or run.epoch",
            },
        )

    def _say_unlimited(self, message: SectionChanged) -> None:
        """Say once a name how late a hang in it would be noticed."""
        supervisor, name = self._supervisor, message.name
        if name in self._said or message.limit_us:
            return
        limits = supervisor.watch.limits
        if has_learned(limits, section_key(name)):
            return
        self._said.add(name)
        supervisor.recorder.record(
            "annotation",
            body={
                "text": NO_LIMIT,
                "section": name,
                "limit_us": limits.section_floor_us,
                "next": f'run.section("{name}", limit="{format_duration(limits.section_floor_us // 10)}")',
            },
        )
