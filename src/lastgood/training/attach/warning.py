"""What a launcher does that breaks restarts, said before it happens."""

from __future__ import annotations

from collections.abc import Mapping

OPT_OUT = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def launcher_warnings(environ: Mapping[str, str], *, torch_version: str) -> list[str]:
    """Sentences for a person; empty when nothing is known to be wrong."""
    found = []
    shares_store = environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    may_restart = environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in {"", "0"}
    if shares_store and may_restart and environ.get(OPT_OUT) != "1":
        found.append(
            f"torchrun (torch {torch_version}) keeps one store over its restarts, so a restarted rank can read the address "
            f"of a dead one and hang; seen with torch 2.13. Start torchrun with {OPT_OUT}=1"
        )
    return found
