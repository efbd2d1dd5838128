"""Lines of the kernel log from NVIDIA's drivers: Xid, SXid, and a device that fell off the bus without either.

Only lines that name the driver are parsed; a log of a month is mostly about something else, and skipping it is a
search over bytes. An Xid is a symptom with a number. What it means is in the table `xid` and never in this code. Two
numbers (43, 45) only say that a channel was stopped after something else: near another Xid of the host they are its
cascade; alone they stay visible as a failure of unknown cause, because then nobody has said why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lastgood.contract.taxonomy import EventKind, Role
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.kernel_lone import NEAR_US, settle
from lastgood.ledger.importers.kernel_prefix import (
    host_of_file,
    host_of_folder,
    read_journal,
    read_prefix,
)
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Line, Row, Source

_OFF_THE_BUS = "79"
_RECOVERY = "154"
_ENGINE = "13"
_NVLINK_CODES = frozenset(str(code) for code in range(144, 151))

_JOURNAL_BYTES = b'"MESSAGE":['
"""The journal writes a message that is no UTF-8 as a list of numbers, in which nothing can be seen from outside."""
_MARKS = (b"NVRM", b"SXid", _JOURNAL_BYTES)
_MARK = re.compile(r"NVRM: |NVRM:|nvidia-nvswitch\d*: |SXid \(", re.ASCII)
_XID = re.compile(r"Xid \(([^)]{0,80})\):? ?(\d{1,6})(?:[,:] ?|\b)(.*)", re.DOTALL)
_PCI = re.compile(r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2,4}:[0-9a-fA-F]{2})(?:\.[0-7])?")
_MIG = re.compile(r"GPU-I:(\d{1,3})", re.ASCII)
_SXID = re.compile(
    r"(?:nvidia-(nvswitch\d+): )?SXid \((?:PCI:)?([^)]{0,40})\): (\d{1,6}), (?:(Fatal|Non-fatal|Nonfatal)\b,? ?)?(.*)",
    re.DOTALL | re.IGNORECASE,
)
_SXID_DETAIL = re.compile(r"(?:Data \{|Severity \d)", re.ASCII)
_FALLEN = re.compile(
    r"GPU ((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?:? (?:GPU )?has fallen off the bus"
)
_FALLEN_BEGIN = re.compile(
    r"The NVIDIA GPU ((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?\b"
)
_FALLEN_END = re.compile(r"fallen off the bus and is not responding")
_FALLEN_REST = re.compile(r"\s*NVRM: (?:\(PCI ID|installed in|system has|fallen off)")
_FALLEN_LINES_MAX = 8
"""The multi-line form spreads over four lines; other lines of the driver may come between."""
_PID = re.compile(r"pid='?(<unknown>|\d{1,10})'?", re.ASCII)
_PLACE = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})", re.ASCII)
"""Where in the GPU an engine raised its exception: the same place again and again is hardware."""
_NAME = re.compile(r"(?<![a-z])name=('[^']{0,64}'|<unknown>|[^,]{1,64})")
_NVLINK = re.compile(
    r"\b(?P<unit>[A-Z][A-Z0-9_]{2,20}) (?P<severity>Fatal|Nonfatal|Non-fatal)\b(?: (?P<scope>XC[01]))?(?: i(?P<instance>\d{1,4}))?"
    r"(?: Link (?P<link>-?\d{1,4}))?[^(]{0,40}\((?P<intrinfo>0x[0-9a-fA-F]{1,8})"
)
_ACTION = re.compile(
    r"recovery action changed from (0x[0-9a-fA-F]{1,8}|\d{1,8})[^)]{0,64}\)? to (0x[0-9a-fA-F]{1,8}|\d{1,8})"
)
_JSON = re.compile(rb"\s*(?:\{|\[\s*\{)")
_REPEATED = re.compile(r"message repeated (\d{1,7}) times?: \[", re.ASCII)


class _Said(NamedTuple):
    """A line with its time, its host, and the message behind the prefix."""

    row: Row
    t_us: int
    is_inferred: bool
    host: str | None
    message: str
    repeat_count: int


@dataclass(slots=True)
class _Fallen:
    """The first line of the form over several lines, waiting for its last."""

    pci: str
    said: _Said
    left: int = _FALLEN_LINES_MAX


class KernelImporter:
    """`NVRM: Xid` and `SXid` lines of any kernel log."""

    name = "kernel"
    version = "1"
    title = "kernel log: NVIDIA Xid and SXid lines (dmesg, syslog, journal)"

    def recognises(self, head: Head) -> int:
        """Sure with a line of the driver, hesitant with any other kernel log."""
        if _JSON.match(head.data) is not None and b'"__REALTIME_TIMESTAMP"' not in head.data:
            return 0  # a record of something else that quotes the driver
        if b"NVRM: Xid" in head.data or b"SXid (PCI" in head.data:
            return 95
        if b"NVRM:" in head.data:
            return 80
        if re.search(
            rb"(?m)^[^\n]{0,80}\bkernel: |^\[ *\d+\.\d{6}\] |^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] ",
            head.data,
        ):
            return 60
        return 60 if b'"__REALTIME_TIMESTAMP"' in head.data else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """The events of the log, a line each."""
        host = host_of_file(source.name)
        if host is None and source.path is not None:
            host = host_of_folder(source.path)
        reader = DriverReader(context, file_host=host)
        lines = source.lines(containing=_MARKS)
        yield from settle(context.rows(lines, reader.parse), context)
        reader.finish()


IMPORTER = KernelImporter()


class DriverReader:
    """Parses one file; remembers what spreads over several lines."""

    def __init__(self, context: Context, *, file_host: str | None = None) -> None:
        """`file_host` is what the file's name says, for lines that name no host when nobody else does."""
        self._context = context
        self._file_host = context.options.host or file_host
        self._xid = context.mapping("xid")
        self._sxid = context.mapping("sxid")
        self._actions = context.mapping("recovery-action")
        self._fields: dict[tuple[str, str], dict[str, Any]] = {}
        self._off_us: dict[tuple[str | None, str], int] = {}
        self._fallen: dict[str | None, _Fallen] = {}
        self._begun: _Fallen | None = None
        self._without_host = 0
        self._hosts_in_lines = self._hosts_of_file = 0

    def parse(self, row: Line) -> Iterable[Event]:
        """The event of a line, if it states one."""
        said = self._split(row)
        if said is None:
            return ()
        self._context.coverage(said.t_us)
        return self._parse_said(said)

    def parse_message(
        self, row: Row, text: str, *, t_us: int, host: str | None
    ) -> Iterable[Event] | None:
        """The event of a driver's message in a record of another log; None when the text is not the driver's."""
        mark = _MARK.search(text)
        if mark is None:
            return None
        return self._parse_said(
            _Said(
                row,
                t_us,
                is_inferred=False,
                host=host,
                message=text[mark.start() :],
                repeat_count=1,
            )
        )

    def _parse_said(self, said: _Said) -> Iterable[Event]:
        message = said.message
        if (match := _XID.search(message)) is not None and "SXid" not in message[
            : match.start() + 4
        ]:
            return (self._xid_event(said, match[1], match[2], match[3]),)
        if (match := _SXID.search(message)) is not None:
            return self._sxid_event(said, match)
        if (match := _FALLEN.search(message)) is not None:
            return (self._fallen_event(said, match[1]),)
        if (match := _FALLEN_BEGIN.search(message)) is not None:
            if _FALLEN_END.search(message) is not None:  # all of it in one line
                return (self._fallen_event(said, match[1]),)
            self._begun = self._fallen[said.host] = _Fallen(match[1], said)
        elif _FALLEN_END.search(message) is not None:
            begun = self._fallen.pop(said.host, None)
            self._begun = None
            return (self._fallen_event(said, None if begun is None else begun.pci),)
        elif said.host in self._fallen:
            self._forget(said.host)
        if "Xid" in message and _MARK.search(message):
            if "SXid" not in message:
                raise RowProblem("an Xid line without a device or a number", message[:120])
            raise RowProblem("an SXid line without a device or a number", message[:120])
        self._context.ignore(
            said.row,
            "lines of the driver without an Xid" if _MARK.search(message) else "not about failures",
        )
        return ()

    def finish(self) -> None:
        """What is said once about the whole file."""
        if self._hosts_of_file and self._context.options.host is None:
            self._context.note(
                f"the host {self._file_host} is taken from the name of the file or of its folder"
            )
        # A central log of many hosts covers its time for none of them in particular.
        self._context.file_host = None if self._hosts_in_lines else self._file_host
        if self._without_host:
            self._context.note(
                f"lines that name no host, in a file whose name does not either: {self._without_host:,}; "
                "give --host, or failures of several hosts cannot be told apart"
            )

    def _split(self, row: Line) -> _Said | None:
        text = row.text
        mark = _find_mark(text)
        if text.startswith("{") and (mark >= 0 or _JOURNAL_BYTES in row.raw):
            record = read_journal(row.raw)
            if _MARK.search(record.message) is not None:
                return self._said(row, record.t_us, record.host, record.message, is_inferred=False)
            mark = -1
        if mark < 0:
            self._cover(row)
            return None
        begun = self._begun
        if begun is not None and not text[:mark].strip() and _FALLEN_REST.match(text):
            # One message over several lines, of which dmesg stamps only the first: these are not lines of their own.
            return begun.said._replace(row=row, message=text[mark:])
        boot_us = self._context.options.boot_us
        prefix = read_prefix(text[:mark], self._context.times, boot_us=boot_us)
        return self._said(
            row, prefix.t_us, prefix.host, text[mark:], is_inferred=prefix.is_inferred
        )

    def _cover(self, row: Line) -> None:
        """The first or last line of a block: it only tells which time the log covers."""
        try:
            if row.text.startswith("{"):
                t_us = read_journal(row.raw).t_us
            else:
                boot_us = self._context.options.boot_us
                t_us = read_prefix(row.text, self._context.times, boot_us=boot_us).t_us
            self._context.coverage(t_us)
        except RowProblem:
            pass
        self._context.ignore(row, "not about failures")

    def _said(
        self, row: Line, t_us: int, host: str | None, message: str, *, is_inferred: bool
    ) -> _Said:
        repeated = _REPEATED.search(row.text) if "message repeated" in row.text else None
        count = int(repeated[1]) if repeated else 1
        if count > 1:
            self._context.known_loss(count - 1, "repeats that syslog folded into one line")
        if host is None:
            host = self._file_host
            self._hosts_of_file += host is not None
        else:
            self._hosts_in_lines += 1
        return _Said(row, t_us, is_inferred, host, message, count)

    def _event(self, said: _Said, code: str, *, table: str, pci: str | None, body: dict[str, object], switch: str | None = None) -> Event:  # fmt: skip
        mapping = self._xid if table == "xid" else self._sxid
        if said.host is None:
            self._without_host += 1
        prefix = f"{said.host}/" if said.host else ""
        if said.repeat_count > 1:
            body["repeated"] = said.repeat_count
        fields = self._fields.get((table, code))
        if fields is None:
            fields = self._fields[table, code] = mapping_fields(mapping, code)
        return self._context.event(
            EventKind.OBSERVATION,
            row=said.row,
            t_us=said.t_us,
            inferred=said.is_inferred,
            host=said.host,
            device=None if pci is None else f"{prefix}{pci.lower()}",
            domain=() if switch is None else (("switch", f"{prefix}{switch}"),),
            body={"mapping": mapping.id, "code": code, **body},
            **(fields | {"role": str(Role.CONTEXT)} if "restated" in body else fields),
        )

    def _xid_event(self, said: _Said, place: str, code: str, rest: str) -> Event:
        pci = _PCI.search(place)
        rest = rest.rstrip(" ]") if said.repeat_count > 1 else rest
        body: dict[str, object] = {"text": rest} if rest else {}
        code = str(int(code))
        if "GPU-I" in place and (mig := _MIG.search(place)) is not None:
            body["gpu_instance"] = int(mig[1])
        if pci is None:
            body["device_text"] = place
        if (match := _PID.search(rest)) is not None and match[1].isdigit():
            body["pid"] = int(match[1])
        if (match := _NAME.search(rest)) is not None and "<unknown>" not in match[1]:
            body["process"] = match[1].strip("' ")
        if code == _ENGINE and (match := _PLACE.search(rest)) is not None:
            body["gpc"], body["tpc"] = int(match[1]), int(match[2])
        if code in _NVLINK_CODES and (match := _NVLINK.search(rest)) is not None:
            code = _nvlink(code, match, body)
        if code == _OFF_THE_BUS and pci is not None:
            self._off_us[said.host, pci[1].lower()] = said.t_us
        if code == _RECOVERY and (match := _ACTION.search(rest)) is not None:
            body["recovery_action"] = self._recovery(match)
        return self._event(said, code, table="xid", pci=None if pci is None else pci[1], body=body)

    def _recovery(self, match: re.Match[str]) -> dict[str, object]:
        """Both actions by number, and the new one by name; one that nobody knows keeps its number."""
        before, after = (int(n, 16 if n.startswith("0x") else 10) for n in match.groups())
        row = self._actions.row(str(after))
        if row is None:
            self._context.note(
                f"GPU recovery action {after} is not in the table {self._actions.id[:20]}: kept by number"
            )
        return {"from": before, "to": after, "name": None if row is None else row.meaning}

    def _sxid_event(self, said: _Said, match: re.Match[str]) -> Iterable[Event]:
        switch, pci, code, severity, rest = match.groups()
        if severity is None and _SXID_DETAIL.match(rest):
            self._context.ignore(said.row, "details of an SXid that has its own line")
            return ()
        code = str(int(code))
        if severity is not None:
            code += "/fatal" if severity.lower() == "fatal" else "/nonfatal"
        body: dict[str, object] = {"text": rest, "switch_pci": pci} if rest else {"switch_pci": pci}
        if (link := re.search(r"Link (\d{1,4})", rest)) is not None:
            body["link"] = int(link[1])
        return (
            self._event(
                said, code, table="sxid", pci=None, body=body, switch=switch or pci.lower()
            ),
        )

    def _fallen_event(self, said: _Said, pci: str | None) -> Event:
        """A device off the bus: the driver writes it without a number, and it is what Xid 79 says.

        Right behind an Xid 79 of the same device it says the same again, and is no failure of its own.
        """
        body: dict[str, object] = {"text": said.message[:300], "form": "without an Xid"}
        known_us = None if pci is None else self._off_us.get((said.host, pci.lower()))
        if known_us is not None and abs(said.t_us - known_us) <= NEAR_US:
            body["restated"] = True
        elif pci is not None:
            self._off_us[said.host, pci.lower()] = said.t_us
        return self._event(said, _OFF_THE_BUS, table="xid", pci=pci, body=body)

    def _forget(self, host: str | None) -> None:
        begun = self._fallen[host]
        begun.left -= 1
        if begun.left <= 0:
            del self._fallen[host]
            self._begun = None


def _find_mark(text: str) -> int:
    """Where the driver's message begins; -1 when there is none."""
    at = text.find("NVRM:")
    if at >= 0 and "SXid" not in text:  # by far the most: a search for one word is the quickest
        return at
    match = _MARK.search(text)
    return -1 if match is None else match.start()


def _nvlink(code: str, match: re.Match[str], body: dict[str, object]) -> str:
    """Unit, link and sub-code of an NVLink5 error (144 to 150); the sub-code is bits 20 to 25 of the first word."""
    body["unit"] = match["unit"]
    for name in ("link", "instance"):
        if match[name] is not None:
            body[name] = int(match[name])
    body["sub_code"] = (int(match["intrinfo"], 16) >> 20) & 0x3F
    return f"{code}/{'fatal' if match['severity'] == 'Fatal' else 'nonfatal'}"
