"""A process that forks writers which are there to be killed.

Imports once and forks per round, so that a thousand rounds do not cost a thousand interpreter starts. Reads one
JSON order per line from stdin, answers `PID` when the writer runs and, after the kill, `gone STATUS`.

A writer acknowledges an event by appending its id to a file, with one system call, after `append` returned: what
stands there was promised to somebody.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import apsw

from lastgood.ledger.event import Event
from lastgood.ledger.store import open_store
from lastgood.ledger.writer import LedgerWriter


def event(number: int) -> Event:
    """The same number is the same event in every process that sends it."""
    body = {"number": number, "text": "x" * (number % 700)}
    return Event(kind="annotation", id=f"n-{number:07}", t_occurred_us=1, body=body)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                write(order)
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print("gone", status, flush=True)


def write(order: dict) -> None:
    acknowledged = os.open(order["acknowledged"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def acknowledge(numbers: list[int]) -> None:
        os.write(acknowledged, "".join(f"{number}\n" for number in numbers).encode())

    if order.get("die_at") is not None:
        install_deadly_vfs(order["die_at"], is_torn=order["is_torn"])
    modes = {"single": single, "batch": batch, "writer": threaded}
    modes[order["mode"]](order["path"], order["first"], order["count"], acknowledge)


def single(path: str, first: int, count: int, acknowledge) -> None:
    with open_store(path) as store:
        for number in range(first, first + count):
            store.append([event(number)])
            acknowledge([number])


def batch(path: str, first: int, count: int, acknowledge) -> None:
    with open_store(path) as store:
        for number in range(first, first + count, 20):
            numbers = list(range(number, min(number + 20, first + count)))
            store.append_groups([[event(n)] for n in numbers])
            acknowledge(numbers)


def threaded(path: str, first: int, count: int, acknowledge) -> None:
    with LedgerWriter(path) as writer:
        for number in range(first, first + count):
            future = writer.submit(event(number))
            future.add_done_callback(
                lambda f, n=number: acknowledge([n]) if not f.exception() else None
            )


def install_deadly_vfs(die_at: int, *, is_torn: bool) -> None:
    """Makes this process kill itself at its n-th write, sync or truncation of any ledger file."""
    left = [die_at]

    def step(partial=None) -> None:
        left[0] -= 1
        if left[0] == 0:
            if partial is not None and is_torn:
                partial()
            os.kill(os.getpid(), signal.SIGKILL)

    class File(apsw.VFSFile):
        def __init__(self, name, flags) -> None:
            super().__init__("unix", name, flags)

        def xWrite(self, data, offset) -> None:
            step(lambda: super(File, self).xWrite(bytes(data)[: len(data) // 2], offset))
            super().xWrite(data, offset)

        def xSync(self, flags) -> None:
            step()
            super().xSync(flags)

        def xTruncate(self, size) -> None:
            step()
            super().xTruncate(size)

    class Deadly(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("deadly", "unix", makedefault=True)

        def xOpen(self, name, flags):
            return File(name, flags)

        def xDelete(self, name, sync_dir) -> None:
            step()
            super().xDelete(name, sync_dir)

    globals()["_KEPT"] = Deadly()


if __name__ == "__main__":
    main()
