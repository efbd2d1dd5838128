"""The two engines of the simulation: the loop as it is written, and the same source compiled by numba.

Both give the same bits. The compiled one takes a second or two to start and then runs tens of times faster, so it is
worth it from some ten million events on; `auto` decides.
"""

from __future__ import annotations

import enum
import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from lastgood.base.errors import MissingExtra
from lastgood.budget.montecarlo import kernel

COMPILED_IN_ORDER = (
    "meet_corruption",
    "keep",
    "go_back_before",
    "stop",
    "recover",
    "advance",
    "run_job",
)
"""Callees before callers."""
WORTH_COMPILING_EVENTS = 8_000_000
"""Events below which the interpreter is done before the compiler is."""


class Engine(enum.StrEnum):
    """How the loop runs."""

    AUTO = "auto"
    COMPILED = "compiled"
    INTERPRETED = "interpreted"


class Job:
    """The state of one replication, in the containers that its engine likes."""

    __slots__ = ("_run", "_to_sequence", "c", "kept_at", "kept_work", "p", "s")

    def __init__(self, parameters: Sequence[float], *, retained_count: int, engine: Engine) -> None:
        """Make containers of the right sizes; `reset` makes them ready."""
        if engine is Engine.COMPILED:
            import numpy as np

            self._run = compiled()
            self._to_sequence: Callable[[Any], Any] = np.ascontiguousarray
            self.p: Any = np.array(parameters, dtype=np.float64)
            self.s: Any = np.zeros(kernel.STATE_SIZE)
            self.c: Any = np.zeros(kernel.CURSOR_COUNT, dtype=np.int64)
            self.kept_work: Any = np.zeros(retained_count)
            self.kept_at: Any = np.zeros(retained_count)
        else:
            self._run = kernel.run_job
            self._to_sequence = _as_list
            self.p = list(parameters)
            self.s = [0.0] * kernel.STATE_SIZE
            self.c = [0] * kernel.CURSOR_COUNT
            self.kept_work = [0.0] * retained_count
            self.kept_at = [0.0] * retained_count

    def reset(self) -> None:
        """Put the job before its first step."""
        for i in range(kernel.STATE_SIZE):
            self.s[i] = 0.0
        for i in range(kernel.CURSOR_COUNT):
            self.c[i] = 0
        self.c[kernel.NEWEST] = -1
        self.s[kernel.GAP_LEFT] = self.s[kernel.CORRUPT_LEFT] = -1.0

    def run(self, draw_more: Callable[[int], Any]) -> int:
        """Run to the end; `draw_more(which)` returns the next numbers of a sequence (see `kernel.GAPS`)."""
        draws = [self._to_sequence(draw_more(which)) for which in range(4)]
        while True:
            status = self._run(self.s, self.p, self.c, tuple(draws), self.kept_work, self.kept_at)
            if status != kernel.NEEDS_DRAWS:
                return status
            for which in range(4):
                if self.c[which] >= len(draws[which]):
                    draws[which] = self._to_sequence(draw_more(which))
                    self.c[which] = 0


def _as_list(numbers: Any) -> list[float]:
    return numbers.tolist()


def has_compiler() -> bool:
    """Say whether numba is installed, without loading it."""
    return importlib.util.find_spec("numba") is not None


def pick(engine: Engine, *, expected_events: float) -> Engine:
    """The engine that `auto` stands for: the compiled one where it is there and worth its start."""
    if engine is not Engine.AUTO:
        return engine
    is_worth_it = expected_events >= WORTH_COMPILING_EVENTS and has_compiler()
    return Engine.COMPILED if is_worth_it else Engine.INTERPRETED


@functools.cache
def compiled() -> Callable[..., int]:
    """`kernel.run_job`, compiled: a second copy of the module in which each function is compiled in turn.

    Raises:
        MissingExtra: numba is not installed.
    """
    try:
        from numba import njit
    except ModuleNotFoundError as missing:
        raise MissingExtra(module="numba", extra="sim", where="compiled simulation") from missing
    assert kernel.__file__
    spec = importlib.util.spec_from_file_location("lastgood_compiled_kernel", kernel.__file__)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in COMPILED_IN_ORDER:
        setattr(
            module,
            name,
            njit(nogil=True, fastmath=False, error_model="numpy")(getattr(module, name)),
        )
    return module.run_job
