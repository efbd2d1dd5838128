"""The doctor: each check judged on numbers that a test chose, and the command on this machine."""

import fcntl
import os
import sys

import pytest

from lastgood.base.clock import ClockSync, ManualClock
from lastgood.cli import checks, machine
from lastgood.cli.checks import Condition, Row, count_figure, size_figure
from lastgood.cli.doctor import _lines
from lastgood.ledger.place import StorageKind
from lastgood.training.resuming.life import LifePage

GIB = 2**30


def shared_memory(*, free, memory=None, state=GIB, nproc=4, is_typed=True) -> Row:
    return checks.check_shared_memory(
        shm_free_bytes=free,
        memory_free_bytes=memory,
        state=size_figure(value_bytes=state, is_typed=is_typed),
        nproc=count_figure(count=nproc, is_typed=is_typed),
    )


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        # The need is 3 x 4 x 1 GiB = 12 GiB.
        ({"free": 12 * GIB}, Condition.OK),
        ({"free": 12 * GIB - 1}, Condition.FAILED),
        ({"free": 12 * GIB - 1, "is_typed": False}, Condition.WARN),
        ({"free": 12 * GIB, "memory": 12 * GIB - 1}, Condition.WARN),
        ({"free": 12 * GIB, "memory": 12 * GIB}, Condition.OK),
        ({"free": None}, Condition.UNKNOWN),
    ],
)
def test_shared_memory_must_hold_three_slots_of_every_rank(arguments, condition):
    row = shared_memory(**arguments)
    assert row.condition is condition
    assert "12 GiB = 3 slots x 4 ranks assumed x 1 GiB assumed" in row.found
    assert (row.action is None) == (condition is Condition.OK)


def test_a_too_small_shared_memory_names_a_size_that_is_enough():
    assert f"size={15 * GIB}" in (shared_memory(free=GIB).action or "")


@pytest.mark.parametrize(
    ("py_spy", "scope", "probe_error", "condition", "words"),
    [
        ("py-spy", None, None, Condition.OK, "no yama"),
        ("py-spy", 1, None, Condition.OK, "ptrace_scope 1"),
        (None, 0, "no py-spy", Condition.WARN, 'pip install "lastgood[torch]"'),
        ("py-spy", 2, "Permission denied", Condition.WARN, "kernel.yama.ptrace_scope=1"),
        ("py-spy", 3, "Permission denied", Condition.WARN, "next boot"),
        ("py-spy", None, "Permission denied", Condition.WARN, "SYS_PTRACE"),
    ],
)
def test_stack_dumps_are_judged_by_a_real_one(py_spy, scope, probe_error, condition, words):
    row = checks.check_stack_dumps(py_spy=py_spy, ptrace_scope=scope, probe_error=probe_error)
    assert row.condition is condition
    assert words in f"{row.found} {row.action}"


@pytest.mark.parametrize(
    ("is_network", "is_volatile", "condition"),
    [
        (False, False, Condition.OK),
        (False, True, Condition.WARN),
        (True, False, Condition.FAILED),
        (None, False, Condition.UNKNOWN),
    ],
)
def test_the_ledger_belongs_on_a_disk_of_this_machine(is_network, is_volatile, condition, tmp_path):
    kind = StorageKind(
        path=tmp_path,
        mount_point="/x",
        fs_type="some",
        device="d",
        is_network=is_network,
        is_volatile=is_volatile,
    )
    row = checks.check_storage(kind)
    assert row.condition is condition
    assert ("LASTGOOD_LEDGER" in (row.action or "")) == (condition is not Condition.OK)


def test_a_ledger_cannot_lie_on_a_view_of_the_kernel(cli):
    result = cli("doctor", "--ledger", "/proc/x", "--json")
    (row,) = (row for row in result.json["rows"] if row["check"] == "ledger storage")
    assert (result.exit_code, row["condition"]) == (1, "failed")
    assert "LASTGOOD_LEDGER" in row["action"]


def left_behind(folder):
    """What a killed supervisor of this version leaves."""
    (folder / "slots").mkdir(parents=True)
    LifePage(folder / "life").close()
    (folder / "sessions").write_text("")
    return folder


