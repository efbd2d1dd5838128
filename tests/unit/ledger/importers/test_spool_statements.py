"""What all spools together tell: nobody is named from half the evidence, by clocks that nobody compared, or for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import open_store
from lastgood.training.attach.spool import SpoolEvents

SECOND, HOUR = 1_000_000, 3_600_000_000
T = 10 * SECOND


class Host:
    """What a host writes in one attempt; times are those of its own clock."""

    def __init__(self, name: str, *ranks: int, world: int, behind_us: int = 0) -> None:
        self.name, self.ranks, self.behind_us, self.attempt = name, ranks, behind_us, 1
        self.events: list[Event] = []
        self.begin(T - 5 * SECOND, world)

    def say(self, kind: str, t_us: int, **fields: object) -> None:
        clock = ManualClock(t_us + self.behind_us)
        self.events.append(new_event(kind, clock=clock, run="r", attempt=self.attempt, **fields))

    def begin(self, t_us: int, world: int, *, attempt: int = 1) -> Host:
        self.attempt = attempt
        if 0 in self.ranks:
            self.say("attempt.start", t_us, body={"world": world})
        pids = {str(rank): 100 + rank for rank in self.ranks}
        self.say("annotation", t_us, body={"host": self.name, "pids": pids})
        return self

    def steps(self, t_us: int, *, first: int = 1, count: int = 20, late_us: tuple[int, ...] = ()) -> Host:  # fmt: skip
        """Steps of 1 ms that end just before the time."""
        late = late_us or (0,) * count
        ended = [t_us - (count - k) * 1000 + self.behind_us + late[k] for k in range(count)]
        body = {"first": first, "last": first + count - 1, "began_us": ended[0] - 1, "ended_us": ended}  # fmt: skip
        if 0 in self.ranks:
            self.say("step", t_us, body=body)
        else:
            self.say("observation", t_us, body={"steps": body})
        return self

    def waits(self, t_us: int, *counts: int) -> Host:
        launches = {str(rank): n for rank, n in zip(self.ranks, counts, strict=True)}
        self.say("observation", t_us, symptom="hang", role="context", body={"launches": launches})
        return self

    def victim(self, t_us: int) -> Host:
        self.say("observation", t_us, body={"victims": list(self.ranks)})
        return self

    def names(self, t_us: int, rank: int, symptom: str = "hang") -> Host:
        self.say("incident.open", t_us, incident=f"r/{self.name}/1.1", class_="fail_stop", symptom=symptom, role="initiating", ranks=(rank,))  # fmt: skip
        return self

    def ends(self, t_us: int, code: int | None = 75) -> Host:
        body = {"exit_codes": {str(rank): code for rank in self.ranks}}
        self.say("attempt.end" if 0 in self.ranks else "annotation", t_us, body=body)
        return self


class Import:
    """Spools on disk, imported into one ledger again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []

    def __call__(self, *hosts: Host, is_old: bool = False) -> list[tuple[str | None, tuple[int, ...]]]:  # fmt: skip
        """Symptom and ranks of each incident in the ledger, after the import of the hosts as they are now."""
        shutil.rmtree(self.folder / "s", ignore_errors=True)
        for host in hosts:
            writer = SpoolEvents(self.folder / "s" / host.name, name="r-a1-1")
            for event in host.events:
                writer.submit(event)
            writer.close()
            if is_old:
                for path in (self.folder / "s" / host.name).iterdir():
                    os.utime(path, (1000, 1000))
        result = import_files([self.folder / "s"], ledger=self.folder / "l.db", format="spool")
        assert result.exit_code == 0
        self.notes = list(result.total.notes)
        return [(i.symptom, i.ranks) for i in self.incidents]

    @property
    def events(self) -> list[Event]:
        with open_store(self.folder / "l.db", create=False) as store:
            return list(store.events())

    @property
    def incidents(self) -> list[Incident]:
        return fold_incidents(self.events)

    def is_noted(self, *words: str) -> bool:
        return any(all(word in note for word in words) for note in self.notes)


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    return Import(tmp_path)


# --- what came after the end of an attempt ----------------------------------------------------------------


