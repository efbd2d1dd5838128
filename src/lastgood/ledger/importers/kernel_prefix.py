"""What stands before the message in a line of a kernel log: when, and on which host.

The same message comes out of dmesg, of two forms of syslog and of the journal. Seconds since boot say nothing without
the time of the boot; a line of syslog that also carries them has a better time in front.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from lastgood.ledger.importers.times import RowProblem, Times

_PRIORITY = r"(?:<\d{1,3}>(?:1 )?)?"
_STAMPED = re.compile(
    rf"\s*{_PRIORITY}(?P<time>\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:\s?(?:Z|[+-]\d\d:?\d\d))?"
    r"|[A-Z][a-z]{2} +\d{1,2} (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{9,10}\.\d{1,9}(?= [A-Za-z]))"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_CTIME = re.compile(r"\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4})\]")
_SINCE_BOOT = re.compile(r"\[ *(\d{1,9}\.\d{1,9})\]")
_HOST = re.compile(r"[ ,]*([A-Za-z0-9][A-Za-z0-9._\-]{0,252})(?=\s)")
_TAGS = frozenset(("kernel", "kern", "nvrm", "nvidia"))
"""Words that stand where a host would, in lines without a host."""

_FILE_WORDS = re.compile(
    r"(?i)(?:(?:^|(?<=[._\-]))(?:dmesg|kern(?:el)?|messages|syslog|journal(?:ctl)?|logs?|txt|gz|json|out|xids?|nvidia"
    r"|nvrm|raw|old|prev|boot|\d{4}-?\d{2}-?\d{2}|part\d*)|(?<=\.)\d{1,3})(?=[._\-]|$)"
)
_FILE_HOST = re.compile(r"(?=[^\d]*[A-Za-z])(?=.*\d)[A-Za-z0-9][A-Za-z0-9.\-]{1,62}")
_DATED = re.compile(r"\d{4}-?\d{2}", re.ASCII)


class Prefix(NamedTuple):
    """When a line was written, and on which host if it says so."""

    t_us: int
    is_inferred: bool
    host: str | None


def read_prefix(text: str, times: Times, *, boot_us: int | None) -> Prefix:
    """Time and host from what stands before the message.

    Raises:
        RowProblem: No time, one that cannot be told, or seconds since a boot that nobody named.
    """
    match = _STAMPED.match(text)
    if match is not None:
        t_us, is_inferred = times.parse(match["time"])
        return Prefix(t_us, is_inferred, _host(match["rest"]))
    match = _CTIME.search(text)
    if match is not None:
        t_us, is_inferred = times.parse(match["time"])
        return Prefix(t_us, is_inferred, _host(text[: match.start()]))
    match = _SINCE_BOOT.search(text)
    if match is None:
        raise RowProblem("no time in the line")
    if boot_us is None:
        raise RowProblem(
            "seconds since boot only: give --boot TIME, or export with dmesg --time-format iso"
        )
    seconds, _, fraction = match[1].partition(".")
    since_us = int(seconds) * 1_000_000 + int((fraction + "000000")[:6])
    return Prefix(boot_us + since_us, is_inferred=True, host=_host(text[: match.start()]))


@functools.lru_cache(maxsize=4_096)
def _host(text: str) -> str | None:
    """The word behind the time, unless it is the tag of the kernel."""
    match = _HOST.match(text)
    if match is None or match[1].lower().rstrip(":") in _TAGS:
        return None
    rest = text[match.end() :].lstrip()
    # dmesg --time-format iso has the message right behind the time: then nothing of a tag follows the word.
    return match[1] if rest else None


class JournalLine(NamedTuple):
    """One record of `journalctl -o json`."""

    t_us: int
    host: str | None
    message: str


def read_journal(raw: bytes) -> JournalLine:
    """Time, host and message of a record of the journal; its time needs no zone.

    Raises:
        RowProblem: Not a record of the journal.
    """
    try:
        record = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RowProblem("not JSON", str(error)) from error
    if not isinstance(record, dict) or "MESSAGE" not in record:
        raise RowProblem("JSON, but no record of the journal")
    message = record["MESSAGE"]
    if isinstance(message, list):  # the journal writes bytes that are no UTF-8 as numbers
        if not all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
            raise RowProblem("a message that is no text")
        message = bytes(message).decode(errors="replace")
    stamp = record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")
    if not isinstance(message, str) or not isinstance(stamp, str | int):
        raise RowProblem("a record of the journal without a message or a time")
    host = record.get("_HOSTNAME")
    t_us = Times().epoch(stamp, unit="us").t_us
    return JournalLine(t_us, host if isinstance(host, str) else None, message)


def host_of_file(name: str) -> str | None:
    """The host that a file's name gives away (`dmesg-gpu-0007.txt`, `gpu-0007.kern.log.1`); None when it does not."""
    rest = name
    for _ in range(12):
        shorter = _FILE_WORDS.sub("", rest, count=1).strip("._-")
        if shorter == rest:
            break
        rest = shorter
    return rest if _FILE_HOST.fullmatch(rest) else None


def host_of_folder(path: Path) -> str | None:
    """The host whose name the file's folder has (`gpu-0007/dmesg.txt`); None when it looks like something else."""
    name = path.absolute().parent.name
    return name if _FILE_HOST.fullmatch(name) and not _DATED.search(name) else None
