"""Every error that lastgood raises on purpose, in one tree.

    LastgoodError                 LG-X     exit 70   something that we named went wrong
    ├── BadInput                  LG-I01   exit 2    a person's input cannot be used as it is
    │   ├── CanonicalError        LG-I02             a value has no canonical bytes
    │   └── ContractError         LG-C01             a contract says something impossible
    ├── Problems                  LG-I03   exit 2    all the problems of one input, reported together
    ├── Refused                   LG-X03   exit 3    could not tell, or will not do it
    │   ├── MissingExtra          LG-X04             a part needs a package that is not installed
    │   └── EvidenceError         LG-E01             a claim without what it rests on
    ├── LedgerError               LG-L01   exit 3    the ledger cannot be used
    │   ├── LedgerPathError       LG-L11   exit 2    the path named is no ledger, or none can lie there
    │   └── LedgerCorrupt         LG-L02   exit 1    the ledger does not verify
    └── RecoveryError             LG-R01   exit 70   the recovery loop cannot go on

A message has up to four parts, in this order: what is wrong and where, what was found, what is needed,
and the next thing to type. A part that is not known is left out, never invented.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXIT_HELD = 0
EXIT_NOT_HELD = 1
EXIT_BAD_INPUT = 2
EXIT_REFUSED = 3
EXIT_INTERNAL = 70
EXIT_REQUEUE = 75
EXIT_DO_NOT_REQUEUE = 93
EXIT_INTERRUPTED = 130


def _compose(
    what: str, *, where: str | None, found: str | None, needs: str | None, next_: str | None
) -> str:
    head = f"{where}: {what}" if where else what
    facts = ", ".join(
        part
        for part in (
            f"found {found}" if found is not None else "",
            f"needs {needs}" if needs is not None else "",
        )
        if part
    )
    body = f"{head}: {facts}" if facts else head
    return f"{body}; {next_}" if next_ else body


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input, with the place a person has to look at."""

    what: str
    where: str | None = None
    """Such as `contract.yaml:12: spec.objectives.ettr`."""
    found: str | None = None
    needs: str | None = None
    next: str | None = None
    """What to write or to type, such as `write 0.97`."""

    def __str__(self) -> str:
        """Return the problem as one line."""
        return _compose(
            self.what, where=self.where, found=self.found, needs=self.needs, next_=self.next
        )


class LastgoodError(Exception):
    """The root: catch this to catch everything that lastgood raises on purpose."""

    code: str = "LG-X"
    exit_code: int = EXIT_INTERNAL

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        needs: str | None = None,
        next: str | None = None,
        code: str | None = None,
    ) -> None:
        """Keep the parts as attributes; `str(error)` puts them into one sentence."""
        super().__init__(what)
        self.what = what
        self.where = where
        self.found = found
        self.needs = needs
        self.next = next
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """Return `where: what: found X, needs Y; next`, without the parts that are not known."""
        return _compose(
            self.what, where=self.where, found=self.found, needs=self.needs, next_=self.next
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, which would otherwise lose the keyword arguments (process pools pickle)."""
        return (_rebuild, (type(self), dict(self.__dict__), self.args))


def _rebuild(
    kind: type[LastgoodError], attributes: dict[str, object], args: tuple[object, ...]
) -> LastgoodError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class BadInput(LastgoodError):
    """A person's input cannot be used as it is; the message says what to write instead."""

    code = "LG-I01"
    exit_code = EXIT_BAD_INPUT


class CanonicalError(BadInput):
    """A value has no canonical bytes (a float, a key that is not text, a number too large)."""

    code = "LG-I02"


class ContractError(BadInput):
    """A failure contract says something that cannot be meant."""

    code = "LG-C01"


class Problems(LastgoodError):
    """All the problems of one input, so that a person mends them in one round."""

    code = "LG-I03"
    exit_code = EXIT_BAD_INPUT

    def __init__(
        self, problems: Iterable[Problem], *, what: str | None = None, code: str | None = None
    ) -> None:
        """Keep the problems in the order in which they were found; there must be at least one."""
        self.problems: tuple[Problem, ...] = tuple(problems)
        assert self.problems, "Problems needs at least one problem"
        count = len(self.problems)
        super().__init__(what or f"{count} problem{'s' if count > 1 else ''}", code=code)

    def __str__(self) -> str:
        """Return one line per problem."""
        return "\n".join(str(problem) for problem in self.problems)


class Refused(LastgoodError):
    """Lastgood could not tell, or will not do what was asked; the message gives the reason."""

    code = "LG-X03"
    exit_code = EXIT_REFUSED


class MissingExtra(Refused):
    """A part of lastgood needs a package that is not installed."""

    code = "LG-X04"

    def __init__(self, *, module: str, extra: str, where: str | None = None) -> None:
        """Name the missing module and the exact command that installs what it belongs to."""
        self.module = module
        self.extra = extra
        super().__init__(
            "a needed package is not installed",
            where=where,
            found=f"no module named {module}",
            needs=f'the extra "{extra}"',
            next=f"run: {pip_command(extra)}",
        )


def pip_command(extra: str | None) -> str:
    """Return the command that installs an extra (or the plain package) into this environment."""
    return f'pip install "lastgood[{extra}]"' if extra else "pip install lastgood"


class EvidenceError(Refused):
    """A claim was about to be made without what it rests on."""

    code = "LG-E01"


class LedgerError(LastgoodError):
    """The ledger cannot be opened, read or written."""

    code = "LG-L01"
    exit_code = EXIT_REFUSED


class LedgerPathError(LedgerError):
    """A person named a path that is no ledger, or where none can be opened or made: bad input, like any other."""

    code = "LG-L11"
    exit_code = EXIT_BAD_INPUT


class LedgerCorrupt(LedgerError):
    """The ledger does not verify. It is never repaired silently."""

    code = "LG-L02"
    exit_code = EXIT_NOT_HELD


class RecoveryError(LastgoodError):
    """The recovery loop cannot go on: a broken promise of its surroundings, not of a rank."""

    code = "LG-R01"
