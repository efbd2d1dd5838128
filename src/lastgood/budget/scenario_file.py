"""A scenario file in, a scenario or every problem of the file with its line out.

    apiVersion: lastgood.dev/v1
    kind: PlanScenario
    metadata: {name: chapter}
    spec:
      mtti: {events: 419, window: 54d, basis: reported, source: "arXiv 2407.21783"}
      checkpoint_cost: {value: 1min, basis: measured, source: "job 7, 40 checkpoints", ci: [55s, 70s]}
      detection: 1min          # a bare value is assumed
      recovery: 1min

A value is bare or a mapping of `value`, `basis` (measured, reported, assumed, fitted or simulated), `source`, `ci`
(low and high) and `level` (0.95). A mean time may be `events` in a `window` instead; its interval is then exact
Poisson. `stops` maps a fault domain to its own mean time; `levels` is a list of levels of checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from lastgood.base.errors import BadInput
from lastgood.base.figures import Figure, FigureKind, Interval
from lastgood.budget.scenario import (
    LEVEL,
    NEEDS,
    NOTHING,
    QUANTITIES,
    UNITS,
    LevelInput,
    Measure,
    Quantity,
    Scenario,
    interval_of,
    number_of,
)
from lastgood.contract.yaml_reader import Document, KeyPath, parse_document, shorten

API_VERSION, KIND = "lastgood.dev/v1", "PlanScenario"
FILE_BYTES_MAX = 256 * 1024
BASES = {
    "measured": FigureKind.MEASURED,
    "reported": FigureKind.REPORTED,
    "fitted": FigureKind.MODELLED,
    "assumed": FigureKind.ASSUMED,
    "simulated": FigureKind.SIMULATED,
}
_TOP_KEYS = ("apiVersion", "kind", "metadata", "spec")
_SPEC_KEYS = (*QUANTITIES, "stops", "levels")
_VALUE_KEYS = ("value", "basis", "source", "ci", "level", "n")
_COUNT_KEYS = ("events", "window", "basis", "source", "level")
LEVEL_COUNT_MAX = 12


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises `Problems` with every problem of the file at once."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(
            "the scenario cannot be read",
            where=str(path),
            found=(error.strerror or "an unreadable file").lower(),
            needs="a YAML file of kind PlanScenario",
        ) from error
    return parse_scenario(raw, source=str(path))


def parse_scenario(raw: bytes, *, source: str) -> Scenario:
    """The same from bytes; `source` stands in the problems."""
    if not raw.strip():
        raise BadInput("an empty scenario", where=source, needs=f"a mapping of kind {KIND}")
    document = parse_document(raw, source=source)
    document.raise_problems()
    return _Reader(document, source).scenario()


class _Reader:
    """Walks the plain value of a document and notes every problem at its key."""

    def __init__(self, document: Document, source: str) -> None:
        self.document = document
        self.source = source

    def scenario(self) -> Scenario:
        top = self.mapping((), self.document.value, _TOP_KEYS)
        for key, needed in (("apiVersion", API_VERSION), ("kind", KIND)):
            if top.get(key) != needed:
                self.add(
                    (key,), found=top.get(key, "nothing"), needs=needed, write=f"{key}: {needed}"
                )
        metadata = self.mapping(("metadata",), top.get("metadata", {}), ("name",))
        name = metadata.get("name", Path(self.source).stem)
        spec = self.mapping(("spec",), top.get("spec", {}), _SPEC_KEYS)
        given = {
            key: figure
            for key in spec
            if key in QUANTITIES
            and (figure := self.figure(("spec", key), spec[key], QUANTITIES[key]))
        }
        stops = self.stops(("spec", "stops"), spec.get("stops"))
        levels = self.levels(("spec", "levels"), spec.get("levels"))
        if stops and "mtti" in given:
            self.add(("spec", "stops"), found="mtti and stops", needs="one of them")
        self.document.raise_problems()
        return Scenario(name=str(name), given=given, stops=stops, levels=levels)

    def add(self, path: KeyPath, *, found: object, needs: str, write: str = "") -> None:
        self.document.add(path, found=shorten(str(found)), needs=needs, write=write)

    def mapping(self, path: KeyPath, value: object, known: tuple[str, ...]) -> dict[str, object]:
        """A mapping whose keys are all known."""
        if not isinstance(value, dict):
            self.add(path, found=_words(value), needs="a mapping")
            return {}
        plain: dict[str, object] = {}
        for key, inside in value.items():
            if key in known:
                plain[key] = inside
                continue
            needs = f"one of {', '.join(known)}" if len(known) < 10 else "an input of a plan"
            near = _nearest(str(key), known)
            inside_spec = None if path else _nearest(str(key), _SPEC_KEYS)
            if inside_spec and (near is None or inside_spec == key):
                # The name of an input, or nearer to one than to what may stand at the top.
                needs, near = "every input of a plan under spec:", f"{inside_spec} under spec:"
            self.add((*path, key), found="an unknown key", needs=needs, write=near or "")
        return plain

    def figure(self, path: KeyPath, value: object, quantity: Quantity) -> Figure | None:
        """A bare value, or a mapping that says where it comes from."""
        if not isinstance(value, dict):
            number = self.number(path, value, quantity)
            return (
                None
                if number is None
                else _figure(quantity, number, FigureKind.ASSUMED, self.at(path))
            )
        if "events" in value and quantity.is_mean_time:
            return self.counted(path, self.mapping(path, value, _COUNT_KEYS), quantity)
        parts = self.mapping(path, value, _VALUE_KEYS)
        if parts.get("value") is None:
            self.add(path, found="no value", needs="value: and where it comes from")
            return None
        number = self.number((*path, "value"), parts["value"], quantity)
        kind, source = self.basis(path, parts)
        level = self.level(path, parts)
        interval = self.ci(path, parts, number, quantity, level)
        n = parts.get("n")
        if number is None:
            return None
        return Figure(
            name=quantity.name,
            value=number,
            unit=UNITS[quantity.measure],
            kind=kind,
            interval=interval,
            n=n if isinstance(n, int) and n > 0 else None,
            source=source,
        )

    def number(self, path: KeyPath, value: object, quantity: Quantity) -> float | None:
        where = f"{self.source}:{self.document.line_of(path)}"
        try:
            return number_of(quantity, value, where=where)
        except BadInput as problem:
            is_bare = (
                quantity.measure is Measure.DURATION
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            )
            self.add(
                path,
                found=value if problem.found is None else problem.found,
                needs=NEEDS[Measure.DURATION] if is_bare else problem.needs or problem.what,
                write=f"{value}s" if is_bare else "",
            )
            return None

    def counted(self, path: KeyPath, parts: dict[str, object], quantity: Quantity) -> Figure | None:
        """A mean time from a count in a window, with the exact Poisson interval."""
        from lastgood.budget.intervals import garwood

        events = parts.get("events")
        window_q = QUANTITIES["window"]
        window = self.number((*path, "window"), parts.get("window"), window_q)
        kind, source = self.basis(path, parts)
        level = self.level(path, parts)
        if not isinstance(events, int) or isinstance(events, bool) or not 0 < events < 10**12:
            self.add((*path, "events"), found=_words(events), needs="a whole number above 0")
            return None
        if window is None:
            return None
        rate = garwood(events, window, level=level)
        interval = Interval(lo=1 / rate.hi, hi=1 / rate.lo, level=level, method="exact Poisson")
        return Figure(
            name=quantity.name,
            value=window / events,
            unit="us",
            kind=kind,
            interval=interval,
            n=events,
            source=source,
        )

    def basis(self, path: KeyPath, parts: dict[str, object]) -> tuple[FigureKind, str]:
        basis = parts.get("basis", "assumed")
        if basis not in BASES:
            self.add((*path, "basis"), found=basis, needs=f"one of {', '.join(BASES)}")
            basis = "assumed"
        source = parts.get("source")
        if source is not None and not isinstance(source, str):
            self.add((*path, "source"), found=source, needs="text")
        if basis != "assumed" and not source:
            self.add(
                (*path, "source"),
                found="nothing",
                needs=f"where this {basis} value comes from",
                write='source: "..."',
            )
        return BASES[str(basis)], str(source or self.at(path))

    def level(self, path: KeyPath, parts: dict[str, object]) -> float:
        level = parts.get("level", LEVEL)
        if isinstance(level, int | float) and 0.5 <= level < 1:
            return float(level)
        self.add((*path, "level"), found=level, needs="a level from 0.5 to below 1")
        return LEVEL

    def ci(
        self,
        path: KeyPath,
        parts: dict[str, object],
        number: float | None,
        quantity: Quantity,
        level: float,
    ) -> Interval | None:
        if "ci" not in parts:
            return None
        here, ends = (*path, "ci"), parts["ci"]
        if not isinstance(ends, list) or len(ends) != 2:
            self.add(here, found=_words(ends), needs="a list of low and high")
            return None
        low, high = (self.number((*here, i), end, quantity) for i, end in enumerate(ends))
        if low is None or high is None or number is None:
            return None
        try:
            return interval_of(
                low,
                number,
                high,
                where=self.at(path),
                shown=f"{ends[0]} .. {parts['value']} .. {ends[1]}",
                level=level,
                method="as given",
            )
        except BadInput as problem:
            self.add(here, found=problem.found, needs=problem.needs or "")
            return None

    def stops(self, path: KeyPath, value: object) -> dict[str, Figure]:
        if value is None:
            return {}
        if not isinstance(value, dict) or not value:
            self.add(path, found=_words(value), needs="fault domains with their mean times")
            return {}
        found = {}
        for name, inside in value.items():
            figure = self.figure((*path, name), inside, QUANTITIES["mtti"])
            if figure:
                found[str(name)] = figure
        return found

    def levels(self, path: KeyPath, value: object) -> tuple[LevelInput, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not 1 <= len(value) <= LEVEL_COUNT_MAX:
            self.add(path, found=_words(value), needs=f"a list of 1 to {LEVEL_COUNT_MAX} levels")
            return ()
        found = []
        for index, inside in enumerate(value):
            here = (*path, index)
            keys = ("name", "mtti", "checkpoint_cost", "recovery")
            parts = self.mapping(here, inside, keys)
            figures = {}
            for key in keys[1:]:
                value = parts.get(key, "0s" if key == "recovery" else None)
                figure = self.figure((*here, key), value, QUANTITIES[key])
                if figure is not None:
                    figures[key] = figure
            if len(figures) == 3:
                name = str(parts.get("name", f"level {index + 1}"))
                found.append(LevelInput(name=name, **figures))
        return tuple(found)

    def at(self, path: KeyPath) -> str:
        return f"{Path(self.source).name}:{self.document.line_of(path)}"


def _figure(quantity: Quantity, number: float, kind: FigureKind, source: str) -> Figure:
    return Figure(
        name=quantity.name, value=number, unit=UNITS[quantity.measure], kind=kind, source=source
    )


def _words(value: object) -> str:
    if value is None:
        return NOTHING
    return (
        "a list"
        if isinstance(value, list)
        else "a mapping"
        if isinstance(value, dict)
        else str(value)
    )


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known key that was probably meant."""
    import difflib

    plain = name.replace("-", "_")
    return next(iter(difflib.get_close_matches(plain, known, n=1, cutoff=0.6)), None)
