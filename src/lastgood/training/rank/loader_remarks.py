"""What a loader does that a recovery cannot repeat, told once at the start: later it costs a recovery its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.training import control

if TYPE_CHECKING:
    from lastgood.training.rank.feed import Feed
    from lastgood.training.rank.generation import Generation

_DRAWS = (
    "the loader keeps its processes from epoch to epoch (persistent_workers) and has no state_dict: "
    "if its dataset draws random numbers, a replay behind the first epoch may differ"
)
_DRAWS_NEXT = (
    "seed them by epoch and item, take a loader with state_dict, or leave persistent_workers out"
)
_MEETS = (
    "the loader function called a collective: in a recovery the spare alone calls it, "
    "and waits for the other ranks until the time limit of the verification"
)
_MEETS_NEXT = "let each rank find out by itself what it needs, or read it from a file"


def tell_loader_remarks(generation: Generation) -> None:
    """Tell the supervisor, which says each of them once however many ranks tell it."""
    for text, advice in loader_remarks(generation.feed, world=generation.world):
        generation.link.channel.send(control.Remark(rank=generation.rank, text=text, next=advice))


def loader_remarks(feed: Feed, *, world: int) -> list[tuple[str, str]]:
    """Return each remark with what to do about it."""
    found = []
    if feed.may_draw_anew:
        found.append((_DRAWS, _DRAWS_NEXT))
    if feed.has_met_peers and world > 1:
        found.append((_MEETS, _MEETS_NEXT))
    return found