def test_cleaning_takes_killed_runs_away_and_nothing_that_lives_or_is_of_another_kind(
    tmp_path, cli, monkeypatch
):
    gone, alive = left_behind(tmp_path / "lastgood-gone"), left_behind(tmp_path / "lastgood-alive")
    (tmp_path / "lastgood-something").mkdir()
    (tmp_path / "lastgood-link").symlink_to(alive)
    owner = os.open(alive, os.O_RDONLY)
    fcntl.flock(owner, fcntl.LOCK_EX)
    monkeypatch.setattr(machine, "SHM", tmp_path)
    try:
        result = cli("doctor", "--clean", "--json")
    finally:
        os.close(owner)
    assert f"removed {gone}" in result.stderr
    assert sorted(path.name for path in tmp_path.glob("lastgood-*")) == [
        "lastgood-alive", "lastgood-link", "lastgood-something",
    ]  # fmt: skip


def test_a_supervisor_that_lives_and_does_not_turn_is_named_with_its_process(tmp_path):
    page = LifePage(left_behind(tmp_path / "lastgood-stopped") / "life")
    clock = ManualClock(100_000_000)
    page.turn(now_us=clock.monotonic_us() - machine.SILENT_US_MIN + 1, wall_us=1)
    assert machine.find_silent_supervisors(clock, tmp_path) == {}
    page.turn(now_us=clock.monotonic_us() - 45_000_000, wall_us=1)
    found = machine.find_silent_supervisors(clock, tmp_path)
    assert found == {tmp_path / "lastgood-stopped": (os.getpid(), 45_000_000)}
    row = checks.check_supervisors(found)
    assert row.condition is Condition.WARN
    assert f"kill -CONT {os.getpid()}" in (row.action or "")
    assert "45 s" in row.found
    page.close()


def test_a_run_whose_supervisor_is_gone_is_named_with_the_command_that_removes_it(tmp_path):
    gone, alive = tmp_path / "lastgood-my run", tmp_path / "lastgood-alive"
    for folder in (gone, alive, tmp_path / "other"):
        folder.mkdir()
    (gone / "state").write_bytes(b"x" * 8192)
    owner = os.open(alive, os.O_RDONLY)
    fcntl.flock(owner, fcntl.LOCK_EX)  # what a supervisor holds (training/rundir.py)
    try:
        abandoned = machine.find_abandoned_runs(tmp_path)
    finally:
        os.close(owner)
    assert abandoned == {gone: 8192}
    row = checks.check_abandoned_runs(abandoned)
    assert row.condition is Condition.WARN
    assert "lastgood-my run" in row.found
    assert (row.action or "").endswith("lastgood doctor --clean")
    assert "8 KiB" in row.found
    assert checks.check_abandoned_runs({}).condition is Condition.OK


@pytest.mark.parametrize(
    ("is_synchronised", "drift_us", "boot", "condition"),
    [
        (True, 10, "b", Condition.OK),
        (False, 10, "b", Condition.WARN),
        (None, 10, "b", Condition.UNKNOWN),
        (True, 1_001, "b", Condition.WARN),
        (True, -1_001, "b", Condition.WARN),
        (True, 10, "unknown", Condition.UNKNOWN),
    ],
)
def test_the_clock_must_be_steady_synchronised_and_of_a_known_boot(
    is_synchronised, drift_us, boot, condition
):
    sync = ClockSync(
        is_synchronised=is_synchronised, uncertainty_us=500 if is_synchronised else None
    )
    row = checks.check_clock(sync=sync, drift_us=drift_us, boot=boot)
    assert row.condition is condition


def test_the_drift_is_what_the_wall_moved_more_than_the_monotonic_clock():
    class Stepped(ManualClock):
        def sleep_us(self, duration_us):
            super().sleep_us(duration_us)
            self.step_wall_us(-7_000)

    assert machine.read_clock_drift_us(Stepped()) == -7_000


@pytest.mark.parametrize(
    ("version", "variable", "condition"),
    [
        ("2.13.0+cpu", None, Condition.WARN),
        ("2.13.1", "0", Condition.WARN),
        ("2.13.0", "1", Condition.OK),
        ("2.9.0", None, Condition.UNKNOWN),
        ("2.130.0", None, Condition.UNKNOWN),
        (None, None, Condition.UNKNOWN),
    ],
)
def test_torchs_shared_store_is_safe_only_when_switched_off(version, variable, condition):
    environment = {} if variable is None else {checks.SHARED_STORE_VARIABLE: variable}
    row = checks.check_shared_store(torch_version=version, environment=environment)
    assert row.condition is condition
    assert (row.action is None) == (condition is Condition.OK)


