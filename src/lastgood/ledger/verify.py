"""Does the ledger still say what it said? Every body is read and hashed again; no stored hash is believed.

Four things are compared: each row with its own bytes and with the link of the row before, the tree over all leaves
with the frontier, with every tree head that the ledger stored about itself, and with a head that somebody kept
outside. Beside them stand the tables and indexes themselves, which must be those that lastgood makes. Bytes of the
file that hold no row (free pages, the header's counters) carry nothing and are not covered.
The first three find damage and clumsy edits and name the first bad sequence number; only the last finds a
cut tail or a history that was rewritten with all its hashes, because everything inside the file can be rewritten.

The file is opened read-only and never repaired.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import msgspec

from lastgood.base.errors import (
    BadInput,
    LastgoodError,
    LedgerCorrupt,
    LedgerError,
    LedgerPathError,
)
from lastgood.ledger.mapped import map_file
from lastgood.ledger.merkle import TreeBuilder
from lastgood.ledger.schema import (
    EMPTY_LINK,
    HEAD_EVENT_COUNT,
    one,
    open_read_only,
    schema_problem,
    storage_errors,
)
from lastgood.ledger.tree_head import TreeHead, parse_note

CHUNK_ROWS = 1_024
"""Leaves that are put into the tree at once."""
OnProgress = Callable[[int, int], None]
OTHER_LEDGER = "LG-I04"
"""Code of the refusal to compare a ledger with the head of another one."""


class Verdict(enum.StrEnum):
    """The answer of the check. Unknown is never ok."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What the check found. `first_bad_seq` is the first row that is wrong or missing, when rows are at fault."""

    verdict: Verdict
    size: int | None
    """Rows that are there; None when they could not be counted."""
    root: bytes | None
    """Root over the rows as they are now; None when some row could not be read."""
    origin: str | None
    reason: str
    first_bad_seq: int | None = None
    next: str | None = None
    """What to do about it."""
    head_count: int = 0
    """Stored tree heads that were compared."""

    @property
    def ok(self) -> bool:
        """True only when everything held."""
        return self.verdict is Verdict.OK

    @property
    def head(self) -> TreeHead | None:
        """The tree head over the rows as they are now."""
        if self.size is None or self.root is None or self.origin is None:
            return None
        return TreeHead(origin=self.origin, size=self.size, root=self.root)


class _Links(msgspec.Struct, frozen=True, gc=False):
    incident: str | None = None


_NO_LINKS = _Links()


class _Row(msgspec.Struct, gc=False):
    """The part of a body that columns repeat."""

    seq: int
    id: str
    kind: str
    run: str | None = None
    t_occurred_us: int | None = None
    links: _Links = _NO_LINKS


_DECODER = msgspec.json.Decoder(_Row)


