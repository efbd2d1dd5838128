"""Kernel lines of NVIDIA's drivers: every prefix, old and new forms, and what has no number of its own."""

import json
import os

import pytest

from lastgood.ledger.grouping import by_gap
from lastgood.ledger.importers.importer import Head
from lastgood.ledger.importers.kernel import IMPORTER
from lastgood.ledger.importers.kernel_prefix import host_of_file
from lastgood.ledger.importers.mapping import load_mapping, remap
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store
from tests.unit.ledger.importers.import_cases import import_one, import_text

XID = "NVRM: Xid (PCI:0000:41:00): 94, pid=31337, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
AT_US = 1_793_589_247_000_000  # 2026-11-02 03:14:07 UTC
FILE_TIME_S = 1_793_600_000


def stamped(message: str, *, second: int = 7, host: str = "gpu-0007") -> str:
    return (
        f"2026-11-02T03:{14 + second // 60:02d}:{second % 60:02d}+00:00 {host} kernel: {message}\n"
    )


def only(imported):
    (event,) = imported.events
    return event


def domains(event):
    return {domain.kind: domain.id for domain in event.domain}


@pytest.mark.parametrize(
    ("prefix", "host", "inferred"),
    [
        ("[Mon Nov  2 03:14:07 2026] ", None, True),
        ("kern  :err   : [Mon Nov  2 03:14:07 2026] ", None, True),
        ("2026-11-02T03:14:07+00:00 gpu-0007 kernel: ", "gpu-0007", False),
        ("2026-11-02T03:14:07.000000Z gpu-0007 kernel: [12345.678901] ", "gpu-0007", False),
        ("<3>1 2026-11-02T03:14:07Z gpu-0007 kernel - - - ", "gpu-0007", False),
        ("2026-11-02T03:14:07,000000+00:00 ", None, False),
        ("2026-11-02T03:14:07+0000 gpu-0007 kernel: ", "gpu-0007", False),
        ("2026-11-02 03:14:07 gpu-0007 kernel: ", "gpu-0007", True),
        ("Nov  2 03:14:07 gpu-0007 kernel: [12345.678901] ", "gpu-0007", True),
        ("Nov 02 03:14:07.000000 gpu-0007.site.example kernel: ", "gpu-0007.site.example", True),
        ("1793589247.000000 gpu-0007 kernel: ", "gpu-0007", False),
    ],
)
def test_every_prefix_gives_the_time_and_the_host_if_it_has_them(tmp_path, prefix, host, inferred):
    path = tmp_path / "kern.log"
    path.write_text(prefix + XID + "\n")
    os.utime(path, (FILE_TIME_S, FILE_TIME_S))
    imported = import_one(tmp_path, path)
    event = only(imported)
    assert event.t_occurred_us == AT_US
    assert domains(event).get("host") == host
    assert domains(event)["device"] == (f"{host}/0000:41:00" if host else "0000:41:00")
    assert (event.clock is not None and event.clock.source == "inferred") == inferred
    assert imported.quality.inferred_times == inferred


