"""Replays one seed with everything that happened, or sweeps over many."""

from __future__ import annotations

import argparse
import sys

from lastgood.recovery.simulated.sweep import sweep
from lastgood.recovery.simulated.world import World


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 when every rule held, 1 when one was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m lastgood.recovery.simulated", description=__doc__
    )
    parser.add_argument("--seed", type=int, help="replay one seed and print what happened")
    parser.add_argument("--seeds", type=int, default=2000, help="sweep over this many seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed of the sweep")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed)
    result = sweep(range(options.first, options.first + options.seeds))
    for finding in result.findings:
        sys.stdout.write(f"{finding}\n\n")
    sys.stdout.write(
        f"{result.run_count} runs, {result.incident_count} incidents, {result.recovered_count} recovered, "
        f"{result.escalated_count} escalated, {len(result.findings)} broke a rule\n"
    )
    return 1 if result.findings else 0


def _replay(seed: int) -> int:
    world = World(seed)
    words = "every rule held"
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  the trace is what the reader came for
        words = f"{type(error).__name__}: {error}"
    for line in world.trace:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"seed {seed}: {words}\n")
    return 0 if words == "every rule held" else 1


if __name__ == "__main__":
    sys.exit(main())
