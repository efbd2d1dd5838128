"""`lastgood run`: a training script under supervision, with torchrun's flag names."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from lastgood.base.errors import BadInput, Refused
from lastgood.base.utf8_text import utf8_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lastgood.cli.live import LineView
    from lastgood.cli.run_mode import Way
    from lastgood.signals.limits import Limits
    from lastgood.training.metrics.page import RunMetrics
    from lastgood.training.options import RunOptions
    from lastgood.training.supervising.session import RunResult

_OTHER_HOSTS = {
    "nnodes": "one host for now",
    "node_rank": "one host for now",
    "rdzv_backend": "no rendezvous: the ranks meet through a file of the run",
    "rdzv_endpoint": "no rendezvous: the ranks meet through a file of the run",
    "master_addr": "no master: the store is never inside rank 0",
    "master_port": "no master: the store is never inside rank 0",
}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--nproc-per-node",
    "--nproc_per_node",
    "ranks",
    default="1",
    show_default=True,
    metavar="N",
    help="Ranks to run on this host.",
)
@click.option(
    "--mode",
    type=click.Choice(["observe", "act"]),
    help="observe: watch, record and name the culprit, end nothing. act: recover. "
    "[default: act for a script that calls lastgood.start, else observe]",
)
@click.option(
    "--spares",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Warm processes parked beside them.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="Ledger file [default: $LASTGOOD_LEDGER or a local state folder].",
)
@click.option(
    "--contract",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Failure contract; without one the defaults apply.",
)
@click.option(
    "--checkpoint-dir",
    type=click.Path(path_type=Path),
    help="Folder of durable checkpoints; a run resumes from the newest that holds.",
)
@click.option(
    "--checkpoint-every",
    default="5min",
    show_default=True,
    metavar="TIME",
    help="Time between durable checkpoints.",
)
@click.option(
    "--snapshots",
    type=click.Choice(["auto", "whole", "striped"]),
    default="auto",
    show_default=True,
    help="Each rank keeps a whole copy of the state, or its stripe of what all ranks share.",
)
@click.option(
    "--hang-after",
    metavar="TIME",
    help="Floor of the limit after which a silent rank counts as hung "
    "[default: 30s; 10min where all ranks of an unchanged script would be restarted].",
)
@click.option(
    "--launch-limit",
    default="5min",
    show_default=True,
    metavar="TIME",
    help="Longest wait for the workers to reach lastgood.start.",
)
@click.option(
    "--log-dir",
    "--log_dir",
    type=click.Path(path_type=Path),
    help="Write each worker's output to a file there.",
)
@click.option(
    "--metrics",
    metavar="ADDR",
    help="Serve Prometheus metrics at HOST:PORT or :PORT [default: off].",
)
@click.option(
    "--run-id",
    "--rdzv-id",
    "--rdzv_id",
    "run_id",
    help="Name of the run in the ledger [default: made up].",
)
@click.option(
    "--fault-tape", type=click.Path(path_type=Path, exists=True, dir_okay=False), hidden=True
)
@click.option("--drill", is_flag=True, hidden=True)
@click.option("--standalone", is_flag=True, hidden=True)
@click.option("--quiet", is_flag=True, help="Say nothing while it runs; the ledger knows.")
@click.option("--nnodes", "nnodes", hidden=True)
@click.option("--node-rank", "--node_rank", "node_rank", hidden=True)
@click.option("--rdzv-backend", "--rdzv_backend", "rdzv_backend", hidden=True)
@click.option("--rdzv-endpoint", "--rdzv_endpoint", "rdzv_endpoint", hidden=True)
@click.option("--master-addr", "--master_addr", "master_addr", hidden=True)
@click.option("--master-port", "--master_port", "master_port", hidden=True)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, **given: object) -> int:
    """Run SCRIPT on N ranks of this host and keep it going while parts of it fail.

    A script that calls lastgood.start and trains in `with run.step()` blocks recovers from its snapshots
    (docs/quickstart.md). Any other script is observed, or with --mode act restarted as a whole (docs/observe.md).
    Exit code: the script's own; 75 = preempted, requeue; 93 = a person is needed, do not requeue.
    """
    from lastgood.cli.live import LineView
    from lastgood.cli.run_mode import Way, choose_way, hang_after
    from lastgood.ledger.appendable import begin_check
    from lastgood.ledger.place import check_place, default_ledger
    from lastgood.training.options import RunOptions
    from lastgood.training.states.striping import SnapshotForm

    _refuse_other_hosts(given)
    script = _script(str(given["script"]))
    way = choose_way(script, given["mode"])  # type: ignore[arg-type]
    given["hang_after"] = hang_after(given["hang_after"], way)  # type: ignore[arg-type]
    _refuse_lonely_interval(context, given)
    ledger = check_place(Path(str(given["ledger"]))) if given["ledger"] else default_ledger()
    check = begin_check(ledger)
    options = RunOptions(
        script=script,
        arguments=tuple(given["arguments"]),  # type: ignore[arg-type]
        ranks=_rank_count(str(given["ranks"])),
        spares=int(given["spares"]) if way is Way.LOOP else 0,  # type: ignore[call-overload]
        run_id=_run_id(_made_up_id() if given["run_id"] is None else str(given["run_id"])),
        ledger=ledger,
        contract=given["contract"],  # type: ignore[arg-type]
        checkpoint_dir=_folder("--checkpoint-dir", given["checkpoint_dir"]),
        checkpoint_every_us=_duration_us("--checkpoint-every", given),
        launch_limit_us=_duration_us("--launch-limit", given),
        log_dir=_folder("--log-dir", given["log_dir"]),
        limits=_limits(_duration_us("--hang-after", given)),
        snapshots=SnapshotForm(str(given["snapshots"])),
        tape=given["fault_tape"],  # type: ignore[arg-type]
        mode="drill" if given["drill"] else "run",
    )
    view = LineView(ledger, is_quiet=bool(given["quiet"]))
    for line in _way_lines(context, way, script):
        view.open_with(line)
    with _metrics(given["metrics"], view) as metrics:
        result = _run(options, way, view, metrics, check)
    view.end(options, result)
    return result.exit_code


def _way_lines(context: click.Context, way: Way, script: Path) -> list[str]:
    from click.core import ParameterSource

    from lastgood.cli.run_mode import describe_way, unused_options

    typed = {
        name: context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name in context.params
    }
    return describe_way(way, script, unused=unused_options(way, typed))


def _run(
    options: RunOptions,
    way: Way,
    view: LineView,
    metrics: RunMetrics | None,
    check: Callable[[], str | None],
) -> RunResult:
    """Import what supervises, then ask whether the ledger may be appended to: that was checked meanwhile."""
    from lastgood.cli.run_mode import Way

    if way is Way.LOOP:
        from lastgood.training.supervising.session import run_training

        _require_held(check, view)
        return run_training(options, listener=view.show, metrics=metrics)
    from lastgood.training.observe.session import run_observed

    _require_held(check, view)
    return run_observed(options, is_acting=way is Way.HARD, listener=view.show, metrics=metrics)


def _require_held(check: Callable[[], str | None], view: LineView) -> None:
    note = check()
    if note is not None:
        view.open_with(note)


@contextmanager
def _metrics(address: object, view: LineView) -> Generator[RunMetrics | None]:
    """Serve metrics for the time of the run, when an address is given."""
    if address is None:
        yield None
        return
    from lastgood.training.metrics.page import RunMetrics
    from lastgood.training.metrics.server import parse_address

    metrics = RunMetrics(parse_address(str(address)))
    view.open_with(f"metrics at {metrics.url}")  # with port 0 nobody else knows
    try:
        yield metrics
    finally:
        metrics.close()


def _refuse_lonely_interval(context: click.Context, given: dict[str, object]) -> None:
    """A time between checkpoints without a place for them would be taken for protection that is not there."""
    is_typed = context.get_parameter_source("checkpoint_every") is ParameterSource.COMMANDLINE
    if is_typed and given["checkpoint_dir"] is None:
        raise BadInput(
            "no checkpoint would be written",
            where="--checkpoint-every",
            found=f"{given['checkpoint_every']} without --checkpoint-dir",
            needs="a folder to write them to",
            next="write: --checkpoint-dir checkpoints",
        )


def _script(text: str) -> Path:
    script = Path(text)
    if not script.is_file():
        found = "a folder" if script.is_dir() else "nothing"
        raise BadInput("no such script", where=text, found=found, needs="a Python file")
    _refuse_carried_bytes("SCRIPT", script)
    _refuse_unparsable(script)
    return script


def _refuse_carried_bytes(where: str, path: Path) -> None:
    """Refuse a name that is no text to Python: the ranks tell of it in traces and messages, which are UTF-8."""
    name = str(path.absolute())
    readable = utf8_text(name)
    if readable == name:
        return
    is_utf8 = os.fsencode(name) == readable.encode()
    raise BadInput(
        "a run cannot use this name", where=where, found=readable,
        needs=f"a name that the encoding of this locale ({sys.getfilesystemencoding()}) can read",
        next="type the same with PYTHONUTF8=1 before it" if is_utf8 else "rename it, or what it lies in",
    )  # fmt: skip


def _refuse_unparsable(script: Path) -> None:
    """Say a syntax error once, before every rank has imported torch to say it too."""
    try:
        compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        shown = (getattr(error, "text", None) or "").strip()
        raise BadInput(
            "the script is no Python that can be run",
            where=f"{script}:{line}" if line else str(script),
            found=f"{getattr(error, 'msg', error)}" + (f" in {shown[:80]!r}" if shown else ""),
            needs=f"a file that this Python ({sys.version_info[0]}.{sys.version_info[1]}) can parse",
            next=f"type: python -m py_compile {script}",
        ) from error
    except OSError as error:
        raise BadInput(
            "the script cannot be read", where=str(script), found=error.strerror or str(error)
        ) from error


def _run_id(text: str) -> str:
    """A name that is safe in a path, in a shell and in a report."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise BadInput(
            "a run needs a plain name", where="--run-id", found=repr(text)[:80],
            needs="up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit",
            next=None if text else "set the variable that was meant, or leave --run-id out to have a name made up",
        )  # fmt: skip
    return text


