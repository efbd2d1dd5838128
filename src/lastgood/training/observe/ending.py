"""How a rank ended, by its own word: one small file, written before the process is gone.

The exit code of a process says that Python ended; this says whether user code raised, what, and in which step.
A process that left no such file was killed, or crashed below Python.
"""

from __future__ import annotations

import json
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.clock import SystemClock
from lastgood.base.errors import EXIT_REQUEUE
from lastgood.signals.reading import Phase, Raised
from lastgood.training.trace_place import deciding_words, innermost_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.training.slot import StatusSlot

TRACE_CHARS_MAX = 8_000


class EndingNote(NamedTuple):
    """What a rank said about its end."""

    code: int
    raised: Raised | None
    trace: str
    peers_alive: tuple[int, ...] = ()
    """Ranks of the same host whose processes ran when its group broke: what ended them came later."""


def write_ending(
    path: Path,
    slot: StatusSlot,
    *,
    code: int,
    error: BaseException | None = None,
    is_group_error: bool = False,
    peers_alive: Sequence[int] = (),
) -> None:
    """Note the end of this process; a full or missing folder costs the note and nothing else."""
    view = slot.view()
    note: dict[str, object] = {"code": code, "step": max(view.step, 0)}
    if error is not None:
        note.update(
            type=type(error).__name__,
            message=deciding_words(error)[:2000],
            is_group_error=is_group_error,
            peers_alive=list(peers_alive),
            t_us=SystemClock().monotonic_us(),
            trace="".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:],
        )
    with suppress(OSError):
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(note), encoding="utf-8")
        fresh.replace(path)
    if error is None and code in {0, EXIT_REQUEUE}:
        slot.enter(Phase.FINISHED)


def read_ending(path: Path) -> EndingNote | None:
    """The note of a rank, or None when it left none (or half of one)."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        raised = None
        if "type" in note:
            raised = Raised(
                type_name=str(note["type"]),
                message=str(note["message"]),
                is_group_error=bool(note["is_group_error"]),
                step=int(note["step"]),
                t_us=int(note["t_us"]),
                place=innermost_place(str(note.get("trace", ""))),
            )
        peers = tuple(int(rank) for rank in note.get("peers_alive", ()))
        return EndingNote(int(note["code"]), raised, str(note.get("trace", "")), peers)
    except (OSError, ValueError, KeyError, TypeError):
        return None
