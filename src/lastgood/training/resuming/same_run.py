"""What makes two starts one run, and what is said when somebody takes a name that is another run's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import boot_id
from lastgood.base.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lastgood.training.options import RunOptions
    from lastgood.training.resuming.interrupted import History

SAME = {
    "script": "the same script",
    "world": "as many ranks",
    "contract_digest": "the same contract",
}
"""By the name under which it is kept: what has to be the same."""


def identity_of(options: RunOptions, *, contract_digest: str) -> dict[str, Any]:
    """Return what makes two starts one run."""
    return {
        "run": options.run_id,
        "script": str(options.script.resolve()),
        "arguments": list(options.arguments),
        "world": options.ranks,
        "contract_digest": contract_digest,
        "boot_id": boot_id(),
        "ledger": str(options.ledger),
    }


def refuse_other_run(history: History, identity: Mapping[str, Any]) -> None:
    """Refuse to go on under the name of a run that has finished, or that trained something else.

    Two jobs under one name would be one run to every report: the steps of the first would count as lost.
    """
    if history.last_step is None:
        return
    where = f"--run-id {identity['run']}"
    if history.has_finished:
        raise Refused(
            "the run with this id has finished",
            where=where,
            found=f"exit code 0 after step {history.last_step} in {identity['ledger']}",
            needs="a name of its own for another run",
            next="choose another --run-id, or leave it out",
        )
    command = history.started.get("command") or [identity["script"]]
    there = {
        "script": Path(str(command[0])).name,
        "world": history.started.get("world"),
        "contract_digest": history.started.get("contract_digest"),
    }
    here = {**identity, "script": Path(identity["script"]).name}
    for key, needs in SAME.items():
        if there[key] not in (None, here[key]):
            raise Refused(
                "the run with this id is another one",
                where=where,
                found=f"{key} {short(there[key])} in {identity['ledger']}, {short(here[key])} here",
                needs=needs,
                next="choose another --run-id",
            )


def short(value: object) -> str:
    """A value for an error: a digest or a path in full length helps nobody."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:12]}..."
