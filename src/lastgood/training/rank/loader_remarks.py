"""What a loader does that a recovery cannot repeat, told once at the start: later it costs a recovery its time."""

from __future__ import annotations

from functools import partial
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
_MEETS_OFTEN = (
    "the loader called a collective while it gave a batch: in a recovery a survivor gives a batch that it kept, "
    "the spare alone calls it, against another collective of the survivors, and the recovery fails"
)
_MEETS_OFTEN_NEXT = (
    "let each rank find out by itself what it needs: a generator that has the same seed on every rank, "
    "or a sampler with set_epoch"
)


def tell_loader_remarks(generation: Generation) -> None:
    """Tell the supervisor, which says each of them once however many ranks tell it.

    What a batch needs is known only once one was given: that is told behind the first batch that met peers.
    """

    def tell(text: str, advice: str) -> None:
        generation.link.channel.send(control.Remark(rank=generation.rank, text=text, next=advice))

    for text, advice in loader_remarks(generation.feed, world=generation.world):
        tell(text, advice)
    if generation.world > 1:
        generation.feed.on_meeting = partial(tell, _MEETS_OFTEN, _MEETS_OFTEN_NEXT)


def loader_remarks(feed: Feed, *, world: int) -> list[tuple[str, str]]:
    """Return each remark with what to do about it."""
    found = []
    if feed.may_draw_anew:
        found.append((_DRAWS, _DRAWS_NEXT))
    if feed.has_met_peers and world > 1:
        found.append((_MEETS, _MEETS_NEXT))
    return found
