"""All drills in the order in which they are listed, the choice among them, and which may share a job."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from lastgood.base.errors import BadInput
from lastgood.training.drills import deaths, hangs, numerics, storage, watched
from lastgood.training.drills.drill import Drill, JobSettings, Outcome

DRILLS_PER_JOB_MAX = 8
JOB_START_S = 6
"""About what the start of a job costs on a quiet machine: every worker imports torch."""


def all_drills() -> tuple[Drill, ...]:
    """The whole catalogue."""
    return (*numerics.DRILLS, *hangs.DRILLS, *deaths.DRILLS, *storage.DRILLS, *watched.DRILLS)


def chosen_drills(names: str | None) -> tuple[Drill, ...]:
    """The drills or groups of a list like `kill-rank,hangs`, in the order of the catalogue; all when left out.

    Raises:
        BadInput: a name is neither a drill nor a group.
    """
    drills = all_drills()
    if names is None:
        return drills
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {*(d.name for d in drills), *(d.group for d in drills)}
    for name in wanted or [""]:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise BadInput(
                "no such drill", where="--faults", found=repr(name), needs="names of drills or groups",
                next=f"write {near[0]}" if near else "type: lastgood drill training --list",
            )  # fmt: skip
    return tuple(d for d in drills if d.name in wanted or d.group in wanted)


def jobs_of(drills: Sequence[Drill]) -> tuple[tuple[Drill, ...], ...]:
    """The drills by the job that they are played in, every drill once, in order.

    Two failures of one signature within one run would be a recurrence and widen the domain, so drills that expect
    the same symptom of the same ranks never share a job; neither do drills that want different jobs, or that end it.
    """
    shared: list[list[Drill]] = []
    settings: dict[int, JobSettings] = {}
    for drill in drills:
        is_single = (
            drill.is_alone or drill.needs_process or drill.expect.outcome is not Outcome.RECOVERED
        )
        place = next(
            (
                job for job in shared
                if not is_single and settings.get(id(job)) == drill.run and len(job) < DRILLS_PER_JOB_MAX
                and all(_signature(other) != _signature(drill) for other in job)
            ),
            None,
        )  # fmt: skip
        if place is None:
            place = []
            shared.append(place)
            if not is_single:
                settings[id(place)] = drill.run
        place.append(drill)
    return tuple(tuple(job) for job in shared)


def about_s(drills: Sequence[Drill]) -> int:
    """About how many seconds they take on a quiet machine, the starts of their jobs included."""
    return JOB_START_S * len(jobs_of(drills)) + sum(drill.about_s for drill in drills)


def _signature(drill: Drill) -> tuple[object, ...]:
    """What the recovery loop takes for the same failure; an exception is the same on whichever rank it appears."""
    symptom = drill.expect.symptom
    return (symptom, None if symptom == "exception" else drill.expect.ranks)
