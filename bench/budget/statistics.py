"""How fast the statistics are on this machine, beside SurPyval in the same run: JSON, no claims.

    python bench/budget/statistics.py [--events N] [--peer-events N] [-o FILE]

A fleet of 4,000 nodes in one year with N incidents (ten million by default) is studied once, everything included:
interval, dispersion, trend, power law, gap shape, mean cumulative function, change points, bursts, repairs, lemons and
percentiles. Beside the peer stand three procedures that both have, on the same events, fewer of them to keep the run
short. CPU seconds of this process, system time included; our first call is not counted, so that imports stay outside.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lastgood.base.rng import numpy_stream
from lastgood.budget.mcf import mean_cumulative
from lastgood.budget.operational import constant
from lastgood.budget.rates import study
from lastgood.budget.sample import Sample
from lastgood.budget.trend import laplace, mil_hdbk_189c

NODES, WINDOW_H, SEED = 4000, 8760.0, 1


def cpu_s(action: Callable[[], object]) -> float:
    """CPU seconds of one call, system time included."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    action()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fleet(events: int) -> Sample:
    """Incidents at random times on random nodes, with repairs of three hours on average; late ones are still open."""
    random = numpy_stream(SEED, "bench", "fleet", events)
    begin = np.sort(random.uniform(0, WINDOW_H, events))
    end = begin + random.exponential(3, events)
    is_open = end > WINDOW_H
    end[is_open] = np.nan
    return Sample(
        name="all",
        begin_h=begin,
        end_h=end,
        window_h=WINDOW_H,
        node=random.integers(0, NODES, events),
        nodes_at_risk=NODES,
        closed_h={"recovery": (end - begin)[~is_open]},
        open_h={"recovery": (WINDOW_H - begin)[is_open]},
    )


def whole_study(events: int) -> dict[str, float]:
    """One study of the whole fleet."""
    exposure = constant(NODES, window_h=WINDOW_H)
    study(fleet(1000), exposure=exposure)
    sample = fleet(events)
    seconds = cpu_s(lambda: study(sample, exposure=exposure))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "events": events,
        "cpu_s": round(seconds, 2),
        "events_per_cpu_s": round(events / seconds),
        "peak_mb": peak // 1024,
    }


def beside_peer(events: int) -> dict[str, object]:
    """The same three procedures by both, on the same events."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import surpyval
        from surpyval.recurrent import laplace as peer_laplace
        from surpyval.recurrent import mil_hdbk_189c as peer_mil_hdbk

        sample = fleet(events)
        times, node = sample.begin_h, sample.node
        ends = np.full(NODES, WINDOW_H)
        x, i = np.concatenate((times, ends)), np.concatenate((node, np.arange(NODES)))
        c = np.concatenate((np.zeros(events), np.ones(NODES)))
        pairs = {
            "laplace": (lambda: laplace(times, WINDOW_H), lambda: peer_laplace(times, T=WINDOW_H)),
            "mil_hdbk_189c": (
                lambda: mil_hdbk_189c(times, WINDOW_H),
                lambda: peer_mil_hdbk(times, T=WINDOW_H),
            ),
            "mcf_with_bounds": (
                lambda: mean_cumulative(times, node, nodes=NODES, window_h=WINDOW_H),
                lambda: surpyval.NonParametricCounting.fit(x, i=i, c=c).mcf_cb(ends[:1]),
            ),
        }
        rows = {}
        for name, (ours, theirs) in pairs.items():
            ours()
            own, other = cpu_s(ours), cpu_s(theirs)
            rows[name] = {
                "cpu_s": round(own, 4),
                "surpyval_cpu_s": round(other, 4),
                "ratio": round(other / max(own, 1e-6), 1),
            }
    return {"events": events, "surpyval": surpyval.__version__, "procedures": rows}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--peer-events", type=int, default=5_000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    result = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "study": whole_study(options.events),
        "beside_peer": beside_peer(options.peer_events),
    }
    text = json.dumps(result, indent=1) + "\n"
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
