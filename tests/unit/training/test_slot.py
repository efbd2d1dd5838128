"""The status page: whole words, whole reports, nothing of a generation that is over."""

import math
import threading

import pytest

from lastgood.signals.reading import Phase, StepReport
from lastgood.training import slot as slot_module
from lastgood.training.slot import (
    NOTHING_PINNED,
    PAGE_BYTES,
    RING_LENGTH,
    ControlPage,
    StatusSlot,
)


def report(step, *, digest="ab" * 16, loss=1.5, grad_norm=2.5, rank=3, nonfinite=False):
    return StepReport(
        rank=rank,
        step=step,
        digest=digest,
        loss=loss,
        grad_norm=grad_norm,
        local_nonfinite=nonfinite,
        self_us=step * 10,
        step_us=step * 20,
        between_us=step * 3,
        starved_us=step if step % 2 else None,
        work=None if loss is None else 512.0 + step,
    )


@pytest.fixture
def slot(tmp_path):
    made = StatusSlot(tmp_path / "w0", create=True)
    made.begin_generation(1, 3)
    yield made
    made.close()


@pytest.fixture
def reader(slot, tmp_path):
    made = StatusSlot(tmp_path / "w0")
    yield made
    made.close()


def test_a_fresh_page_knows_nothing(tmp_path):
    slot = StatusSlot(tmp_path / "w0", create=True)
    view = slot.view()
    assert (tmp_path / "w0").stat().st_size == PAGE_BYTES
    assert (tmp_path / "w0").stat().st_mode & 0o777 == 0o600
    assert (view.generation, view.rank, view.published_step, view.phase) == (
        0,
        -1,
        -1,
        Phase.LAUNCHING,
    )
    assert [slot.report_of(step) for step in range(20)] == [None] * 20
    slot.close()


@pytest.mark.parametrize(
    "published",
    [
        report(1),
        report(2, digest="0" * 32),
        report(3, digest="f" * 32, loss=None, grad_norm=None),
        report(2**40, digest="8" + "0" * 30 + "1", loss=-math.inf, nonfinite=True),
    ],
)
def test_a_report_reads_back_as_it_was_published(slot, reader, published):
    slot.publish(published, done_wall_us=77)
    found = reader.report_of(published.step)
    assert found.report == published
    assert found.done_wall_us == 77


def test_a_loss_that_is_no_number_stays_one_and_is_not_taken_for_none(slot, reader):
    slot.publish(report(1, loss=math.nan, grad_norm=math.nan), done_wall_us=0)
    found = reader.report_of(1).report
    assert math.isnan(found.loss)
    assert math.isnan(found.grad_norm)


def test_the_ring_keeps_the_newest_reports_and_never_shows_an_old_one_under_a_new_number(
    slot, reader
):
    for step in range(1, RING_LENGTH + 6):
        slot.publish(report(step), done_wall_us=step)
    held = [step for step in range(RING_LENGTH + 30) if reader.report_of(step) is not None]
    assert held == list(range(6, RING_LENGTH + 6))


def test_a_new_generation_forgets_the_reports_counts_and_sections_of_the_last(slot, reader):
    slot.publish(report(4), done_wall_us=0)
    slot.count_launch(is_last=False)
    slot.count_completion()
    slot.open_section("eval", 5)
    slot.set_published(4)
    slot.begin_generation(2, 1)
    view = reader.view()
    assert (view.generation, view.rank, view.launches, view.completions) == (2, 1, 0, 0)
    assert (view.section, view.section_limit_us) == (None, None)
    assert (
        view.published_step == 4
    )  # what lies in the snapshot slots does not change with the generation
    assert reader.report_of(4) is None


class Stopping:
    """Words of which only so many are still written."""

    def __init__(self, inner, count):
        self.inner, self.count = inner, count
        self.release = inner.release

    def __getitem__(self, key):
        return self.inner[key]

    def __setitem__(self, key, value):
        if not self.count:
            raise KeyboardInterrupt
        self.count -= 1
        self.inner[key] = value


class TornEntry:
    """Writes the first bytes of an entry, and no more."""

    def __init__(self, inner, size):
        self.unpack_from, self.size = inner.unpack_from, size

    def pack_into(self, page, offset, *_fields):
        page[offset : offset + self.size] = b"\xcd" * self.size
        raise KeyboardInterrupt


@pytest.mark.parametrize("stop", ["first word", "last word", 8, 40, 80])
def test_half_a_report_is_never_taken(slot, reader, monkeypatch, stop):
    """The writer is stopped at each word and within the entry; step 17 would lie where step 1 lies."""
    slot.publish(report(1), done_wall_us=1)
    if isinstance(stop, int):
        monkeypatch.setattr("lastgood.training.slot._ENTRY", TornEntry(slot_module._ENTRY, stop))
    else:
        monkeypatch.setattr(slot, "_words", Stopping(slot._words, 0 if stop == "first word" else 1))
    with pytest.raises(KeyboardInterrupt):
        slot.publish(report(1 + RING_LENGTH, digest="cd" * 16), done_wall_us=2)
    assert reader.report_of(1 + RING_LENGTH) is None
    assert (reader.report_of(1) is None) == (stop != "first word")


