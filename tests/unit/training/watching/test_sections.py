"""A section that ranks open behind different steps is said, and one that belongs to a single rank is not."""

from types import SimpleNamespace

import pytest

from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase
from lastgood.training.control import SectionChanged
from lastgood.training.watching.sections import APART, NO_LIMIT, Sections


class Job:
    """Two ranks whose slots say what a test wants, and a recorder that remembers."""

    def __init__(self):
        self.records = []
        self.steps = {0: 1, 1: 1}
        self.recorder = SimpleNamespace(attempt=1, record=self._record)
        self.serving = ("w0", "w1")
        self.workers = {name: self._worker(rank) for rank, name in enumerate(self.serving)}
        self.unlimited = []
        self.watch = SimpleNamespace(learn_section=lambda *_: None, limits=Limits())
        self.raised, self.is_running = {}, True
        self.sections = Sections(self)

    def _worker(self, rank):
        def view():
            return SimpleNamespace(
                generation=self.recorder.attempt,
                step=self.steps[rank],
                phase=Phase.COMPUTE,
                section_limit_us=None,
            )

        return SimpleNamespace(name=f"w{rank}", slot=SimpleNamespace(view=view))

    def _record(self, kind, **fields):
        if fields.get("body", {}).get("text") == NO_LIMIT:
            self.unlimited.append(fields["body"]["section"])
        if fields.get("body", {}).get("text") == APART:
            self.records.append(
                (fields["ranks"], fields["body"]["section"], fields["body"]["steps"])
            )

    def section(self, rank, step, *, is_open, name="eval", limit_us=0):
        self.steps[rank] = step
        message = SectionChanged(
            rank=rank, name=name, state="productive", is_open=is_open, wall_us=0, step=step, limit_us=limit_us
        )  # fmt: skip
        self.sections.hear(self.workers[self.serving[rank]], message)
        self.sections.look()

    def both(self, step, **options):
        for is_open in (True, False):
            for rank in (0, 1):
                self.section(rank, step, is_open=is_open, **options)

    def go_on(self, rank, step):
        self.steps[rank] = step
        self.sections.look()


@pytest.fixture
def job():
    return Job()


def test_ranks_that_open_it_behind_the_same_steps_are_left_alone(job):
    for step in (16, 32, 48):
        job.both(step)
        job.go_on(0, step + 1)
        job.go_on(1, step + 1)
    assert job.records == []


def test_a_rank_that_passes_the_step_of_the_others_is_said_with_both_steps(job):
    job.both(16)
    job.recorder.attempt = 2
    job.section(0, 32, is_open=True)
    assert job.records == [], "rank 1 may still come"
    job.go_on(1, 33)
    assert job.records == [((0, 1), "eval", {"0": 32, "1": 33})]


def test_it_is_said_once_a_name(job):
    job.both(16)
    for step in (32, 48):
        job.section(0, step, is_open=True)
        job.go_on(1, step + 1)
        job.section(0, step, is_open=False)
    assert len(job.records) == 1


def test_a_section_of_one_rank_alone_is_its_own_business(job):
    for step in (16, 32):
        job.section(0, step, is_open=True)
        job.go_on(1, step + 1)
        job.section(0, step, is_open=False)
    assert job.records == []


def test_one_that_was_left_before_the_other_rank_went_on_is_its_own_business(job):
    job.both(16)
    job.section(0, 32, is_open=True)
    job.section(0, 32, is_open=False)
    job.go_on(1, 33)
    assert job.records == []


def test_one_without_a_limit_is_said_once_also_when_it_is_over_before_anybody_looks(job):
    """The pages of these ranks never tell of a section."""
    job.both(16)
    job.both(32)
    assert job.unlimited == ["eval"]


def test_one_with_a_limit_of_its_own_is_not_said(job):
    job.both(16, limit_us=1_000_000)
    assert job.unlimited == []
