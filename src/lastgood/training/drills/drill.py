"""One drill as data: which faults, against which job, and what the records must show.

    Drill(
        name="kill-rank",
        title="a rank is killed",
        faults=(a_fault(FaultKind.SIGKILL, rank=2),),
        expect=Expectation(outcome=Outcome.RECOVERED, symptom="process_exit", ranks=(2,), lost_steps_max=0),
        owner="training",
    )

Drills that recover and ask for the same job are played one after another in one run, because the start of a job
costs more than a recovery. Whatever ends the job, or needs settings of its own, is played alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lastgood.faults.spec import Fault, FaultKind, Target, When

SETTLE_STEPS = 12
"""Steps before the first fault, between one recovery and the next fault, and behind the last."""


class Outcome(enum.StrEnum):
    """How a drill has to end."""

    RECOVERED = "recovered"
    """Every incident closed by an accepted verification, and the job went on."""
    ESCALATED = "escalated"
    """The job ended and called a person: exit code 93."""
    FINISHED = "finished"
    """No incident at all: the job went on as if nothing had happened."""
    REFUSED = "refused"
    """The job did not start, or ended with a refusal: exit code 3 unless another one is expected."""
    OBSERVED = "observed"
    """Detected and named, and nothing was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An event that must (or must never) be in the records of the drill."""

    kind: str
    body: tuple[tuple[str, Any], ...] = ()
    """Fields of its body with their values; text matches when it is contained, of a list one item has to match."""
    words: str = ""
    """How the line reads; made from kind and body when left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the records must show; whatever is None is not asked."""

    outcome: Outcome
    symptom: str | None = None
    class_: str | None = None
    ranks: tuple[int, ...] | None = None
    """Exactly the ranks that the incidents of the drill name."""
    incidents: int | None = None
    """How many; None = one at least for those outcomes that have any."""
    detected_within_us: int | None = None
    """From the injection to the detection."""
    lost_steps_max: int | None = None
    exit_code: int | None = None
    """Of the last start; None = what the outcome has (0, 93 or 3)."""
    is_bitwise_equal: bool | None = None
    """Final weights are those of an undisturbed twin in plain torch; None = asked where the job finished."""
    seen: tuple[Seen, ...] = ()
    never: tuple[Seen, ...] = ()
    says: str | None = None
    """Words that a person reads on standard error (jobs in a process of their own)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The job that a drill breaks: `lastgood run` of the shipped drill job, with these changes."""

    ranks: int = 4
    spares: int = 1
    hang_after_us: int = 1_000_000
    warmup_us: int = 60_000_000
    pace_ms: int = 40
    steps: int = 160
    """Length of a job in a process of its own; a job with several drills ends when they have settled."""
    contract: str | None = None
    """YAML of a contract that this drill needs; goes before the one that a person gives."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the job script."""
    options: tuple[str, ...] = ()
    """Further options of `lastgood run`: the job then runs in a process of its own."""
    env: tuple[tuple[str, str], ...] = ()
    """Further environment: the job then runs in a process of its own."""
    checkpoint_every_us: int | None = None
    """Durable checkpoints into the folder `checkpoints` of the job."""
    is_attached: bool = False
    """No `lastgood run`: the ranks of two hosts call `lastgood.attach()`, and their spools are imported afterwards."""
    is_own_process: bool = False
    """`lastgood run` as a child: for drills in which the supervisor itself dies or refuses."""
    starts: int = 1
    """How often the child is started: again under the same name each time that it ended other than well."""
    limit_us: int = 180_000_000
    """The job is killed when it takes longer; that is a line that did not hold."""
    prepare: Callable[[Path, int], None] | None = None
    """Called with the job's folder and the number of the start (0-based) before each start of a child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """Faults with their expectation and the one who answers for it."""

    name: str
    """Short and fixed, of lower-case letters, digits and dashes: `lastgood drill training --faults NAME`."""
    group: str
    """The module that it stands in: `hangs`, `deaths`, `storage`, `numerics`, `watched`."""
    title: str
    """What happens, in a few words."""
    faults: tuple[Fault, ...] = ()
    """The first one waits until the job runs and the drill before is over, unless its `when` names a phase or a
    time; the others follow their own `when`."""
    expect: Expectation
    run: JobSettings = field(default_factory=JobSettings)
    owner: str = "training"
    """Who answers when it does not hold; a contract that names an owner of failed evidence goes before."""
    is_alone: bool = False
    """Never shares a job with another drill."""

    @property
    def needs_process(self) -> bool:
        """The job runs in a process of its own."""
        run = self.run
        asks = run.is_own_process or run.options or run.env or run.prepare or run.starts > 1
        return bool(asks) or self.expect.outcome not in {Outcome.RECOVERED, Outcome.FINISHED}

    @property
    def expected_in_words(self) -> str:
        """One line for a list: how it ends, and what must be named."""
        expect = self.expect
        named = "" if expect.symptom is None else f", {expect.symptom.replace('_', ' ')}"
        if expect.ranks:
            named += f" of rank{'s' if len(expect.ranks) > 1 else ''} " + ", ".join(
                map(str, expect.ranks)
            )
        lost = "" if expect.lost_steps_max is None else f", at most {expect.lost_steps_max} lost"
        return f"{expect.outcome}{named}{lost}"

    @property
    def about_s(self) -> int:
        """About how many seconds it takes on a quiet machine, its share of the job's start not counted."""
        if not self.needs_process:
            return 8
        # Every start but the first has to bring up torch again.
        return 6 * (self.run.starts - 1) + self.run.steps * self.run.pace_ms // 1000 + 2


def a_fault(kind: FaultKind, rank: int, *, name: str = "fault", **options: Any) -> Fault:
    """A fault at the moment that its drill begins, or where `when` says."""
    when = options.pop("when", When(step=SETTLE_STEPS))
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=when, **options)
