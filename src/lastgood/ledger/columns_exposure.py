"""Devices at risk over time, from the join and leave rows of a table: the denominator of every rate.

The rules are those of `exposure.measure_exposure`: a join without a leave ends with the next join of the same, with
its run, or with the window; a leave without a join was at risk since its run began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lastgood.contract.taxonomy import EventKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lastgood.ledger.table import EventTable


class Steps(NamedTuple):
    """A number that changes at some moments: `devices[i]` from `t_us[i]` until the next moment; zero before the first."""

    t_us: NDArray[np.int64]
    devices: NDArray[np.int64]

    def device_us(self, begin_us: int, end_us: int) -> int:
        """Devices times time within a window."""
        import numpy as np

        if not len(self.t_us):
            return 0
        edges = np.clip(np.append(self.t_us, max(end_us, int(self.t_us[-1]))), begin_us, end_us)
        return sum(
            d * t for d, t in zip(self.devices.tolist(), np.diff(edges).tolist(), strict=True)
        )


class Stretch(NamedTuple):
    """Some devices at risk from one moment to another."""

    start_us: int
    end_us: int
    devices: int
    host: str | None
    is_inferred: bool = False
    """The record of one end is missing."""


class _Joined(NamedTuple):
    t_us: int
    devices: int
    host: str | None
    run: int


def exposure_steps(
    table: EventTable, *, as_of_us: int | None = None
) -> tuple[Steps, dict[str, Steps]]:
    """Devices at risk over time, in all and by host, from the join and leave records.

    What joined and never left is at risk until its run ended, else until `as_of_us` (default: the last record). Empty
    arrays mean that exposure is unknown, not that it is zero.
    """
    stretches = exposure_stretches(table, as_of_us=as_of_us)
    by_host: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        if stretch.host is not None:
            by_host.setdefault(stretch.host, []).append(stretch)
    return _steps(stretches), {host: _steps(by_host[host]) for host in sorted(by_host)}


def exposure_stretches(table: EventTable, *, as_of_us: int | None = None) -> list[Stretch]:
    """Every join with its leave, in the order in which they ended."""
    import numpy as np

    rows = np.flatnonzero(table.kind.is_one_of([EventKind.EXPOSURE_JOIN, EventKind.EXPOSURE_LEAVE]))
    if not len(rows):
        return []
    as_of_us = int(table.t_us[-1]) if as_of_us is None else as_of_us
    run_begins, run_ends = _run_times(table)
    found: list[Stretch] = []
    joined: dict[int, _Joined] = {}
    left_us: dict[int, int] = {}  # key -> the latest end of its stretches

    def close(key: int, join: _Joined, end_us: int, *, is_inferred: bool) -> None:
        if end_us > join.t_us:
            found.append(Stretch(join.t_us, end_us, join.devices, join.host, is_inferred))
            left_us[key] = max(end_us, left_us.get(key, end_us))

    join_code = table.kind.code_of(EventKind.EXPOSURE_JOIN)
    for kind, key, this in zip(
        table.kind.codes[rows].tolist(),
        table.at_risk.codes[rows].tolist(),
        _rows(table, rows),
        strict=True,
    ):
        before = joined.pop(key, None)
        if kind == join_code:
            if before is not None:
                close(key, before, this.t_us, is_inferred=True)
            joined[key] = this
        elif before is not None:
            close(key, before, this.t_us, is_inferred=False)
        else:
            begin_us = max(run_begins[this.run], left_us.get(key, run_begins[this.run]))
            close(key, this._replace(t_us=begin_us), this.t_us, is_inferred=True)
    for key, join in joined.items():
        end_us = run_ends.get(join.run)
        # A run that is still going is measured up to now; that is no guess.
        is_over = end_us is not None and end_us >= join.t_us
        close(key, join, end_us if is_over else as_of_us, is_inferred=is_over)  # type: ignore[arg-type]
    return found


def _rows(table: EventTable, rows: NDArray[np.int64]) -> list[_Joined]:
    """The join and leave rows as objects; who does not say how many devices means one."""
    devices = [1 if count < 0 else count for count in table.devices[rows].tolist()]
    hosts = table.host.take(rows).texts()
    runs = table.run.codes[rows].tolist()
    parts = zip(table.t_us[rows].tolist(), devices, hosts, runs, strict=True)
    return [_Joined(*part) for part in parts]


def _run_times(table: EventTable) -> tuple[dict[int, int], dict[int, int]]:
    """Run (its code) -> time of its first record, and of its last end."""
    import numpy as np

    first_us = np.zeros(len(table.run.names) + 1, np.int64)  # the last place is that of no run
    first_us[table.run.codes[::-1]] = table.t_us[::-1]  # the first in time is written last
    begins = dict(enumerate(first_us[:-1].tolist())) | {-1: int(first_us[-1])}
    ends = np.flatnonzero(table.kind.codes == table.kind.code_of(EventKind.RUN_END))
    return begins, dict(zip(table.run.codes[ends].tolist(), table.t_us[ends].tolist(), strict=True))


def _steps(stretches: list[Stretch]) -> Steps:
    import numpy as np

    if not stretches:
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64))
    starts, ends, devices = (np.array([s[at] for s in stretches], np.int64) for at in range(3))
    t_us, place = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    change = np.zeros(len(t_us), np.int64)
    np.add.at(change, place, np.concatenate([devices, -devices]))
    kept = change != 0
    return Steps(t_us[kept], np.cumsum(change[kept]))
