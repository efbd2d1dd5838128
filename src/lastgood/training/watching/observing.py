"""From slots, `/proc` and the process table to readings and step reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lastgood.signals.reading import Phase, ProcessState, Raised, RankReading, StepReport
from lastgood.training.watching.kernel import ProcessSample, sample_process, waiting_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.training.processes import WorkerProcess


_NOT_ASKED = ProcessSample(ProcessState.SLEEPING, cpu_us=0, runqueue_wait_us=0)


def read_rank(
    rank: int,
    worker: WorkerProcess,
    *,
    generation: int,
    raised: Raised | None,
    asks_kernel: bool = True,
) -> RankReading:
    """Return all that is known about one rank now.

    A worker that has not yet begun this generation is read as joining: its page still tells of the last one.

    Args:
        asks_kernel: False leaves out what `/proc` says, for whoever asks only about ends.
    """
    view = worker.slot.view()
    sample = sample_process(worker.pid) if asks_kernel else _NOT_ASKED
    is_current = view.generation == generation
    return RankReading(
        rank=rank,
        worker=worker.name,
        pid=worker.pid,
        generation=generation,
        exit_code=worker.exit_code,
        phase=view.phase if is_current else Phase.JOINING,
        step=view.step,
        published_step=view.published_step,
        launches=view.launches if is_current else 0,
        completions=view.completions if is_current else 0,
        progress_us=view.progress_us,
        process=sample.state,
        cpu_us=sample.cpu_us,
        runqueue_wait_us=sample.runqueue_wait_us,
        waits_in=waiting_place(worker.pid) if asks_kernel else "",
        section=view.section if is_current else None,
        section_limit_us=view.section_limit_us if is_current else None,
        raised=raised,
    )


class FinishedStep(NamedTuple):
    """A step that every rank has published."""

    step: int
    reports: tuple[StepReport, ...]
    done_wall_us: int
    """When the last rank published it."""

    @property
    def mean_loss(self) -> float | None:
        """Mean of the losses over the ranks; None when a rank reported none."""
        losses = [report.loss for report in self.reports if report.loss is not None]
        return sum(losses) / len(losses) if len(losses) == len(self.reports) else None


def finished_step(step: int, workers: Sequence[WorkerProcess]) -> FinishedStep | None:
    """Return the step when every rank has published it."""
    published = []
    for worker in workers:
        found = worker.slot.report_of(step)
        if found is None:
            return None
        published.append(found)
    return FinishedStep(
        step, tuple(p.report for p in published), max(p.done_wall_us for p in published)
    )
