"""Other ways to checkpoint and what surrounds a plan, as sections: what was computed, and what is missing for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.budget.alternative import Alternative
from lastgood.evidence.report import Column, FigureRow, Note, Section, Table, Words


def other_part(name: str, title: str, rows: Sequence[Alternative], lead: str) -> Section:
    """One table row for each that was computed; the others are named with what they need."""
    made = [one for one in rows if not one.missing]
    compared = [one for one in made if one.work or one.refused]
    table = Table(
        name=name,
        title=title,
        columns=(
            Column(title="way", is_number=False),
            Column(title="how", is_number=False),
            Column(title="interval"),
            Column(title="useful fraction"),
            Column(title="note", is_number=False),
        ),
        rows=tuple(
            (
                one.name,
                f"refused: {one.refused}" if one.refused else one.how,
                one.work,
                one.useful,
                one.note or None,
            )
            for one in compared
        ),
    )
    extra = tuple(
        FigureRow(label=f"{one.name}: {figure.name.replace('_', ' ')}", figure=figure)
        for one in made
        for figure in one.extra
    )
    missing = [f"{one.name} (give {', '.join(one.missing)})" for one in rows if one.missing]
    notes = [Note(text=f"Not computed: {'; '.join(missing)}.", level="info")] if missing else []
    return Section(
        name=name,
        title=title,
        lead=lead if made else "",
        figures=extra,
        words=tuple(
            Words(title=one.name, sentences=(as_sentence(one.how),))
            for one in made
            if one not in compared
        ),
        tables=(table,) if compared else (),
        notes=tuple(notes),
    )


def as_sentence(text: str) -> str:
    """The words with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
