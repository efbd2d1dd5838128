"""Speed of the checkpoint Monte Carlo in events per CPU-second, beside SimPy on the same job in the same run.

    python bench/planning/simulation.py [--json]

An event is a checkpoint that was written, a failure, or a recovery that ended. CPU time and not wall time is counted,
so a loaded machine changes little. Targets: 3 million with numba, 0.3 million without.
"""

from __future__ import annotations

import json
import platform
import sys
import time

from lastgood.base.rng import numpy_stream
from lastgood.budget.closed.interval import young
from lastgood.budget.closed.regime import Regime
from lastgood.budget.montecarlo.engine import Engine, compiled, has_compiler
from lastgood.budget.montecarlo.model import JobModel
from lastgood.budget.montecarlo.replicate import simulate

REGIME = Regime(mean_to_stop=185.584726, checkpoint=1, detection=1, recovery=1)
SEGMENTS = 4_000
TARGETS = {"compiled": 3e6, "interpreted": 0.3e6}


def world(**features: float) -> JobModel:
    """A 54-day job, plain or with everything that the model knows."""
    work = young(REGIME)
    return JobModel(regime=REGIME, work=work, total_work=SEGMENTS * work, **features)  # type: ignore[arg-type]


PLAIN = world()
FULL = world(
    weibull_shape=0.8,
    burst_chance=0.1,
    burst_gap=2.0,
    checkpoint_failure_chance=0.01,
    mean_to_corruption=20_000.0,
    detection_latency=20.0,
    retained_count=20,
)


def ours(model: JobModel, engine: Engine, *, count: int) -> dict[str, float]:
    """Events per CPU-second of one engine."""
    start = time.process_time()
    runs = simulate(model, seed=1, count=count, engine=engine)
    spent = time.process_time() - start
    events = runs.counts["events"]
    return {"events": events, "cpu_s": round(spent, 3), "events_per_cpu_s": round(events / spent)}


def peer(model: JobModel, *, count: int) -> dict[str, float]:
    """The plain job as one SimPy process; its events are counted in the same way."""
    import simpy

    draw = numpy_stream(1, "bench")
    events = 0
    start = time.process_time()
    for _ in range(count):
        env = simpy.Environment()

        def job(env: simpy.Environment = env):  # noqa: ANN202 - a generator of SimPy events
            nonlocal events
            done = 0.0
            failure = env.timeout(draw.exponential(model.regime.mean_to_stop))
            while done < model.total_work - 1e-6:
                segment = env.timeout(model.work + model.regime.checkpoint)
                yield segment | failure
                events += 1
                if not failure.processed:
                    done += model.work
                    continue
                while True:
                    yield env.timeout(model.regime.detection)
                    failure = env.timeout(draw.exponential(model.regime.mean_to_stop))
                    yield env.timeout(model.regime.recovery) | failure
                    events += 1
                    if not failure.processed:
                        break

        env.run(env.process(job()))
    spent = time.process_time() - start
    return {"events": events, "cpu_s": round(spent, 3), "events_per_cpu_s": round(events / spent)}


def main() -> int:
    """Measure, print, and return 1 when a target is missed."""
    rows: dict[str, dict[str, float]] = {}
    if has_compiler():
        start = time.process_time()
        compiled()
        simulate(PLAIN, seed=1, count=2, engine=Engine.COMPILED)
        rows["start of the compiler"] = {"cpu_s": round(time.process_time() - start, 3)}
        rows["compiled, plain"] = ours(PLAIN, Engine.COMPILED, count=3_000)
        rows["compiled, everything"] = ours(FULL, Engine.COMPILED, count=1_500)
    rows["interpreted, plain"] = ours(PLAIN, Engine.INTERPRETED, count=200)
    rows["interpreted, everything"] = ours(FULL, Engine.INTERPRETED, count=60)
    rows["SimPy, plain"] = peer(PLAIN, count=15)
    base = rows["SimPy, plain"]["events_per_cpu_s"]
    is_met = True
    for name, row in rows.items():
        rate = row.get("events_per_cpu_s")
        if rate is None:
            continue
        row["ratio_to_simpy"] = round(rate / base, 1)
        target = TARGETS.get(name.partition(",")[0])
        is_met &= target is None or rate >= target
    if "--json" in sys.argv:
        print(json.dumps({"python": platform.python_version(), "rows": rows}, indent=1))
    else:
        for name, row in rows.items():
            print(f"{name:<26}" + "  ".join(f"{key} {value:,}" for key, value in row.items()))
        print("targets met" if is_met else "TARGET MISSED")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
