"""Recompute a bundle: does its ledger really give its numbers?

Four questions in order, and the first that fails ends it: do the files hash to the manifest, does the ledger
verify and have the bundled tree head, does every value computed again from that ledger agree with the stored
one (integers and text exactly, floats within 1e-9 relative), and is the page the drawing of those values.
The stored numbers are only compared with, never used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.canonical import float_from_hex, is_close
from lastgood.base.errors import BadInput, LastgoodError
from lastgood.evidence import archive
from lastgood.evidence.assemble import Builders, build_report, chosen_run, events_of_run
from lastgood.evidence.bundle import read_contract
from lastgood.evidence.checked_bundle import contract_note, ledger_mismatch, read_head
from lastgood.evidence.html import render_html, without_charts
from lastgood.evidence.manifest import Manifest, Mismatch, first_wrong_file, read_manifest
from lastgood.evidence.rates_report import fleet_part
from lastgood.evidence.report import Report, figures_in, plain
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead

RELATIVE_MAX = 1e-9


class Recomputed(msgspec.Struct, frozen=True, kw_only=True):
    """What the recomputation found."""

    is_equal: bool
    figure_count: int
    """Figures compared; 0 when it ended before."""
    value_count: int
    """All values compared, those of charts and texts included."""
    first_difference: Mismatch | None
    run: str | None
    root: str
    size: int
    version: str
    """Of the lastgood that wrote the bundle."""
    notes: tuple[str, ...] = ()


def recompute_bundle(
    bundle: Path,
    *,
    builders: Builders,
    version: str,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Recomputed:
    """Recompute a bundle elsewhere and compare; the bundle itself is only read.

    Raises:
        BadInput: it is not a bundle, or a file in it cannot be read as what it should be.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lastgood-recompute-") as name,
        _named_as_in_the_bundle(Path(name)),
    ):
        folder = Path(name)
        on_stage("unpacking")
        archive.unpack(bundle, folder)
        manifest = read_manifest(folder)
        wrong = first_wrong_file(manifest, folder)
        head = read_head(folder)
        if wrong is None:
            on_stage("verifying the ledger")
            wrong = ledger_mismatch(folder, head)
        if wrong is not None:
            return _ended(manifest, head, wrong)
        on_stage("recomputing")
        report = _recompute(folder, manifest, head, builders)
        on_stage("comparing")
        return _compare(folder, manifest, head, report, version=version)


@contextmanager
def _named_as_in_the_bundle(folder: Path) -> Generator[None]:
    """Errors name the file inside the bundle; where we unpacked it says nothing to anybody, and is gone by then."""
    try:
        yield
    except LastgoodError as error:
        for part in ("where", "found", "needs", "next"):
            text = getattr(error, part)
            if isinstance(text, str):
                setattr(error, part, text.replace(f"{folder}/", ""))
        raise


def _recompute(folder: Path, manifest: Manifest, head: TreeHead, builders: Builders) -> Report:
    contract = read_contract(folder / archive.CONTRACT, source=archive.CONTRACT)
    with read_store(folder / archive.LEDGER) as store:
        events = events_of_run(
            store, chosen_run(store, manifest.run) if manifest.run is not None else None
        )
    try:
        fleet = fleet_part(folder / archive.LEDGER, manifest.rates)
        return build_report(
            events,
            contract,
            question=manifest.question,
            head=head,
            builders=builders,
            fleet=fleet.section if fleet else None,
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        ArithmeticError,
        IndexError,
        RecursionError,
    ) as error:
        # The ledger verifies, so somebody recorded something that no builder expects: bad input, not a defect.
        raise BadInput(
            "the bundled ledger cannot be evaluated",
            where=archive.LEDGER,
            found=f"{type(error).__name__}: {error}",
        ) from error


def _compare(
    folder: Path, manifest: Manifest, head: TreeHead, report: Report, *, version: str
) -> Recomputed:
    try:
        stored = msgspec.json.decode((folder / archive.FIGURES).read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            "the stored figures cannot be read", where=archive.FIGURES, found=str(error)
        ) from error
    walk = _Walk()
    difference = walk.first_difference(stored, plain(report), "")
    notes: list[str] = [] if manifest.share is None else [manifest.share.note]
    if difference is None and manifest.version == version:
        difference = _page_mismatch(folder, report, notes)
    elif difference is None:
        notes.append(
            f"the page was written by lastgood {manifest.version} and not compared with that of {version}"
        )
    contract = contract_note(folder, manifest.run) if difference is None else None
    notes += [contract] if contract is not None else []
    return Recomputed(
        is_equal=difference is None,
        figure_count=len(figures_in(report)),
        value_count=walk.count,
        first_difference=difference,
        run=manifest.run,
        root=head.root_hex,
        size=head.size,
        version=manifest.version,
        notes=tuple(notes),
    )


