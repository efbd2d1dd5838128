"""Where `lastgood project` takes its rate from: exactly one source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput
from lastgood.base.units import parse_duration_us
from lastgood.cli.verified_ledger import check_ledgers

if TYPE_CHECKING:
    from lastgood.budget.projection import BackTest, RateSource
    from lastgood.cli.plan_inputs import Gathered
    from lastgood.evidence.rates_records import RatesQuestion

ONE_SIZE = "the source holds one size only"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """A rate with its back-tests and the arguments that name it."""

    source: RateSource
    back_tests: tuple[BackTest, ...] = ()
    no_back_test: str = ONE_SIZE
    arguments: tuple[str, ...] = ()
    inputs: Gathered | None = None


def source_for(
    *,
    question: RatesQuestion,
    scenario: Path | None,
    ledger: Path | None,
    preset: str | None,
    events: int | None,
    window: str | None,
    source_devices: int | None,
) -> FoundSource:
    """The one source that was named.

    Raises:
        BadInput: none, or more than one.
        Refused: its exposure is not known, or it is no rate at all.
    """
    named = [
        name
        for name, value in (
            ("SCENARIO", scenario),
            ("--ledger", ledger),
            ("--preset", preset),
            ("--events", events),
        )
        if value is not None
    ]
    if len(named) != 1:
        raise BadInput(
            "a projection needs one source",
            found=" and ".join(named) or "none",
            needs="one of --ledger, --preset, a SCENARIO file, or --events with --window and --source-devices",
        )
    if window is not None and events is None:
        raise BadInput(
            "a window belongs to a count", where="--window", found=named[0], needs="--events N"
        )
    if preset is not None and source_devices is not None:
        raise BadInput(
            "a published rate has its own devices",
            where="--source-devices",
            found=f"--preset {preset}",
            needs="one of the two",
        )
    if ledger is not None:
        return _of_ledger(ledger, source_devices, question)
    if preset is not None:
        return _of_preset(preset)
    if scenario is not None:
        return _of_scenario(scenario, source_devices)
    assert events is not None
    return _of_count(events, window, source_devices)


def _of_count(events: int, window: str | None, source_devices: int | None) -> FoundSource:
    from lastgood.budget.projection import source_of_count

    if window is None:
        raise BadInput(
            "a count needs its window", found=f"--events {events}", needs="--window, such as 54d"
        )
    window_us = parse_duration_us(window, where="--window")
    if not window_us:
        raise BadInput("a window lasts", where="--window", found=window, needs="more than zero")
    source = source_of_count(
        events=events,
        window_us=window_us,
        devices=source_devices,
    )
    arguments = (
        "--events", str(events), "--window", window, "--source-devices", str(source_devices),
    )  # fmt: skip
    return FoundSource(source=source, arguments=arguments)


def _of_preset(preset: str) -> FoundSource:
    if preset == "llama3":
        from lastgood.budget.published.chapter import read_chapter

        return FoundSource(source=read_chapter().projection.source, arguments=("--preset", preset))
    from lastgood.budget.published.clusters import cluster_source

    source, tests = cluster_source(preset)
    return FoundSource(source=source, back_tests=tests, arguments=("--preset", preset))


def _of_ledger(ledger: Path, source_devices: int | None, question: RatesQuestion) -> FoundSource:
    from lastgood.cli.plan_inputs import Gathered, spinner
    from lastgood.evidence.plan_records import back_tests, ledger_inputs, rate_source

    check_ledgers([ledger])
    with spinner("reading the ledger"):
        found = ledger_inputs(ledger, question)
    source = rate_source(
        found.records, injected_count=found.injected_count, option="--source-devices"
    )
    assert found.records is not None
    tests, reason = back_tests(found.records)
    devices = ("--source-devices", str(source_devices)) if source_devices else ()
    return FoundSource(
        source=source,
        back_tests=tests,
        no_back_test=reason,
        arguments=("--ledger", str(ledger), *devices),
        inputs=Gathered(scenario=found.scenario, ledger=found, arguments=()),
    )


def _of_scenario(path: Path, source_devices: int | None) -> FoundSource:
    """The mean time of a scenario file, at the number of devices that the file names."""
    from lastgood.base.errors import Refused
    from lastgood.base.units import format_duration
    from lastgood.budget.projection import RateSource
    from lastgood.budget.scenario_file import load_scenario

    scenario = load_scenario(path)
    scenario.require(("mtti",), is_file=True)
    mean = scenario.figure("mtti")
    if source_devices is None and not scenario.has("devices"):
        raise Refused(
            "a mean time without exposure gives no law per device",
            where=str(path),
            found="mtti and no number of devices at risk",
            needs="devices in the file, or --source-devices",
        )
    devices = float(source_devices or scenario.value("devices"))
    words = f"a mean of {format_duration(float(mean.value or 0))} on {devices:,.0f} devices"
    seen = (
        f"{mean.n} interruptions"
        if mean.n
        else "a number of interruptions that the file does not name"
    )
    source = RateSource(
        mean_time=mean,
        devices=devices,
        devices_min=devices,
        devices_max=devices,
        window=words,
        exposure=seen,
    )
    extra = ("--source-devices", str(source_devices)) if source_devices else ()
    return FoundSource(source=source, arguments=(str(path), *extra))