@pytest.mark.parametrize("is_late", [False, True])
def test_an_incident_that_ended_one_start_of_a_job_that_started_again_did_not_end_the_job(imported, is_late):  # fmt: skip
    """The watcher of that start can only say that its ranks ended; also where the next start comes in a later import."""
    host = Host("a", 0, 1, world=2).names(T, 1, "process_exit")
    host.say("incident.close", T, incident="r/a/1.1", ranks=(1,), body={"outcome": "ended"})
    host.ends(T + SECOND)
    if is_late:
        imported(host)
        assert [i.outcome for i in imported.incidents] == ["ended"]
    host.begin(T + 5 * SECOND, 2, attempt=2).ends(T + 9 * SECOND, 0)
    imported(host)
    (incident,) = imported.incidents
    assert (incident.outcome, incident.ranks, incident.closed_us) == ("restarted", (1,), T)
    count = len(imported.events)
    imported(host)
    assert len(imported.events) == count


# --- a host that never said how it ended ------------------------------------------------------------------


def test_while_the_job_runs_nobody_is_accused_of_an_end_that_is_still_to_be_written(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2)
    assert imported(a, b) == []
    assert imported.is_noted("run r, attempt 1", "b has not ended", "import again later")
    b.names(T - SECOND, 1, "exception").ends(T + SECOND, 1)
    assert imported(a, b) == [("exception", (1,))]
    assert not imported.is_noted("not stated")


def test_a_host_that_never_said_its_end_is_named_once_its_run_went_on_without_it(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2)
    a.begin(T + 5 * SECOND, 1, attempt=2).steps(T + HOUR - 10 * SECOND)
    assert imported(a, b) == []
    a.steps(T + 2 * HOUR, first=21)
    assert imported(a, b) == [("process_exit", (1,))]
    assert [(d.kind, d.id) for d in imported.incidents[0].domain] == [("host", "b")]


def test_a_host_that_never_said_its_end_is_named_once_the_spools_were_quiet_for_long(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2)
    assert imported(a, b) == []
    assert imported(a, b, is_old=True) == [("process_exit", (1,))]


def test_the_line_of_its_end_takes_back_what_an_early_copy_said_of_a_host(imported):
    a, early = Host("a", 0, world=3).victim(T).ends(T + SECOND), Host("b", 1, 2, world=3)
    assert imported(a, early, is_old=True) == [("process_exit", (1, 2))]
    whole = Host("b", 1, 2, world=3)
    whole.events = [*early.events]
    whole.names(T - SECOND, 2, "exception").ends(T + SECOND, 1)
    assert imported(whole) == [("exception", (2,))]
    assert imported(a, early, is_old=True) == [("exception", (2,))]
    gone = {e.links.supersedes for e in imported.events if "exit_codes" in e.body and e.links}
    assert len(gone & {e.id for e in imported.events if e.kind == "incident.open"}) == 1


def test_an_early_copy_of_the_host_that_named_itself_is_taken_back_by_a_correction(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2)
    assert imported(a, b, is_old=True) == [("process_exit", (1,))]
    b.names(T - SECOND, 1, "exception")
    assert imported(a, b, is_old=True) == [("exception", (1,))]
    assert [e.body["text"] for e in imported.events if e.kind == "correction"]


def test_a_folder_of_another_name_than_its_host_has_is_no_host_that_never_ended(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2).ends(T + SECOND)
    a.name, b.name = "x-a", "x-b"
    assert imported(a, b, is_old=True) == []


def test_a_host_that_lives_on_has_not_ended_of_it(imported):
    a, b = Host("a", 0, world=2).victim(T).ends(T + SECOND), Host("b", 1, world=2)
    b.steps(T + 2 * HOUR)
    assert imported(a, b, is_old=True) == []


@pytest.mark.parametrize("left_out", ["a", "c"])
def test_without_the_spool_of_every_host_nobody_is_named(imported, left_out):
    hosts = {
        "a": Host("a", 0, world=3).waits(T, 40).victim(T + 50 * SECOND).ends(T + 60 * SECOND),
        "b": Host("b", 1, world=3).waits(T, 39).victim(T + 50 * SECOND),
        "c": Host("c", 2, world=3).waits(T, 40).names(T, 2).ends(T + 60 * SECOND),
        "d": Host("d", world=3),
    }
    assert [i for i in imported(*(h for n, h in hosts.items() if n != left_out), is_old=True) if i[1] != (2,)] == []  # fmt: skip
    if left_out == "c":
        assert imported.is_noted("no spool of rank 2", "import all hosts together")
    assert imported(*hosts.values(), is_old=True) == [("hang", (2,))]