@pytest.mark.parametrize(
    ("version", "condition"),
    [
        ("3.51.3", Condition.OK),
        ("3.54.1", Condition.OK),
        ("3.51.2", Condition.FAILED),
        ("3.40.1", Condition.FAILED),
        (None, Condition.FAILED),
    ],
)
def test_an_sqlite_with_the_wal_reset_defect_fails(version, condition):
    assert checks.check_sqlite(version).condition is condition


def test_absent_packages_are_listed_as_absent():
    assert (
        checks.check_versions({"torch": None, "python": "3.11"}).found
        == "torch absent, python 3.11"
    )


def test_the_probe_names_why_no_stack_could_be_read(tmp_path):
    refusing = tmp_path / "py-spy"
    refusing.write_text("#!/bin/sh\necho 'Error: Permission denied' >&2\nexit 1\n")
    refusing.chmod(0o755)
    assert machine.probe_stack_dump(str(refusing)) == "Error: Permission denied"
    assert machine.probe_stack_dump(str(tmp_path / "absent")) == "FileNotFoundError"


def test_what_cannot_be_read_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "PTRACE_SCOPE", tmp_path / "absent")
    assert machine.read_ptrace_scope() is None
    assert machine.read_free_bytes(tmp_path / "absent") is None
    assert machine.read_version("no-such-package-at-all") is None


def test_a_row_fits_eighty_columns_and_says_its_condition_in_words():
    row = Row(check="c", condition=Condition.WARN, found="word " * 60, action="do " * 60)
    lines = _lines(row).splitlines()
    assert lines[0].startswith("warn     c: word")
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in _lines(row)


def test_the_command_prints_every_row_and_exits_by_what_failed(cli):
    result = cli("doctor", "--json", "--state", "1MiB", "--nproc", "1")
    names = [row["check"] for row in result.json["rows"]]
    assert names == [
        "shared memory", "abandoned runs", "supervisors", "stack dumps", "ledger storage", "clock", "torch shared store", "SQLite",
        "versions",
    ]  # fmt: skip
    failed = [row for row in result.json["rows"] if row["condition"] == "failed"]
    assert result.json["held"] == (not failed)
    assert result.exit_code == (1 if failed else 0)
    assert "torch" not in sys.modules or "torch" in result.stdout


def test_a_state_that_cannot_fit_is_exit_code_one(cli):
    result = cli("doctor", "--state", "100000TiB")
    assert result.exit_code == 1
    assert result.stdout.startswith("failed   shared memory")


def test_a_state_without_a_unit_is_bad_input_with_advice(cli):
    result = cli("doctor", "--state", "5")
    assert result.exit_code == 2
    assert result.stderr.endswith("; write 5B\n")


def test_the_doctor_describes_a_place_that_other_commands_refuse(cli, monkeypatch):
    from lastgood.base.errors import LedgerError
    from lastgood.cli import doctor

    def refuse():
        raise LedgerError(
            "a ledger cannot lie there", where="/nfs/l", found="nfs", next="export X=/y"
        )

    monkeypatch.setattr(doctor, "default_ledger", refuse)
    result = cli("doctor", "--json", "--state", "1MiB")
    (row,) = (row for row in result.json["rows"] if row["check"] == "ledger storage")
    assert (row["condition"], row["action"]) == ("failed", "export X=/y")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("place", "condition", "told"),
    [
        ("folder", "failed", "a folder without a ledger"),
        ("text", "failed", "a file of another kind"),
        ("text/l.db", "failed", "is a file and no folder"),
        ("good.db", "", "a ledger is there"),
        ("empty.db", "failed", "not a ledger, found an empty file"),
        ("new.db", "", "no ledger yet"),
        ("none/new.db", "failed", "its folder "),
        ("state/lastgood/ledger.db", "", "its folder will be made in "),
    ],
)
def test_the_doctor_looks_at_the_ledger_itself(cli, tmp_path, monkeypatch, place, condition, told):
    from lastgood.ledger.store import open_store

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello " * 100)
    (tmp_path / "empty.db").touch()
    open_store(tmp_path / "good.db").close()
    before = sorted(tmp_path.rglob("*"))
    result = cli(
        "doctor", "--ledger", tmp_path / place, "--state", "1KiB", "--nproc", "1", "--json"
    )
    (row,) = (row for row in result.json["rows"] if row["check"] == "ledger storage")
    assert (row["condition"] == "failed") == (condition == "failed")
    assert told in row["found"]
    assert sorted(tmp_path.rglob("*")) == before
