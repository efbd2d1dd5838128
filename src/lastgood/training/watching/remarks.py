"""What ranks remark about their script at the start: recorded once, however many ranks and attempts say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.training.control import Remark
    from lastgood.training.supervising.supervisor import Supervisor


class Remarks:
    """The remarks of a run."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Nothing was said yet."""
        self._supervisor = supervisor
        self._said: set[str] = set()

    def hear(self, message: Remark) -> None:
        """A rank remarks something."""
        if message.text in self._said:
            return
        self._said.add(message.text)
        self._supervisor.recorder.record(
            "annotation",
            ranks=(message.rank,),
            body={"text": message.text, "next": message.next},
        )
