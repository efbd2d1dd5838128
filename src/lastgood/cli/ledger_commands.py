"""`lastgood verify` and `lastgood record`: check a ledger, and append one event to it.

`record` runs in prologs and health checks of every node, so it loads nothing that it does not need.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from lastgood.base.errors import EXIT_HELD, EXIT_NOT_HELD, EXIT_REFUSED, BadInput
from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.evidence.folder_words import refuse_folder
from lastgood.evidence.output_file import Output, check_output, write_output

if TYPE_CHECKING:
    from lastgood.ledger.signing_key import Verifier
    from lastgood.ledger.tree_head import TreeHead
    from lastgood.ledger.verify import VerifyResult

_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
REASON_CHARS_MAX = 8_192
"""A reason is a line for people. A longer one is cut, and the event says so: a record that is refused helps nobody."""


@click.command()
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option(
    "--head",
    "head_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A tree head kept outside the ledger (- reads it from stdin): only this finds a cut tail.",
)
@click.option(
    "--save-head",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the tree head to this file if the ledger holds; keep it on another machine.",
)
@click.option(
    "--sign-key",
    metavar="KEY",
    type=click.Path(path_type=Path),
    help="Sign the head that --save-head writes (make a key with: lastgood key new).",
)
@click.option(
    "--verifier",
    "verifier_texts",
    metavar="LINE|FILE",
    multiple=True,
    help="The head of --head must be signed by this key; may be given more than once, then by all.",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def verify(
    *,
    ledger: Path | None,
    head_file: Path | None,
    save_head: Path | None,
    sign_key: Path | None,
    verifier_texts: tuple[str, ...],
    is_json: bool,
) -> int:
    """Read and hash every event of a ledger again.

    LEDGER is a file; without it $LASTGOOD_LEDGER, else the ledger of this user on this machine. Exit 0: it
    holds. 1: it does not, and the first bad sequence number is printed; or the head is not signed as demanded.
    2: no such ledger. 3: could not tell.
    """
    from lastgood.cli.event_bar import event_bar
    from lastgood.ledger.place import default_ledger
    from lastgood.ledger.signing_key import read_key, read_verifier
    from lastgood.ledger.verify import verify_ledger

    _check_pairs(head_file, save_head, sign_key, verifier_texts)
    path = ledger or default_ledger()
    refuse_folder(path)
    if save_head is not None:
        check_output(save_head, Output.TREE_HEAD, inputs=[path, head_file, sign_key])
    head = _read_head(head_file)
    key = None if sign_key is None else read_key(sign_key)
    verifiers = [read_verifier(text) for text in verifier_texts]
    result = _not_vouched_for(head, verifiers)
    if result is None:
        with event_bar("hashing") as on_progress:
            result = verify_ledger(path, head=head, on_progress=on_progress)
    signed = _Signed(head, verifiers if result.ok else [])
    click.echo(
        _verify_json(path, result, signed) if is_json else _verify_text(path, result, signed)
    )
    if result.ok and save_head is not None and result.head is not None:
        _write_head(save_head, result.head if key is None else key.sign(result.head))
    return {"ok": EXIT_HELD, "failed": EXIT_NOT_HELD}.get(result.verdict, EXIT_REFUSED)


@click.command()
@click.argument("kind")
@click.option("--node", required=True, help="The host that it is about.")
@click.option(
    "--reason",
    required=True,
    help=f"What happened; names, home paths and tokens are masked, and {REASON_CHARS_MAX:,} characters kept.",
)
@click.option(
    "--class",
    "class_name",
    type=click.Choice([str(name) for name in FailureClass]),
    help="How the failure shows itself, if it is one.",
)
@click.option("--run", "run_id", help="The run that it belongs to, if any.")
@click.option(
    "--first-divergent-step",
    "divergent_step",
    type=click.IntRange(min=0),
    help="With --class sdc and --run: the first step whose result was wrong. From now on it and all later ones count as lost.",
)
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="The ledger; default as for verify."
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def record(
    *,
    kind: str,
    node: str,
    reason: str,
    class_name: str | None,
    run_id: str | None,
    divergent_step: int | None,
    ledger: Path | None,
    is_json: bool,
) -> int:
    """Append one event from a prolog, an epilog or a health check.

    KIND is an event kind of the taxonomy (planned.begin, annotation, ...), or any short word of yours, such
    as health-check: that is kept as a record of this name. Prints where the event lies and the tree head.
    """
    from lastgood.base.clock import SystemClock
    from lastgood.cli.recorded_run import check_run
    from lastgood.ledger.appendable import require_appendable
    from lastgood.ledger.event import new_event
    from lastgood.ledger.masking import load_masker
    from lastgood.ledger.place import check_place, default_ledger
    from lastgood.ledger.store import open_store

    _check_record(kind, node, reason)
    _check_verdict(class_name, run_id, divergent_step)
    is_known = kind in set(EventKind)
    refuse_folder(ledger or default_ledger())
    path = default_ledger() if ledger is None else check_place(ledger)
    clock = SystemClock()
    checked = require_appendable(path)
    note = None if run_id is None else check_run(path, run_id, divergent_step=divergent_step)
    with open_store(path, clock=clock) as store:  # first: a wrong path must not get a key beside it
        body = _reason(load_masker(path).text(reason)) | ({} if is_known else {"record": kind})
        event = new_event(
            kind if is_known else EventKind.RECORD,
            clock=clock,
            run=run_id,
            domain=[{"kind": "host", "id": node}],
            body=body,
            first_divergent_step=divergent_step,
            **({"class": class_name} if class_name else {}),
        )
        (stored,) = store.append([event])
        head = store.head()
    for line in filter(None, (checked, note)):
        click.echo(line, err=True)
    if is_json:
        told = {
            "seq": stored.seq,
            "id": stored.id,
            "ledger": str(path),
            "tree_head": head.to_note(),
        }
        click.echo(json.dumps(told | {"reason": body["reason"]}))
    else:
        click.echo(f"seq {stored.seq} of {path}\n{head.to_note()}", nl=False)
    return EXIT_HELD


def _reason(masked: str) -> dict[str, str | int]:
    """The reason as it is recorded; cut after masking, so that no half of a name is taken for none."""
    if len(masked) <= REASON_CHARS_MAX:
        return {"reason": masked}
    click.echo(
        f"--reason is cut to {REASON_CHARS_MAX:,} of {len(masked):,} characters; the event says so",
        err=True,
    )
    return {"reason": masked[:REASON_CHARS_MAX], "reason_cut_from_chars": len(masked)}


def _check_record(kind: str, node: str, reason: str) -> None:
    if not _KIND.fullmatch(kind):
        raise BadInput(
            "not a kind",
            where="KIND",
            found=repr(kind),
            needs="a short word of lower-case letters, digits, dots and dashes",
            next="write health-check",
        )
    for name, value in (("--node", node), ("--reason", reason)):
        if not value.strip():
            raise BadInput("nothing given", where=name, found=repr(value), needs="some text")


def _check_verdict(class_name: str | None, run_id: str | None, divergent_step: int | None) -> None:
    if divergent_step is not None and (class_name != FailureClass.SDC or run_id is None):
        raise BadInput(
            "a divergent step belongs to silent corruption of a run",
            where="--first-divergent-step",
            needs="--class sdc and --run NAME",
        )


class _Signed(NamedTuple):
    """An outside head, and the keys whose signatures on it were asked for and hold."""

    head: TreeHead | None
    verifiers: list[Verifier]


def _check_pairs(
    head: Path | None, save_head: Path | None, sign_key: Path | None, verifiers: tuple[str, ...]
) -> None:
    """Refuse an option whose partner is missing: silently checking nothing would pass for a check."""
    if sign_key is not None and save_head is None:
        raise BadInput("there is no head to sign", where="--sign-key", needs="--save-head FILE")
    if verifiers and head is None:
        raise BadInput(
            "there is no head whose signature to check", where="--verifier", needs="--head FILE"
        )


def _not_vouched_for(head: TreeHead | None, verifiers: list[Verifier]) -> VerifyResult | None:
    """Failed before the ledger is read: a head that nobody vouches for says nothing about it."""
    from lastgood.ledger.signing_key import signature_problem
    from lastgood.ledger.verify import Verdict, VerifyResult

    reason = None if head is None else signature_problem(head, verifiers)
    if head is None or reason is None:
        return None
    return VerifyResult(
        verdict=Verdict.FAILED,
        size=None,
        root=None,
        origin=head.origin,
        reason=reason,
        next="get head and verifier line again from whoever signs; the ledger was not read",
    )


def _read_head(file: Path | None) -> TreeHead | None:
    from lastgood.ledger.tree_head import parse_note

    if file is None:
        return None
    if str(file) == "-":
        return parse_note(sys.stdin.read(), where="stdin")
    try:
        return parse_note(file.read_text(encoding="utf-8"), where=str(file))
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "bytes that are no text"
        raise BadInput(
            "the tree head cannot be read",
            where=str(file),
            found=found,
            needs="the three lines that verify prints",
            next="write them with: lastgood verify LEDGER --save-head FILE",
        ) from error


def _write_head(file: Path, head: TreeHead) -> None:
    write_output(file, head.to_note().encode(), Output.TREE_HEAD)
    by = ", ".join(signature.name for signature in head.signatures)
    click.echo(f"tree head written to {file}" + (f", signed by {by}" if by else ""), err=True)


def _verify_json(path: Path, result: VerifyResult, signed: _Signed) -> str:
    head = result.head
    return json.dumps(
        {
            "ledger": str(path),
            "verdict": str(result.verdict),
            "size": result.size,
            "root": result.root.hex() if result.root else None,
            "origin": result.origin,
            "tree_head": head.to_note() if head else None,
            "heads_compared": result.head_count,
            "signed_by": [{"name": v.name, "id": v.id_hex} for v in signed.verifiers],
            "first_bad_seq": result.first_bad_seq,
            "reason": result.reason,
            "next": result.next,
        }
    )


def _verify_text(path: Path, result: VerifyResult, signed: _Signed) -> str:
    said = {"ok": "held", "failed": "DID NOT HOLD"}.get(result.verdict, "COULD NOT TELL")
    lines = [f"{said}: {result.reason}", f"ledger        {path}"]
    if result.size is not None:
        lines.append(f"events        {result.size}")
    if result.first_bad_seq is not None:
        lines.append(f"first bad seq {result.first_bad_seq}")
    if result.next:
        lines.append(f"next          {result.next}")
    lines += [f"signed by     {v.name} (key {v.id_hex})" for v in signed.verifiers]
    if result.ok and signed.head is not None and signed.head.signatures and not signed.verifiers:
        lines.append("signed by     not checked: name the key with --verifier")
    if result.head is not None:
        lines += [
            f"root          {result.head.root_hex}",
            "tree head (keep these three lines on another machine, later: verify --head FILE)",
            *result.head.to_note().splitlines(),
        ]
    return "\n".join(lines)