def _folder(option: str, given: object) -> Path | None:
    """A folder that can be written, made when it is not there."""
    if given is None:
        return None
    folder = Path(str(given))
    _refuse_carried_bytes(option, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "the folder cannot be used", where=f"{option} {folder}", found=error.strerror or str(error),
            needs="a folder that exists or can be made",
        ) from error  # fmt: skip
    if not os.access(folder, os.W_OK):
        raise BadInput(
            "the folder cannot be written", where=f"{option} {folder}", needs="write permission"
        )
    return folder


def _duration_us(option: str, given: dict[str, object]) -> int:
    from lastgood.base.units import parse_duration_us

    text = str(given[option.removeprefix("--").replace("-", "_")])
    duration_us = parse_duration_us(text)
    if duration_us <= 0:
        raise BadInput(
            "a time that never passes",
            where=option,
            found=text,
            needs="more than 0",
            next="write 30s",
        )
    return duration_us


def _refuse_other_hosts(given: dict[str, object]) -> None:
    for name, instead in _OTHER_HOSTS.items():
        value = given.pop(name)
        if value is None or (name == "nnodes" and value in {"1", "1:1"}):
            continue
        raise Refused(
            "several hosts are not supported yet",
            where=f"--{name.replace('_', '-')}",
            found=str(value),
            needs=instead,
            next="leave it out, and start one lastgood run per host and job",
        )


def _rank_count(text: str) -> int:
    if text in {"cpu", "auto"}:
        return os.cpu_count() or 1
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(
        "how many ranks",
        where="--nproc-per-node",
        found=text,
        needs="a number above 0, or cpu",
        next="write 4",
    )


def _limits(floor_us: int) -> Limits:
    """The detector's floors; warm-up phases get twenty times the step's, and never less than a minute."""
    from lastgood.signals.limits import Limits

    warmup_us = min(max(20 * floor_us, 60_000_000), 600_000_000)
    return Limits(step_floor_us=floor_us, warmup_floor_us=warmup_us)


def _made_up_id() -> str:
    import secrets

    return f"run-{secrets.token_hex(4)}"
