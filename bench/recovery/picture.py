"""The picture of the bench: every run a dot, by system, on a logarithmic axis of seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from summary import SIGNALS
from systems import SYSTEMS

from lastgood.evidence.charts import BLUE, GREEN, RED

FULL, SMALLER, NEVER = "full world again", "first step in a smaller world", "full world never again"
WATCHED_S = 120
"""Where a run that never came back is drawn: the bench watched no longer."""


def dots(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One dot a run for the full world, and one for a first step before it."""
    found = []
    for row in rows:
        if row["fault"] not in SIGNALS:
            continue
        place = {"system": row["system"], "fault": row["fault"].upper()}
        first, full = row.get("recovered_s"), row.get("full_s")
        if first is not None and first != full:
            found.append(place | {"seconds": first, "what": SMALLER})
        if full is not None:
            found.append(place | {"seconds": full, "what": FULL})
        else:
            found.append(place | {"seconds": WATCHED_S, "what": NEVER})
    return found


def mark(rows: Sequence[dict[str, Any]]) -> str:
    """What ties a picture to its rows; the drawing itself differs between releases of the library."""
    digest = hashlib.sha256(json.dumps(dots(rows), sort_keys=True).encode()).hexdigest()
    return f"<!-- dots: {digest} -->"


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """The picture."""
    import altair as alt
    import vl_convert

    kinds = [FULL, SMALLER, NEVER]
    shape = alt.Scale(domain=kinds, range=["circle", "triangle-up", "cross"])
    colour = alt.Scale(domain=kinds, range=[GREEN, BLUE, RED])
    chart = (
        alt.Chart(alt.Data(values=dots(rows)))
        .mark_point(size=46, filled=True, opacity=0.75)
        .encode(
            x=alt.X("seconds:Q")
            .scale(type="log", domain=[0.1, 150])
            .axis(values=[0.1, 0.3, 1, 3, 10, 30, 100], format="~g")
            .title("seconds from the signal, logarithmic; each run a dot"),
            y=alt.Y("system:N").sort(list(SYSTEMS)).title(None).axis(labelLimit=220, grid=True),
            shape=alt.Shape("what:N").scale(shape).title(None),
            color=alt.Color("what:N").scale(colour).title(None),
            row=alt.Row("fault:N").title(None).sort([s.upper() for s in SIGNALS]),
        )
        .properties(width=520, height=150)
        .configure(background="white", font="sans-serif")
        .configure_legend(orient="bottom", labelFontSize=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_header(labelFontSize=12, labelFontWeight="bold")
    )
    return f"{vl_convert.vegalite_to_svg(chart.to_dict())}\n{mark(rows)}\n"
