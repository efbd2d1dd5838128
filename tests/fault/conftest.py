"""No run outlives the tests that started it, whatever became of them: it would slow every test behind."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

_OURS = ("lastgood.cli.main", "lastgood.faults.injector")


@pytest.fixture(scope="module", autouse=True)
def _end_what_is_left() -> Iterator[None]:
    """Kill the runs and injectors that a failed test left; the ranks of a run die with their supervisor."""
    yield
    for child in psutil.Process().children():
        try:
            if set(_OURS) & set(child.cmdline()):
                child.kill()
                child.wait(10)
        except psutil.NoSuchProcess:
            continue
