"""What a person sees when a command ends early, and with which exit code.

A mistake of the person, or a refusal, is one message on stderr. Only a defect of lastgood itself is
called internal (70), and even then the traceback comes only with `--debug` or LASTGOOD_DEBUG.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

import click

from lastgood.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    LastgoodError,
    MissingExtra,
    pip_command,
)
from lastgood.base.utf8_text import utf8_text

EXIT_BROKEN_PIPE = 141

_EXTRA_OF_MODULE = {
    "torch": "torch",
    "xxhash": "torch",
    "pyarrow": "analysis",
    "duckdb": "analysis",
    "polars": "analysis",
}


def exit_code_of(error: BaseException) -> int:
    """Say on stderr what went wrong, as far as anything did, and return the exit code."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            return _code_of_system_exit(error)
        case click.Abort() | KeyboardInterrupt():
            click.echo("lastgood: interrupted", err=True)
            return EXIT_INTERRUPTED
        case click.ClickException():
            error.show()
            return EXIT_BAD_INPUT
        case BrokenPipeError():
            return _after_broken_pipe()
        case LastgoodError():
            return _tell(error)
        case ModuleNotFoundError() if not _is_ours(error):
            return _tell_missing_module(error)
    return _tell_internal(error)


def is_debug() -> bool:
    """Say whether a person asked for tracebacks."""
    return os.environ.get("LASTGOOD_DEBUG", "") not in {"", "0"}


def _code_of_system_exit(error: SystemExit) -> int:
    # click turns a broken pipe into exit(1), which would read "did not hold"; this wrapper is its only trace.
    if type(sys.stdout).__name__ == "_PacifyFlushWrapper":
        return EXIT_BROKEN_PIPE
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    click.echo(str(error.code), err=True)
    return EXIT_BAD_INPUT


def _tell(error: LastgoodError) -> int:
    if error.next is None and isinstance(error.__cause__, OSError):
        error.next = _after_os_error(error.__cause__, is_written="writ" in error.what)
    if is_debug():
        traceback.print_exception(error, file=sys.stderr)
    else:
        click.echo(utf8_text(f"lastgood: {error.code}: {error}"), err=True)
    return error.exit_code


def _after_os_error(error: OSError, *, is_written: bool) -> str | None:
    """What to do about an answer of the kernel that nobody knew a better step for."""
    if not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    match error.errno:
        case errno.ENOENT if is_written:
            return f"run: mkdir -p {path.parent}"
        case errno.ENOENT:
            return f"check the name: ls {path.parent}"
        case errno.EISDIR:
            return f"name a file in it, such as {path / 'NAME'}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"run: ls -ld {path} {path.parent}"
        case errno.EEXIST | errno.ENOTDIR:
            return "name another path"
        case errno.ENOSPC:
            return f"run: df -h {path.parent}"
    return None


def _is_ours(error: ModuleNotFoundError) -> bool:
    return (error.name or "").split(".")[0] in {"", "lastgood"}


def _tell_missing_module(error: ModuleNotFoundError) -> int:
    module = (error.name or "").split(".")[0]
    extra = _EXTRA_OF_MODULE.get(module)
    if extra is not None:
        return _tell(MissingExtra(module=module, extra=extra))
    click.echo(
        f"lastgood: LG-X04: a needed package is not installed: found no module named {module}; "
        f"run: {pip_command(None)}",
        err=True,
    )
    return EXIT_REFUSED


def _after_broken_pipe() -> int:
    # The reader (head, less) went away; keep the interpreter from complaining when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE


def _tell_internal(error: BaseException) -> int:
    if is_debug():
        traceback.print_exception(error, file=sys.stderr)
    else:
        click.echo(
            f"lastgood: internal error: {type(error).__name__}: {error}\n"
            "lastgood: this is a defect of lastgood; run again with --debug for the traceback",
            err=True,
        )
    return EXIT_INTERNAL