# --- a silence that no host could name --------------------------------------------------------------------


def test_a_silence_that_no_host_could_name_is_named_by_the_fewest_collectives(imported):
    a, b = Host("a", 0, 1, world=4).waits(T, 40, 40), Host("b", 2, 3, world=4).waits(T, 39, 40)
    assert imported(a, b) == []
    assert imported(a.ends(T + HOUR), b.ends(T + HOUR)) == [("hang", (2,))]
    (incident,) = imported.incidents
    assert (incident.class_, incident.blast_radius) == ("fail_slow", 4)


def test_with_equal_counts_the_silence_is_an_incident_without_a_name(imported):
    a, b = Host("a", 0, world=2).waits(T, 40), Host("b", 1, world=2).waits(T, 40)
    assert imported(a, b, is_old=True) == [("hang", ())]


def test_one_host_that_waits_is_no_incident_of_its_own(imported):
    a, b = Host("a", 0, world=2).waits(T, 40).ends(T + HOUR), Host("b", 1, world=2).ends(T + HOUR)
    assert imported(a, b) == []


def test_waits_that_lie_hours_apart_are_no_one_silence(imported):
    a = Host("a", 0, 1, world=4).waits(T, 40, 40).ends(T + 3 * HOUR)
    b = Host("b", 2, 3, world=4).waits(T + 2 * HOUR, 9000, 9000).ends(T + 3 * HOUR)
    assert imported(a, b) == []


def test_every_silence_of_an_attempt_is_opened_and_each_by_its_own_counts(imported):
    a, b = Host("a", 0, world=2), Host("b", 1, world=2)
    for at, (n, m) in enumerate([(40, 39), (899, 900)]):
        a.steps(T + 2 * at * HOUR - SECOND, first=1 + 20 * at).waits(T + 2 * at * HOUR, n)
        b.steps(T + 2 * at * HOUR - SECOND, first=1 + 20 * at).waits(T + 2 * at * HOUR + SECOND, m)
    a.ends(T + 4 * HOUR)
    b.ends(T + 4 * HOUR)
    assert imported(a, b) == [("hang", (1,)), ("hang", (0,))]


def test_a_step_between_two_waits_parts_their_silences(imported):
    a, b = Host("a", 0, world=2), Host("b", 1, world=2)
    a.waits(T, 40).steps(T + 10 * SECOND).ends(T + HOUR)
    b.steps(T + 10 * SECOND).waits(T + 30 * SECOND, 39).ends(T + HOUR)
    assert imported(a, b) == []


def test_a_silence_behind_one_that_was_named_and_closed_is_opened(imported):
    a, b = Host("a", 0, world=2), Host("b", 1, world=2).names(T, 1)
    b.say("incident.close", T + SECOND, incident="r/b/1.1", body={"outcome": "resolved"})
    a.waits(T + HOUR, 40).ends(T + 2 * HOUR)
    b.waits(T + HOUR, 39).ends(T + 2 * HOUR)
    a.steps(T + 2 * SECOND)
    b.steps(T + 2 * SECOND)
    assert sorted(imported(a, b)) == [("hang", (1,)), ("hang", (1,))]