def test_a_reader_that_is_overtaken_while_it_reads_takes_nothing(slot, reader):
    """The writer replaces the report between the reader's first and last look."""
    slot.publish(report(1), done_wall_us=1)

    class Overtaken:
        def __init__(self, inner):
            self.inner, self.is_done = inner, False

        def __getitem__(self, key):
            if not self.is_done:
                self.is_done = True
                value = self.inner[key]
                slot.publish(report(1 + RING_LENGTH), done_wall_us=2)
                return value
            return self.inner[key]

    reader._words, whole = Overtaken(reader._words), reader._words
    try:
        assert reader.report_of(1) is None
    finally:
        reader._words = whole


def test_a_reader_beside_a_busy_writer_sees_only_whole_reports(slot, reader):
    """Each report repeats its step in every field; a mixed one would show."""
    done = threading.Event()

    def write():
        for step in range(1, 4000):
            slot.publish(
                report(step, digest=f"{step:032x}", loss=float(step), grad_norm=float(step)),
                done_wall_us=step,
            )
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    step = 1
    while not done.is_set() or step < 4000:
        found = reader.report_of(step)
        if found is not None:
            r = found.report
            assert {step} == {
                int(r.digest, 16),
                r.loss,
                r.grad_norm,
                r.self_us // 10,
                found.done_wall_us,
            }
            seen += 1
        step = step + 1 if step < 4000 else 4000
        if step == 4000 and done.is_set():
            break
    thread.join()
    assert reader.report_of(3999) is not None


def test_phases_steps_and_counts_are_what_was_entered(slot, reader):
    slot.enter(Phase.COMPUTE, step=9)
    slot.count_launch(is_last=False)
    assert reader.view().phase is Phase.COMPUTE
    slot.count_launch(is_last=True)
    slot.count_completion()
    view = reader.view()
    assert (view.phase, view.step, view.launches, view.completions) == (Phase.COLLECTIVE, 9, 2, 1)


def test_every_sign_of_life_moves_the_clock(slot, reader):
    for act in (
        slot.touch,
        lambda: slot.enter(Phase.BETWEEN),
        lambda: slot.count_launch(is_last=False),
        slot.count_completion,
        lambda: slot.publish(report(1), done_wall_us=0),
        lambda: slot.open_section("x", 0),
        slot.close_section,
    ):
        slot._words[8] = 0
        act()
        assert reader.view().progress_us > 0


@pytest.mark.parametrize(
    "moves",
    [lambda slot: slot.count_launch(is_last=True), lambda slot: slot.enter(Phase.COLLECTIVE)],
)
def test_a_new_place_is_never_read_with_the_time_of_the_old_one(slot, reader, monkeypatch, moves):
    """Since when a rank waits accuses its peers: a rank that is back from a long evaluation has not waited so long."""
    slot.enter(Phase.BETWEEN, step=7)
    seen = []
    monkeypatch.setattr(slot_module, "monotonic_ns", lambda: (seen.append(reader.view()), 9**18)[1])
    moves(slot)
    assert [(view.phase, view.launches) for view in seen] == [(Phase.BETWEEN, 0)]
    assert (reader.view().phase, reader.view().progress_us) == (Phase.COLLECTIVE, 9**18 // 1000)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("eval", "eval"),
        ("größe", "größe"),
        ("x" * 200, "x" * 64),
        ("é" * 40, "é" * 32),
        ("a" + "é" * 40, "a" + "é" * 31 + "\ufffd"),
    ],
)
def test_section_names_fit_their_place(slot, reader, name, shown):
    slot.open_section(name, 600)
    view = reader.view()
    assert (view.section, view.section_limit_us, view.phase) == (shown, 600, Phase.SECTION)
    slot.close_section()
    assert reader.view().section is None


def test_a_section_without_a_limit_says_so(slot, reader):
    slot.open_section("eval", 0)
    assert reader.view().section_limit_us is None


def test_the_control_page_carries_the_assessed_and_the_pinned_step(tmp_path):
    ours = ControlPage(tmp_path / "control", create=True)
    theirs = ControlPage(tmp_path / "control")
    assert (theirs.assessed_step, theirs.pinned_step) == (0, NOTHING_PINNED)
    ours.assessed_step, ours.pinned_step = 12, 9
    assert (theirs.assessed_step, theirs.pinned_step) == (12, 9)
    # No step minus three is ever the word for nothing, or a fresh run would wait at its gate for ever.
    assert all(step - 3 != NOTHING_PINNED for step in range(10))
