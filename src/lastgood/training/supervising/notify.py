"""Tell the owner that the loop has stopped trying: a command with JSON on standard input, or an Alertmanager.

A notice that cannot be delivered is recorded and changes nothing else.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.contract.model import FailureContract
    from lastgood.recovery.messages import Escalate
    from lastgood.training.recorder import Recorder

NOTIFY_S_MAX = 10.0


def notify(
    contract: FailureContract | None, recorder: Recorder, escalation: Escalate, *, ledger: Path
) -> None:
    """Deliver an escalation as the contract says; without a `notify` there, only the ledger knows."""
    target = None if contract is None else contract.spec.recovery.notify_for(escalation.transition)
    if target is None:
        return
    notice = {
        "incident": escalation.incident,
        "reason": escalation.reason,
        "owner": escalation.owner,
        "culprits": list(escalation.culprits),
        "last_good_step": escalation.last_good_step,
        "next": f"lastgood report {ledger}",
    }
    try:
        if target.command is not None:
            done = subprocess.run(
                list(target.command),
                input=json.dumps(notice),
                text=True,
                timeout=NOTIFY_S_MAX,
                check=False,
                capture_output=True,
            )
            result = f"command exited with {done.returncode}"
        else:
            result = _post(f"{target.alertmanager}/api/v2/alerts", notice)
    except (
        OSError,
        subprocess.SubprocessError,
        http.client.HTTPException,
        ValueError,
    ) as error:
        result = f"not delivered: {type(error).__name__}: {error}"
    recorder.record(
        "annotation",
        links={"incident": escalation.incident},
        body={"text": "owner notified", "result": result},
    )


def _post(url: str, notice: dict[str, Any]) -> str:
    alert = {
        "labels": {
            "alertname": "LastgoodEscalation",
            "incident": notice["incident"],
            "owner": notice["owner"],
        },
        "annotations": {
            "summary": notice["reason"],
            "culprits": ", ".join(map(str, notice["culprits"])) or "nobody named",
            "last_good_step": str(notice["last_good_step"]),
            "next": notice["next"],
        },
    }
    request = urllib.request.Request(
        url,
        data=json.dumps([alert]).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=NOTIFY_S_MAX) as answer:
        return f"alertmanager answered {answer.status}"
