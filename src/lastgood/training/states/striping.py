"""Whether the ranks of a run keep whole snapshots or share them in stripes. Pure."""

from __future__ import annotations

import enum

STRIPED_STATE_BYTES_MIN = 1 << 20
"""Parameters from which stripes are worth opening the other ranks' files for at a restore."""


class SnapshotForm(enum.StrEnum):
    """What `--snapshots` asks for."""

    AUTO = "auto"
    """Stripes where there are replicas to share with and the state is large enough; whole copies else."""
    WHOLE = "whole"
    STRIPED = "striped"


def stripe_count(form: SnapshotForm, *, ranks: int, state_bytes: int) -> int:
    """Return in how many stripes the ranks keep what they all have: 1 means that each keeps all of it."""
    if form is SnapshotForm.STRIPED:
        return ranks
    is_worth_it = form is SnapshotForm.AUTO and state_bytes >= STRIPED_STATE_BYTES_MIN
    return ranks if is_worth_it else 1
