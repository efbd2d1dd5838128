"""An exception as the supervisor is told of it."""

from __future__ import annotations

import traceback

from lastgood.training import control
from lastgood.training.rank.group import is_group_error

_MESSAGE_CHARS_MAX = 2000
_TRACE_CHARS_MAX = 8000
"""The end of a trace says most."""


def step_raised(
    error: BaseException,
    *,
    generation: int,
    step: int,
    is_of_group: bool | None = None,
    trace: str | None = None,
) -> control.StepRaised:
    """Return the message; whether a peer's death raised it, and the trace, are taken from the error where not given."""
    if trace is None:
        trace = "".join(traceback.format_exception(error))
    return control.StepRaised(
        generation=generation,
        step=step,
        type_name=type(error).__name__,
        message=str(error)[:_MESSAGE_CHARS_MAX],
        is_group_error=is_group_error(error) if is_of_group is None else is_of_group,
        trace=trace[-_TRACE_CHARS_MAX:],
    )
