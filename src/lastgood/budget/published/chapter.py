"""The numbers of the source chapter, as printed, and the inputs from which they come."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from lastgood.base.figures import Figure, FigureKind
from lastgood.base.units import US_PER_DAY, US_PER_MIN
from lastgood.budget.plan import Plan, make_plan
from lastgood.budget.projection import Projection, project_mean_time, source_of_count
from lastgood.budget.scenario import Scenario


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers with the digits that are printed."""

    mean_hours: str
    young_minutes: str
    useful_percent: str
    projected_minutes: str


class ChapterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    id: str
    title: str
    source: str
    events: int
    window_days: int
    devices: int
    checkpoint_minutes: float
    detection_minutes: float
    recovery_minutes: float
    projected_devices: int
    printed: Printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Printed and recomputed."""

    facts: ChapterFacts
    plan: Plan
    projection: Projection


def read_chapter() -> Chapter:
    """Return the printed numbers and everything computed again from the same inputs."""
    place = resources.files("lastgood.budget.published") / "chapter.json"
    facts = msgspec.json.decode(Path(str(place)).read_bytes(), type=ChapterFacts)
    source = source_of_count(
        events=facts.events,
        window_us=facts.window_days * US_PER_DAY,
        devices=facts.devices,
        kind=FigureKind.REPORTED,
        source=f"{facts.events} unexpected interruptions in {facts.window_days} d; {facts.source}",
    )
    costs = {
        name: Figure(
            name=name,
            value=minutes * US_PER_MIN,
            unit="us",
            kind=FigureKind.ASSUMED,
            source="illustrative in the source; not reported for any run",
        )
        for name, minutes in (
            ("checkpoint_cost", facts.checkpoint_minutes),
            ("detection", facts.detection_minutes),
            ("recovery", facts.recovery_minutes),
        )
    }
    scenario = Scenario(name=facts.id, given={"mtti": source.mean_time, **costs})
    return Chapter(
        facts=facts,
        plan=make_plan(scenario, with_curve=False),
        projection=project_mean_time(
            source, devices=facts.projected_devices, no_back_test="the source holds one size only"
        ),
    )
