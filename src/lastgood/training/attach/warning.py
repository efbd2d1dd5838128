"""What a launcher does that breaks restarts, said before it happens."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.training.attach.place import NamedBy, Place, has_agent_store

OPT_OUT = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def launcher_warnings(environ: Mapping[str, str], *, torch_version: str) -> list[str]:
    """Sentences for a person; empty when nothing is known to be wrong."""
    found = []
    may_restart = environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in {"", "0"}
    if has_agent_store(environ) and may_restart and environ.get(OPT_OUT) != "1":
        found.append(
            f"torchrun (torch {torch_version}) keeps one store over its restarts, so a restarted rank can read the address "
            f"of a dead one and hang; seen with torch 2.13. Start torchrun with {OPT_OUT}=1"
        )
    return found


_NAME_IT = {
    "torchrun": "give torchrun --rdzv-id, anew for each job, or set LASTGOOD_RUN, alike on all hosts",
    "kubernetes": "set LASTGOOD_RUN, or JOB_NAME, to the job's name in its pods",
}


def name_warning(place: Place) -> str | None:
    """What becomes of a run whose launcher gave it no name, and what to set; None when nothing can be mixed up."""
    if place.named_by is NamedBy.ROUND:
        what = f"this start is recorded as run {place.run}, and a restart of it will be another run"
    elif place.named_by is NamedBy.NOTHING:
        what = f"it is recorded as the next attempt of run {place.run}, and so is any other job that has no name"
    else:
        return None
    usual = "set LASTGOOD_RUN, anew for each job and alike in all its processes"
    return f"nothing names this job: {what}; {_NAME_IT.get(place.launcher, usual)}"