def test_a_host_that_says_nothing_of_a_silence_is_named_and_its_ranks_are_not_counted_out(imported):
    a, b = Host("a", 0, world=3).waits(T, 40).ends(T + HOUR // 2), Host("b", 1, world=3).waits(T, 39).ends(T + HOUR // 2)  # fmt: skip
    c = Host("c", 2, world=3)
    assert imported(a, b, c) == []
    assert imported(a, b, c, is_old=True) == [("hang", (2,))]
    assert imported(a, b, c.ends(T + HOUR // 2)) == [("hang", ())]
    evidence = imported.incidents[0].notes
    assert any("2 of 3 hosts waited; c said nothing of it" in note for note in evidence)


# --- clocks -----------------------------------------------------------------------------------------------


def three(*, b_behind_us: int = 0, late_us: tuple[int, ...] = ()) -> tuple[Host, Host, Host]:
    a, b, c = Host("a", 0, world=3), Host("b", 1, world=3, behind_us=b_behind_us), Host("c", 2, world=3)  # fmt: skip
    for host in (a, c):
        host.steps(T - SECOND).waits(T, 40).ends(T + 30 * SECOND)
    b.steps(T - SECOND, late_us=late_us)
    return a, b, c


@pytest.mark.parametrize("behind_us", [700 * SECOND, -9 * SECOND, 30 * HOUR])
def test_a_hang_that_a_host_with_another_clock_named_is_not_opened_again(imported, behind_us):
    a, b, c = three(b_behind_us=behind_us)
    b.names(T - 1000, 1).ends(T + 30 * SECOND)
    c.events[-2] = Host("c", 2, world=3).waits(T, 39).events[-1]
    assert imported(a, b, c) == [("hang", (1,))]


def test_a_silence_is_found_in_spite_of_clocks_that_stand_apart(imported):
    a, b, c = three(b_behind_us=700 * SECOND)
    b.waits(T, 39).ends(T + 30 * SECOND)
    assert imported(a, b, c) == [("hang", (1,))]


def test_waits_at_one_time_of_clocks_that_stand_apart_are_no_one_silence(imported):
    a, b, c = three(b_behind_us=700 * SECOND)
    a.events.pop(-2)
    c.events.pop(-2)
    a.waits(T + 700 * SECOND, 40)
    b.waits(T, 39).ends(T + 30 * SECOND)
    assert imported(a, b, c) == []


def test_a_clock_that_is_less_sure_than_the_window_names_nobody_and_it_is_said(imported):
    late = tuple((-1) ** k * 200 * SECOND for k in range(20))
    a, b, c = three(late_us=late)
    b.waits(T, 39).ends(T + HOUR)
    assert imported(a, b, c) == []
    assert imported.is_noted("not stated", "the clock of b is known to +-200 s only")


def test_a_host_that_spoke_by_a_clock_that_was_never_compared_holds_the_others_back(imported):
    a, b, c = Host("a", 0, 1, world=4), Host("b", 2, world=4).names(T + 700 * SECOND, 2), Host("c", 3, world=4)  # fmt: skip
    a.waits(T, 40, 40).ends(T + HOUR)
    c.waits(T, 39).ends(T + HOUR)
    assert imported(a, b.ends(T + HOUR), c) == [("hang", (2,))]
    assert imported.is_noted("not stated", "its clock could not be compared")


@pytest.mark.parametrize("behind_us", [HOUR, -HOUR])
def test_the_times_of_a_host_whose_clock_stands_apart_are_set_right_once_it_has_ended(imported, behind_us):  # fmt: skip
    a, b, c = three(b_behind_us=behind_us)
    b.names(T - 1000, 1)
    c.events[-2] = Host("c", 2, world=3).waits(T, 39).events[-1]
    imported(a, b, c)
    assert [i.onset_us for i in imported.incidents] == [T - 1000 + behind_us]
    b.ends(T + 30 * SECOND)
    assert imported(a, b, c) == [("hang", (1,))]
    assert [i.onset_us for i in imported.incidents] == [T - 1000]
    assert imported.is_noted("clock corrected", f"b stands {behind_us / SECOND:+.1f} s off")
    written_by_b = {e.id for e in imported.events if "coverage" not in e.body and e.t_occurred_us and abs(e.t_occurred_us - T) > HOUR // 2}  # fmt: skip
    gone = {e.links.supersedes for e in imported.events if e.links}
    assert len(written_by_b) == len(b.events)
    assert written_by_b <= gone
    count = len(imported.events)
    imported(a, b, c)
    assert len(imported.events) == count
    moved = next(e for e in imported.events if "steps" in e.body and e.id not in gone and e.clock and e.clock.uncertainty_us is not None)  # fmt: skip
    assert moved.body["steps"]["ended_us"][-1] == T - SECOND - 1000


def test_a_clock_that_is_off_by_less_than_a_second_stays_as_it_is(imported):
    a, b, c = three(b_behind_us=SECOND // 2)
    b.names(T - 1000, 1).ends(T + 30 * SECOND)
    imported(a, b, c)
    assert [i.onset_us for i in imported.incidents] == [T - 1000 + SECOND // 2]
    assert not imported.is_noted("clock corrected")