def test_an_xid_becomes_an_observation_with_what_the_table_says(tmp_path):
    event = only(import_text(tmp_path, stamped(XID)))
    assert (event.kind, event.class_, event.cause, event.cause_status) == (
        "observation", "fail_stop", "gpu.memory", "supported",
    )  # fmt: skip
    assert (event.symptom, event.role) == ("memory_error", "initiating")
    assert event.body == {
        "mapping": load_mapping("xid").id,
        "code": "94",
        "pid": 31337,
        "process": "python3",
        "text": "pid=31337, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    }
    assert (event.source.importer, event.source.locator) == ("kernel", "file.txt#1")


@pytest.mark.parametrize(
    ("message", "device", "code"),
    [
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101, intr 10000000", "0000:03:00", "31"),
        ("NVRM: Xid (PCI:0000:0f:00): 45, pid='<unknown>', name=<unknown>, Ch 00000018", "0000:0f:00", "45"),
        ("NVRM: Xid (PCI:0000:0F:00 GPU-I:05): 119, pid=1, name=x, Timeout", "0000:0f:00", "119"),
        ("NVRM: Xid (PCI:0000:41:00.0): 79, pid=12, GPU has fallen off the bus.", "0000:41:00", "79"),
        ("NVRM: Xid (PCI:0008:01:00): 8", "0008:01:00", "8"),
        ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", "0000:18:00", "79"),
        ("NVRM: GPU at 0000:18:00.0 has fallen off the bus.", None, None),
        ("NVRM: GPU 0000:18:00 has fallen off the bus", "0000:18:00", "79"),
    ],
)  # fmt: skip
def test_old_and_new_forms_give_the_device_and_the_code(tmp_path, message, device, code):
    imported = import_text(tmp_path, stamped(message))
    if code is None:
        assert imported.events == []
        assert imported.quality.ignored_count == 1
        return
    event = only(imported)
    assert domains(event)["device"] == f"gpu-0007/{device}"
    assert event.body["code"] == code


def test_an_exception_of_an_engine_keeps_its_place_in_the_gpu(tmp_path):
    """The same place again and again is hardware, whatever the application does."""
    said = "NVRM: Xid (PCI:0000:0f:00): 13, pid=7, name=x, Graphics SM Warp Exception on (GPC 3, TPC 11): Out Of Range"
    event = only(import_text(tmp_path, stamped(said)))
    assert (event.body["gpc"], event.body["tpc"]) == (3, 11)


def test_unknown_pids_and_names_are_not_made_up(tmp_path):
    event = only(
        import_text(
            tmp_path, stamped("NVRM: Xid (PCI:0000:0f:00): 13, pid='<unknown>', name=<unknown>, x")
        )
    )
    assert "pid" not in event.body
    assert "process" not in event.body


def test_the_form_over_several_lines_is_one_device_off_the_bus(tmp_path):
    lines = [
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    imported = import_text(tmp_path, "".join(map(stamped, lines)))
    event = only(imported)
    assert (event.body["code"], domains(event)["device"]) == ("79", "gpu-0007/0000:18:00")
    assert event.cause == "gpu.bus"
    assert (imported.quality.read, imported.quality.accepted, imported.quality.ignored_count) == (
        3,
        1,
        2,
    )


@pytest.mark.parametrize(
    "text",
    [
        # dmesg stamps only the first line of a message.
        (
            "[Mon Nov  2 03:14:07 2026] NVRM: The NVIDIA GPU 0000:18:00.0\n"
            "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "               NVRM: fallen off the bus and is not responding to commands.\n"
        ),
        (
            "[Mon Nov  2 03:14:07 2026] NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1e07) installed in this\n"
            "NVRM: system has fallen off the bus and is not responding to commands.\n"
        ),
        (
            "[Mon Nov  2 03:14:07 2026] NVRM: The NVIDIA GPU 0000:18:00.0 installed in this system has fallen off the bus "
            "and is not responding to commands.\n"
        ),
        (
            '{"__REALTIME_TIMESTAMP":"1793589247000000","MESSAGE":"NVRM: The NVIDIA GPU 0000:18:00.0\\nNVRM: (PCI ID: '
            '10de:26b5) installed in this system has\\nNVRM: fallen off the bus and is not responding to commands."}\n'
        ),
    ],
)
def test_the_other_lines_of_one_message_have_the_time_of_its_first(tmp_path, text):
    imported = import_text(tmp_path, text, zone="UTC", host="gpu-0007")
    event = only(imported)
    assert (event.body["code"], event.t_occurred_us) == ("79", AT_US)
    assert domains(event)["device"] == "gpu-0007/0000:18:00"
    assert imported.quality.rejected_count == 0


def test_another_line_without_a_time_does_not_get_that_of_its_neighbour(tmp_path):
    text = f"[Mon Nov  2 03:14:07 2026] NVRM: The NVIDIA GPU 0000:18:00.0\n   {XID}\n"
    imported = import_text(tmp_path, text, zone="UTC")
    assert imported.events == []
    assert list(imported.quality.rejected) == ["no time in the line"]


def test_two_hosts_in_one_log_keep_their_own_first_lines(tmp_path):
    first, last = (
        "NVRM: The NVIDIA GPU 0000:{}:00.0",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    text = (
        stamped(first.format("18"), host="a1") + stamped(first.format("19"), host="b1")
        + stamped(last, host="a1") + stamped(last, host="b1")
    )  # fmt: skip
    imported = import_text(tmp_path, text)
    assert [domains(e)["device"] for e in imported.events] == ["a1/0000:18:00", "b1/0000:19:00"]


def test_a_second_line_about_the_same_device_off_the_bus_is_context(tmp_path):
    text = stamped("NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.") + stamped(
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", second=8
    )
    imported = import_text(tmp_path, text)
    assert [event.role for event in imported.events] == ["initiating", "context"]
    assert imported.quality.failures == 1
    assert [e.role for e in remap(imported.events, load_mapping("xid"))] == [
        "initiating",
        "context",
    ]


@pytest.mark.parametrize(
    ("rest", "code", "sub_code", "link", "class_"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004505c6 0x00000000 0x00000000)", "149/fatal", 4, 9, "fail_stop"),
        ("145, RLW_REMAP Nonfatal XC1 i3 Link -1 (0x03f00000 0x1)", "145/nonfatal", 63, -1, None),
        ("150, MSE Fatal XC0 (0x00100000)", "150/fatal", 1, None, "fail_stop"),
        ("146, TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 00 (0x02500011 0x1 0x0 0x0)", "146/nonfatal", 37, 0, None),
    ],
)  # fmt: skip
def test_nvlink5_errors_carry_unit_link_and_sub_code(tmp_path, rest, code, sub_code, link, class_):
    """The sub-code is bits 20 to 25 of the first word: 0x004505c6 >> 20 is 4."""
    event = only(import_text(tmp_path, stamped(f"NVRM: Xid (PCI:0018:01:00): {rest}")))
    assert (event.body["code"], event.body["sub_code"], event.body.get("link")) == (
        code,
        sub_code,
        link,
    )
    assert (event.class_, event.cause) == (class_, "gpu.link")


@pytest.mark.parametrize(
    ("said", "code", "class_"),
    [
        ("20034, Fatal, Link 28 LTSSM Fault Up", "20034/fatal", "fail_stop"),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", "12028/nonfatal", None),
        ("99999, Fatal, Link 01 something new", "99999/fatal", "fail_stop"),
    ],
)
def test_an_sxid_is_about_a_switch_of_its_host(tmp_path, said, code, class_):
    event = only(
        import_text(tmp_path, stamped(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {said}"))
    )
    assert (event.body["code"], event.class_, event.cause) == (code, class_, "gpu.link")
    assert domains(event) == {"host": "gpu-0007", "switch": "gpu-0007/nvswitch3"}
    assert event.body["mapping"].startswith("sxid/1@")


def test_the_details_of_an_sxid_are_no_second_one(tmp_path):
    start = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, "
    text = "".join(
        stamped(start + rest)
        for rest in (
            "Fatal, Link 28 LTSSM Fault Up",
            "Severity 1 Engine instance 28",
            "Data {0x50610002, 0x10100000}",
        )
    )
    imported = import_text(tmp_path, text)
    assert len(imported.events) == 1
    assert imported.quality.ignored == {"details of an SXid that has its own line": 2}


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("0x0", "NONE"), ("0x1", "GPU_RESET"), ("0x2", "NODE_REBOOT"), ("0x3", "DRAIN_P2P"), ("0x4", "DRAIN_AND_RESET"),
        ("0x5", "RECOVER_IMEX_DOMAIN"), ("0x6", "BUS_RESET"), ("0x7", "SYSTEM_REBOOT"), ("0x1f", None),
    ],
)  # fmt: skip
def test_a_changed_recovery_action_is_a_state_and_keeps_its_number(tmp_path, number, name):
    said = f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to {number} (Whatever)"
    imported = import_text(tmp_path, stamped(said))
    event = only(imported)
    assert (event.class_, event.role) == (None, "context")
    assert event.body["recovery_action"] == {"from": 0, "to": int(number, 16), "name": name}
    assert imported.quality.failures == 0
    assert any("kept by number" in note for note in imported.quality.notes) == (name is None)


def test_an_xid_that_the_table_does_not_have_is_kept_and_counted_as_unplaced(tmp_path):
    imported = import_text(tmp_path, stamped("NVRM: Xid (PCI:0008:01:00): 4711, something new"))
    event = only(imported)
    assert (event.body["code"], event.class_, event.cause) == ("4711", None, "unknown")
    assert (imported.quality.failures, imported.quality.unplaced) == (0, 1)


def channel(code: int, *, second: int, host: str = "gpu-0007") -> str:
    return stamped(
        f"NVRM: Xid (PCI:0000:41:00): {code}, pid=1, name=x, Ch 8", second=second, host=host
    )


@pytest.mark.parametrize("code", [43, 45])
def test_a_stopped_channel_near_another_xid_is_its_consequence(tmp_path, code):
    for name, text in {
        "behind": channel(48, second=0) + channel(code, second=60),
        "before": channel(code, second=0) + channel(48, second=60),
    }.items():
        imported = import_text(tmp_path, text, name=f"{name}.log", ledger=name)
        (stopped,) = [e for e in imported.events if e.body["code"] == str(code)]
        assert stopped.role == {43: "cascade", 45: "teardown"}[code]
        assert imported.quality.failures == 1
        assert [i.cause for i in fold_incidents(imported.events, by_gap(300_000_000))] == [
            "gpu.memory"
        ]


@pytest.mark.parametrize("code", [43, 45])
def test_a_stopped_channel_alone_stays_visible_as_a_failure_of_unknown_cause(tmp_path, code):
    text = (
        channel(48, second=0)
        + channel(code, second=61)
        + channel(code, second=62, host="gpu-0008")
        + channel(154, second=63, host="gpu-0008")
    )
    imported = import_text(tmp_path, text)
    alone = [e for e in imported.events if e.body["code"] == str(code)]
    assert [(e.role, e.class_, e.cause, e.body["lone"]) for e in alone] == [
        ("unknown", "fail_stop", "unknown", True)
    ] * 2
    assert (imported.quality.failures, imported.quality.unknown_causes) == (3, 2)
    assert "without another Xid of their host within a minute: 2;" in " ".join(
        imported.quality.notes
    )
    assert [e.role for e in remap(alone, load_mapping("xid"))] == ["unknown", "unknown"]


def test_seconds_since_boot_need_the_time_of_the_boot(tmp_path):
    text = f"[   12.250000] {XID}\n"
    rejected = import_text(tmp_path, text, name="dmesg.txt")
    assert rejected.events == []
    assert list(rejected.quality.rejected) == [
        "seconds since boot only: give --boot TIME, or export with dmesg --time-format iso"
    ]
    taken = import_text(tmp_path, text, name="dmesg.txt", boot_us=AT_US)
    assert only(taken).t_occurred_us == AT_US + 12_250_000
    assert only(taken).clock.source == "inferred"


def test_a_line_without_any_time_is_rejected_with_its_place(tmp_path):
    imported = import_text(tmp_path, XID + "\n", name="bare.txt")
    ((reason, rejection),) = imported.quality.rejected.items()
    assert reason == "no time in the line"
    assert rejection.examples[0].locator == "bare.txt#1"


@pytest.mark.parametrize(
    "message",
    ["NVRM: Xid (PCI:0000:41:00): ?", "NVRM: Xid", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): x"],
)
def test_an_xid_that_cannot_be_read_is_rejected_and_not_ignored(tmp_path, message):
    imported = import_text(tmp_path, stamped(message))
    assert imported.quality.rejected_count == 1
    assert "without a device or a number" in next(iter(imported.quality.rejected))


def test_a_record_of_the_journal_needs_no_zone(tmp_path):
    record = {
        "__REALTIME_TIMESTAMP": str(AT_US),
        "_HOSTNAME": "gpu-0007",
        "MESSAGE": XID,
        "_TRANSPORT": "kernel",
    }
    odd = record | {"MESSAGE": list(XID.replace("94", "95").encode() + b"\xff")}
    other = record | {"MESSAGE": "usb 1-1: new device"}
    text = "".join(
        json.dumps(item, separators=(",", ":")) + "\n" for item in (other, record, odd, other)
    )
    imported = import_text(tmp_path, text, year=2001)
    assert imported.file.format == "kernel"
    assert [(e.t_occurred_us, e.body["code"]) for e in imported.events] == [
        (AT_US, "94"),
        (AT_US, "95"),
    ]
    assert imported.quality.inferred_times == 0
    assert imported.quality.ignored_count == 2


def test_repeats_that_syslog_folded_are_said_to_be_missing(tmp_path):
    text = f"Nov  2 03:14:07 gpu-0007 kernel: message repeated 5 times: [ {XID}]\n"
    imported = import_text(tmp_path, text)
    assert only(imported).body["repeated"] == 5
    assert imported.quality.known_losses == {"repeats that syslog folded into one line": 4}


def test_other_lines_are_ignored_and_still_tell_which_time_is_covered(tmp_path):
    text = (
        stamped("usb 1-1: new device", second=0)
        + stamped(XID, second=30)
        + stamped("eth0: link up", second=59)
    )
    imported = import_text(tmp_path, text)
    assert (imported.file.coverage_begin_us, imported.file.coverage_end_us) == (
        AT_US - 7_000_000,
        AT_US + 52_000_000,
    )
    assert imported.quality.ignored_count == 2


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("dmesg-gpu-0007.txt", "gpu-0007"),
        ("gpu-0007.kern.log.1.gz", "gpu-0007"),
        ("gpu-0007.log", "gpu-0007"),
        ("node12_dmesg_2026-11-02.log", "node12"),
        ("kern.log", None),
        ("kern.log.1", None),
        ("messages-20261102.gz", None),
        ("syslog", None),
        ("dmesg.txt", None),
        ("journal.json", None),
        ("-", None),
    ],
)
def test_a_file_name_gives_its_host_away_only_if_it_has_one(name, host):
    assert host_of_file(name) == host


