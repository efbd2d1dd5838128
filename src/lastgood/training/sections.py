"""Declared sections: recorded, learned from, and said to be unlimited when nobody gave or taught them a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.units import format_duration
from lastgood.signals.limits import has_learned, section_key
from lastgood.signals.reading import Phase

if TYPE_CHECKING:
    from lastgood.training.control import SectionChanged
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervisor import Supervisor

NO_LIMIT = "a section without a limit"


class Sections:
    """What the supervisor remembers of the sections of a run."""

    def __init__(self, supervisor: Supervisor) -> None:
        """No section is open."""
        self._supervisor = supervisor
        self._began_us: dict[tuple[str, str], int] = {}
        self._said: set[str] = set()

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
        if message.is_open:
            self._began_us[place] = message.wall_us
            self._say_unlimited(worker, message.name)
            return
        began_us = self._began_us.pop(place, None)
        # One that a fault cut short says nothing about how long it takes.
        if began_us is not None and not supervisor.raised and supervisor.is_running:
            supervisor.watch.learn_section(message.name, message.wall_us - began_us)

    def _say_unlimited(self, worker: WorkerProcess, name: str) -> None:
        """Say once a name how late a hang in it would be noticed."""
        supervisor = self._supervisor
        view = worker.slot.view()
        if name in self._said or view.phase is not Phase.SECTION or view.section_limit_us:
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