def _page_mismatch(folder: Path, report: Report, notes: list[str]) -> Mismatch | None:
    """Where the bundled page differs from the drawing of the recomputed values.

    Curves may be drawn a little differently elsewhere (text is measured with that machine's fonts), so they alone may
    differ; then a note says so, because somebody could have redrawn them.
    """
    page, again = (
        (folder / archive.PAGE).read_text(encoding="utf-8", errors="replace"),
        render_html(report),
    )
    if page == again:
        notes.append("the page is, byte for byte, the drawing of these values")
        return None
    stored, drawn = without_charts(page).splitlines(), without_charts(again).splitlines()
    for number, (left, right) in enumerate(zip(stored, drawn, strict=False), start=1):
        if left != right:
            return Mismatch(
                where=f"{archive.PAGE} line {number}",
                stored=_short(left.strip()),
                recomputed=_short(right.strip()),
            )
    if len(stored) != len(drawn):
        return Mismatch(
            where=archive.PAGE, stored=f"{len(stored)} lines", recomputed=f"{len(drawn)} lines"
        )
    notes.append(
        "the page says these values, but its charts are drawn differently from those made here "
        "(other fonts, or an edit): read their data tables, which are equal"
    )
    return None


def _ended(manifest: Manifest, head: TreeHead, wrong: Mismatch) -> Recomputed:
    return Recomputed(
        is_equal=False,
        figure_count=0,
        value_count=0,
        first_difference=wrong,
        run=manifest.run,
        root=head.root_hex,
        size=head.size,
        version=manifest.version,
    )


class _Walk:
    """Compares two trees leaf by leaf in the order of the recomputed one, and counts the leaves."""

    def __init__(self) -> None:
        self.count = 0

    def first_difference(
        self, stored: Any, computed: Any, path: str, figure: str = ""
    ) -> Mismatch | None:
        """The first place where the stored tree differs from the recomputed one."""
        if isinstance(computed, dict):
            return self._in_dict(stored, computed, path, figure)
        if isinstance(computed, list):
            return self._in_list(stored, computed, path, figure)
        self.count += 1
        if _agree(stored, computed):
            return None
        return Mismatch(
            where=_where(path, figure),
            stored=_short(_readable(stored, computed)),
            recomputed=_short(repr(computed)),
        )

    def _in_dict(
        self, stored: Any, computed: dict[str, Any], path: str, figure: str
    ) -> Mismatch | None:
        if not isinstance(stored, dict) or stored.keys() != computed.keys():
            found = sorted(map(str, stored)) if isinstance(stored, dict) else stored
            return Mismatch(
                where=_where(path, figure),
                stored=_short(repr(found)),
                recomputed=_short(repr(sorted(computed))),
            )
        if {"value", "unit", "kind"} <= computed.keys():
            figure = str(computed.get("name", figure))
        for key, value in computed.items():
            found = self.first_difference(
                stored[key], value, f"{path}/{key}" if path else key, figure
            )
            if found is not None:
                return found
        return None

    def _in_list(self, stored: Any, computed: list[Any], path: str, figure: str) -> Mismatch | None:
        if not isinstance(stored, list) or len(stored) != len(computed):
            found = f"{len(stored)} items" if isinstance(stored, list) else repr(stored)
            return Mismatch(
                where=_where(path, figure),
                stored=_short(found),
                recomputed=f"{len(computed)} items",
            )
        for index, value in enumerate(computed):
            label = value.get("name") or value.get("number") if isinstance(value, dict) else None
            found = self.first_difference(stored[index], value, f"{path}/{label or index}", figure)
            if found is not None:
                return found
        return None


def _agree(stored: Any, computed: Any) -> bool:
    if isinstance(computed, float):
        try:
            return isinstance(stored, str) and is_close(
                float_from_hex(stored), computed, relative_max=RELATIVE_MAX
            )
        except LastgoodError:
            return False
    return type(stored) is type(computed) and stored == computed


def _readable(stored: Any, computed: Any) -> str:
    if isinstance(computed, float) and isinstance(stored, str):
        try:
            return repr(float_from_hex(stored))
        except LastgoodError:
            return repr(stored)
    return repr(stored)


def _where(path: str, figure: str) -> str:
    return f"figure {figure} ({path})" if figure else path or "the report"


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