def test_the_line_wins_over_the_option_and_the_option_over_the_file_name(tmp_path):
    text = stamped(XID, host="in-line-1")
    assert (
        domains(only(import_text(tmp_path, text, name="name-2.log", ledger="a")))["host"]
        == "in-line-1"
    )
    named = import_text(tmp_path, text, name="name-2.log", ledger="b", host="said-3")
    assert domains(only(named))["host"] == "in-line-1"
    bare = import_text(
        tmp_path, f"[Mon Nov  2 03:14:07 2026] {XID}\n", name="name-2.log", ledger="c"
    )
    assert domains(only(bare))["host"] == "name-2"
    assert bare.quality.notes == [
        "the host name-2 is taken from the name of the file or of its folder"
    ]
    said = import_text(
        tmp_path,
        f"[Mon Nov  2 03:14:07 2026] {XID}\n",
        name="name-2.log",
        ledger="d",
        host="said-3",
    )
    assert domains(only(said))["host"] == "said-3"
    assert said.quality.notes == []


@pytest.mark.parametrize(
    ("prefix", "host"),
    [("2026-11-02T03:14:07Z gpu-0007 kernel: ", None), ("[Mon Nov  2 03:14:07 2026] ", "node-2")],
)
def test_the_time_covered_is_that_of_a_host_only_if_the_whole_file_is(tmp_path, prefix, host):
    import_text(tmp_path, prefix + XID + "\n", name="node-2.log")
    with read_store(tmp_path / "ledger.db") as store:
        (covered,) = store.events(kinds=["annotation"])
    assert domains(covered).get("host") == host


def test_without_any_host_the_table_asks_for_one(tmp_path):
    imported = import_text(tmp_path, f"[Mon Nov  2 03:14:07 2026] {XID}\n", name="kern.log")
    assert any("give --host" in note for note in imported.quality.notes)


@pytest.mark.parametrize(
    ("data", "at_least", "at_most"),
    [
        (stamped(XID), 90, 100),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal", 90, 100),
        (stamped("usb 1-1: new device"), 50, 70),
        ("[    1.234567] usb 1-1: new device\n", 50, 70),
        ('{"__REALTIME_TIMESTAMP":"1","MESSAGE":"usb 1-1"}\n', 50, 70),
        ('{"resourceLogs": [{"body": "NVRM: Xid (PCI:0000:41:00): 94"}]}', 0, 19),
        ("job|state|end\n", 0, 0),
        ("", 0, 0),
    ],
)
def test_it_recognises_its_own(data, at_least, at_most):
    assert at_least <= IMPORTER.recognises(Head(data.encode(), data, "x")) <= at_most
