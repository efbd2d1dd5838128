"""The job of `job_lastgood`, which also writes when its model is wrapped and when each pass of its step begins and ends.

What is watched is torch's wrapper, the first thing that needs the group, and the job's own step: nothing of lastgood.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import workload
from torch.nn.parallel import DistributedDataParallel

_diary = workload.Diary()


def _noted(call: Callable, *, before: str, behind: str) -> Callable:
    """The same call, with a line before it, and one behind it when it returns."""

    @functools.wraps(call)
    def noted(*given: object, **named: object) -> object:
        _diary.write(before)
        result = call(*given, **named)
        _diary.write(behind)
        return result

    return noted


DistributedDataParallel.__init__ = _noted(
    DistributedDataParallel.__init__, before="wraps", behind="has wrapped"
)
workload.train_step = _noted(workload.train_step, before="begins pass", behind="has done pass")

import job_lastgood  # noqa: E402, F401 - the job runs as it is imported