class _Bad(Exception):
    """Stops the scan: what is wrong, and with which row."""

    def __init__(self, reason: str, seq: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seq = seq


@dataclass(slots=True)
class _Scan:
    """What the rows add up to."""

    tree: TreeBuilder
    link: bytes
    roots: dict[int, bytes]
    """Root after so many rows, at the sizes that somebody wrote down."""
    tell: Callable[[int], None]
    """Takes how many rows were hashed."""


def verify_ledger(
    path: str | os.PathLike[str],
    *,
    head: TreeHead | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyResult:
    """Reads and hashes every event of the ledger again; `head` is a tree head kept outside it.

    `on_progress` is called now and then with the events hashed so far and how many the ledger says to hold.

    Raises:
        BadInput: There is no such file, it is not a ledger, or the head is of another ledger.
    """
    target = Path(path)
    if not os.path.isfile(target):
        raise BadInput(
            "no such ledger", where=str(target), next="name the file, or set LASTGOOD_LEDGER"
        )
    try:
        connection = open_read_only(target, is_for_one_thread=True)
    except LedgerCorrupt as error:
        return _failed(target, f"{error.what}: {error.found}", None)
    except LedgerPathError as error:
        raise BadInput(
            error.what,
            where=error.where,
            found=error.found,
            needs=error.needs,
            next=error.next,
            code=error.code,
        ) from error
    except LedgerError as error:
        return _unknown(str(error))
    try:
        return _verify(connection, target, head, on_progress)
    except LedgerCorrupt as error:
        return _failed(target, f"{error.what}: {error.found}", None)
    except UnicodeDecodeError as error:
        return _failed(target, f"the ledger file is damaged: {error}", None)
    except LedgerError as error:
        return _unknown(str(error))
    finally:
        connection.close()


def _verify(
    connection: apsw.Connection, path: Path, head: TreeHead | None, on_progress: OnProgress | None
) -> VerifyResult:
    with storage_errors(path):
        map_file(connection, path)
        connection.execute("BEGIN")  # one snapshot, while writers go on
    origin = _origin(connection, path)
    if head is not None and origin is not None and head.origin != origin:
        raise BadInput(
            "the tree head is of another ledger",
            where=str(path),
            found=head.origin,
            needs=origin,
            code=OTHER_LEDGER,
        )
    tree = TreeBuilder()
    heads: list[TreeHead] = []
    try:
        heads, wrong_head = _read_heads(connection, origin)
        scan = _Scan(tree, EMPTY_LINK, {}, _teller(connection, on_progress))
        sizes = {h.size for h in heads} | ({head.size} if head else set())
        _scan_rows(connection, path, scan, sizes)
        _compare_frontier(connection, path, scan)
        _compare_outside(scan, head)
        _compare_heads(scan, heads, wrong_head)
        _check_heads_are_there(scan, heads)
        _check_schema(connection, path)
        _check_indexes(connection, path)
    except _Bad as bad:
        return _failed(path, bad.reason, bad.seq, origin=origin, size=_count(connection), head=head)
    return VerifyResult(
        verdict=Verdict.OK,
        size=tree.size,
        root=tree.root(),
        origin=origin,
        head_count=len(heads) + (head is not None),
        reason=("the one event hashes" if tree.size == 1 else f"all {tree.size} events hash")
        + " to the recorded tree"
        + ("" if head is None else f", which contains the outside head of size {head.size}"),
    )


def _scan_rows(connection: apsw.Connection, path: Path, scan: _Scan, sizes: set[int]) -> None:
    """Hashes every row; stops at the first that does not fit. A page that cannot be read counts against its row."""
    if 0 in sizes:
        scan.roots[0] = scan.tree.root()
    # NOT INDEXED: the order and the bytes must come from the table itself, not from an index beside it.
    sql = "SELECT seq, id, kind, run, t_occurred_us, link, body, incident FROM event NOT INDEXED ORDER BY seq"
    stops = iter([*sorted(size for size in sizes if size), None])
    decode, link, at, stop = _DECODER.decode, scan.link, 0, next(stops)
    is_more = True
    try:
        with storage_errors(path):
            rows = connection.execute(sql)
            while is_more:
                leaves: list[bytes] = []
                for row in islice(rows, CHUNK_ROWS if stop is None else min(CHUNK_ROWS, stop - at)):
                    seq, name, kind, run, t_us, kept, body, incident = row
                    try:
                        leaf = sha256(b"\x00" + body).digest()
                        link = sha256(link + leaf).digest()
                        said = decode(body)
                    except (TypeError, msgspec.MsgspecError):
                        raise _first_bad(row, at, link) from None
                    if (
                        seq != at or link != kept or said.seq != seq or said.id != name or said.kind != kind
                        or said.run != run or said.t_occurred_us != t_us or said.links.incident != incident
                    ):  # fmt: skip
                        raise _first_bad(row, at, link)
                    at += 1
                    leaves.append(leaf)
                is_more = bool(leaves)
                scan.tree.extend(leaves)
                scan.tell(at)
                if at == stop:
                    scan.roots[at] = scan.tree.root()
                    stop = next(stops)
    except LedgerCorrupt as error:
        raise _Bad(f"row {at} cannot be read: {error.found}", at) from error
    except UnicodeDecodeError as error:
        raise _Bad(f"row {at} holds text that is none: {error.reason}", at) from error
    scan.link = link


def _teller(connection: apsw.Connection, on_progress: OnProgress | None) -> Callable[[int], None]:
    """Tells how far the scan is; how many rows there are is what the frontier says, which is not believed but shown."""
    if on_progress is None:
        return lambda _: None
    try:
        said = one(connection, "SELECT size FROM frontier")
    except (apsw.Error, UnicodeDecodeError):
        said = None
    count = said if isinstance(said, int) else 0
    return lambda at: on_progress(at, max(at, count))


def _first_bad(row: tuple[Any, ...], at: int, link: bytes) -> _Bad:
    """What is wrong with the row that came where row `at` belongs; `link` is the one that its bytes give."""
    seq, name, kind, run, t_us, kept, body, incident = row
    if seq != at:
        return _Bad(f"row {at} is missing: the next one there is {seq}", at)
    if not isinstance(body, bytes):
        return _Bad(f"row {at}: its body is not bytes", at)
    if link != kept:
        return _Bad(f"row {at}: its bytes do not hash to its link", at)
    try:
        said = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        return _Bad(f"row {at}: its body is not an event ({error})", at)
    told = (said.seq, said.id, said.kind, said.run, said.t_occurred_us, said.links.incident)
    assert told != (seq, name, kind, run, t_us, incident), (
        "only a row that does not fit is explained"
    )
    return _Bad(
        f"row {at}: its columns differ from its body, which says seq {said.seq}, id {said.id}", at
    )


def _compare_frontier(connection: apsw.Connection, path: Path, scan: _Scan) -> None:
    try:
        with storage_errors(path):
            rows = connection.execute("SELECT size, hashes, root, link FROM frontier").fetchall()
    except LedgerCorrupt as error:
        raise _Bad(f"the frontier cannot be read: {error.found}", None) from error
    if len(rows) != 1:
        raise _Bad(f"the frontier has {len(rows)} rows, needs one", None)
    size, hashes, root, link = rows[0]
    frontier = scan.tree.frontier()
    if isinstance(size, int) and size > frontier.size:
        raise _Bad(
            f"row {frontier.size} is missing: the frontier counts {size} rows, {frontier.size} are there",
            frontier.size,
        )
    if isinstance(size, int) and size < frontier.size and size >= 0:
        raise _Bad(f"row {size} was added past the frontier, which counts {size} rows", size)
    if (size, hashes, root, link) != (
        frontier.size,
        frontier.to_bytes(),
        frontier.root(),
        scan.link,
    ):
        raise _Bad(
            "the stored frontier is not that of the rows: it was altered, or every row was rewritten",
            None,
        )


def _compare_heads(scan: _Scan, heads: list[TreeHead], wrong_head: str | None) -> None:
    """Compares every stored head; rows are then already known to fit the frontier."""
    if wrong_head:
        raise _Bad(wrong_head, None)
    for stored in heads:
        if stored.size > scan.tree.size:
            raise _Bad(
                f"row {scan.tree.size} is missing: a stored tree head counts {stored.size} rows",
                scan.tree.size,
            )
        if scan.roots.get(stored.size) != stored.root:
            raise _Bad(
                f"the stored tree head of size {stored.size} is not the root of the first {stored.size} rows",
                None,
            )


def _check_heads_are_there(scan: _Scan, heads: list[TreeHead]) -> None:
    """A head is stored by the commit that fills each block of rows, so one counts at least all full blocks."""
    needed = scan.tree.size // HEAD_EVENT_COUNT * HEAD_EVENT_COUNT
    last = max((stored.size for stored in heads), default=0)
    if last < needed:
        raise _Bad(
            f"a stored tree head is missing: one must count {needed} rows or more, the last counts {last}",
            None,
        )


def _compare_outside(scan: _Scan, head: TreeHead | None) -> None:
    if head is None:
        return
    if head.size > scan.tree.size:
        raise _Bad(
            f"the tail was cut: the outside head counts {head.size} rows, {scan.tree.size} are there",
            scan.tree.size,
        )
    if scan.roots[head.size] != head.root:
        raise _Bad(
            f"history was rewritten: the first {head.size} rows are not those of the outside head, though they fit "
            "each other; only a copy can say which row differs first",
            None,
        )


def _check_schema(connection: apsw.Connection, path: Path) -> None:
    """Tables and indexes that were dropped, changed or added; a trigger could alter what is appended."""
    with storage_errors(path):
        problem = schema_problem(connection)
    if problem is not None:
        raise _Bad(f"the rows hold, but {problem}", None)


def _check_indexes(connection: apsw.Connection, path: Path) -> None:
    """Damage outside the rows: an index that hides or invents a row, a broken page."""
    with storage_errors(path):
        answer = one(connection, "PRAGMA integrity_check(1)")
    if answer != "ok":
        # A line of asterisks names the database; what is broken stands behind it.
        told = [line for line in str(answer).splitlines() if not line.startswith("***")]
        raise _Bad(f"the rows hold, but the file around them is damaged: {'; '.join(told)}", None)


def _read_heads(
    connection: apsw.Connection, origin: str | None
) -> tuple[list[TreeHead], str | None]:
    """The stored heads that can be read, and what is wrong with the first that cannot."""
    heads: list[TreeHead] = []
    wrong: str | None = None
    try:
        rows = connection.execute("SELECT size, root, note FROM tree_head ORDER BY size").fetchall()
    except (apsw.Error, UnicodeDecodeError) as error:
        return [], f"the stored tree heads cannot be read: {error}"
    for size, root, note in rows:
        try:
            head = parse_note(note)
        except (LastgoodError, AttributeError, TypeError):
            head = None
        if head is None or (head.size, head.root, head.origin) != (size, root, origin):
            wrong = wrong or f"the stored tree head of size {size} was altered"
        else:
            heads.append(head)
    return heads, wrong


def _origin(connection: apsw.Connection, path: Path) -> str | None:
    try:
        with storage_errors(path):
            row = connection.execute(
                "SELECT value FROM ledger_meta WHERE key = 'origin'"
            ).fetchone()
    except (LedgerCorrupt, UnicodeDecodeError):
        return None
    return row[0] if row and isinstance(row[0], str) else None


def _count(connection: apsw.Connection) -> int | None:
    try:
        return one(connection, "SELECT count(*) FROM event NOT INDEXED")
    except apsw.Error:
        return None


def _failed(
    path: Path,
    reason: str,
    seq: int | None,
    *,
    origin: str | None = None,
    size: int | None = None,
    head: TreeHead | None = None,
) -> VerifyResult:
    whole = (
        "a copy (bundle, backup)"
        if head is None
        else f"a copy that holds the outside head of size {head.size}"
    )
    return VerifyResult(
        verdict=Verdict.FAILED,
        size=size,
        root=None,
        origin=origin,
        reason=reason,
        first_bad_seq=seq,
        next=f"keep {path} as it is, set it aside and compare it with {whole}"
        + (
            ""
            if seq is None
            else f"; rows 0 to {seq - 1} still hold"
            if seq
            else "; no row before it holds"
        ),
    )


def _unknown(reason: str) -> VerifyResult:
    return VerifyResult(
        verdict=Verdict.UNKNOWN,
        size=None,
        root=None,
        origin=None,
        reason=reason,
        next="make the file readable to this user on a local disk, then verify again",
    )
