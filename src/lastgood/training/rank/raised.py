"""An exception as the supervisor is told of it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from lastgood.training import control
from lastgood.training.rank.feed import ask_loader, call_loader_function
from lastgood.training.rank.group import is_group_error
from lastgood.training.trace_place import deciding_words

if TYPE_CHECKING:
    from types import TracebackType

    from lastgood.training.rank.feed import Position

_MESSAGE_CHARS_MAX = 2000
_TRACE_CHARS_MAX = 8000
"""The end of a trace says most."""
_LOADER_SIGNALS = "torch.utils.data._utils.signal_handling"


def step_raised(
    error: BaseException,
    *,
    generation: int,
    step: int,
    is_of_group: bool | None = None,
    trace: str | None = None,
    position: Position | None = None,
) -> control.StepRaised:
    """Return the message; whether a peer's death raised it, and the trace, are taken from the error where not given.

    Args:
        position: where the data stands, in case that the loader raised.
    """
    if trace is None:
        begin = _beyond_this_package(error.__traceback__)
        trace = "".join(traceback.format_exception(type(error), error, begin))
    return control.StepRaised(
        generation=generation,
        step=step,
        type_name=type(error).__name__,
        message=deciding_words(error)[:_MESSAGE_CHARS_MAX],
        is_group_error=is_group_error(error) if is_of_group is None else is_of_group,
        trace=trace[-_TRACE_CHARS_MAX:],
        loader=_loader_words(error, step=step, position=position),
    )


def _beyond_this_package(trace: TracebackType | None) -> TracebackType | None:
    """The trace of a loader's error from the loader on; what stands before it is how this package asks for a batch."""
    found, codes = trace, {ask_loader.__code__, call_loader_function.__code__}
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            found = trace.tb_next or trace
        trace = trace.tb_next
    return found


def _loader_words(error: BaseException, *, step: int, position: Position | None) -> str:
    """Where in the user's loader it was raised; empty for an error of anything else."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    codes = {frame.f_code for frame in frames}
    if call_loader_function.__code__ in codes:
        return "in its loader function"
    if ask_loader.__code__ not in codes:
        # torch raises for a loader process that died wherever the main thread happens to be.
        is_of_process = frames and frames[-1].f_globals.get("__name__") == _LOADER_SIGNALS
        return f"for a process of its loader, in step {step}" if is_of_process else ""
    words = f"in its loader, for step {step}"
    if position is None:
        return words
    return f"{words} (batches of epoch {position.epoch} before it: {position.offset})"
