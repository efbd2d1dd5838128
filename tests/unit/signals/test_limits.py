import pytest

from lastgood.signals.limits import (
    Limits,
    learn,
    limit_of_key_us,
    limit_us,
    phase_key,
    quantile_of,
)
from lastgood.signals.reading import Phase, ProcessState, RankReading

S = 1_000_000


def reading(phase: Phase, **changes) -> RankReading:
    fields = {
        "rank": 0, "worker": "w0", "pid": 1, "generation": 1, "exit_code": None, "phase": phase,
        "step": 5, "published_step": 4, "launches": 3, "completions": 3, "progress_us": 0,
        "process": ProcessState.SLEEPING, "cpu_us": 0, "runqueue_wait_us": 0,
    }  # fmt: skip
    return RankReading(**{**fields, **changes})


def learned(limits: Limits, key: str, *durations_us: int) -> Limits:
    for duration_us in durations_us:
        limits = learn(limits, key, duration_us)
    return limits


def test_the_default_floor_of_a_step_is_thirty_seconds():
    assert limit_us(Limits(), reading(Phase.COMPUTE)) == 30 * S


def test_a_profile_passes_its_own_floor():
    assert limit_us(Limits(step_floor_us=1 * S), reading(Phase.COMPUTE)) == 1 * S


def test_a_limit_is_a_multiple_of_the_quantile_of_the_same_phase():
    limits = learned(Limits(), "between", *[10 * S] * 10)
    assert limit_us(limits, reading(Phase.BETWEEN)) == 50 * S
    assert limit_us(limits, reading(Phase.COMPUTE)) == 30 * S


def test_the_slowest_tenth_does_not_move_the_limit():
    limits = learned(Limits(), "compute", *[10 * S] * 18, 1000 * S, 1000 * S)
    assert limit_us(limits, reading(Phase.COMPUTE)) == 50 * S


def test_a_learned_limit_never_falls_below_the_floor():
    limits = learned(Limits(), "compute", *[1000] * 50)
    assert limit_us(limits, reading(Phase.COMPUTE)) == 30 * S


def test_too_few_samples_teach_nothing():
    limits = learned(Limits(), "compute", *[100 * S] * 4)
    assert limit_of_key_us(limits, "compute") == 30 * S
    assert limit_of_key_us(learn(limits, "compute", 100 * S), "compute") == 500 * S


@pytest.mark.parametrize("phase", [Phase.LAUNCHING, Phase.JOINING, Phase.RESTORING])
def test_warm_up_has_its_own_floor(phase):
    assert limit_us(Limits(), reading(phase)) == 600 * S


def test_the_first_step_of_a_generation_counts_as_warm_up():
    assert limit_us(Limits(), reading(Phase.COMPUTE, completions=0)) == 600 * S
    assert phase_key(reading(Phase.COLLECTIVE, completions=0)) == "first_step"


def test_a_section_has_the_limit_that_it_declared():
    evaluating = reading(Phase.SECTION, section="eval", section_limit_us=7 * S)
    assert limit_us(Limits(), evaluating) == 7 * S


def test_a_section_without_a_limit_learns_its_own():
    limits = learned(Limits(section_floor_us=60 * S), "section:eval", *[100 * S] * 6)
    assert limit_us(limits, reading(Phase.SECTION, section="eval")) == 500 * S
    assert limit_us(limits, reading(Phase.SECTION, section="save")) == 60 * S


@pytest.mark.parametrize("phase", [Phase.PARKED, Phase.HELD, Phase.FINISHED])
def test_waiting_for_the_supervisor_has_no_limit(phase):
    assert limit_us(Limits(), reading(phase)) is None


def test_memory_is_bounded_in_samples_and_in_names():
    limits = Limits()
    for number in range(100):
        limits = learn(limits, f"section:{number}", number)
    for number in range(200):
        limits = learn(limits, "section:0", number)
    assert len(limits.samples) == 64
    assert limits.samples["section:0"] == tuple(range(136, 200))


def test_learning_gives_a_new_value_and_keeps_the_old_one():
    before = Limits()
    learn(before, "compute", 5)
    assert before.samples == {}


def test_a_negative_duration_teaches_nothing():
    assert learn(Limits(), "compute", -1).samples == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"factor": 0.5}, {"factor": float("nan")}, {"factor": float("inf")}, {"quantile": 0.0},
        {"quantile": float("nan")}, {"step_floor_us": 0}, {"group_error_us": -1},
    ],
)  # fmt: skip
def test_settings_under_which_nothing_could_be_judged_are_refused(wrong):
    with pytest.raises(ValueError, match="needs"):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0.9, 9), (0.91, 10), (1.0, 10), (0.01, 1), (0.5, 5)]
)
def test_the_quantile_is_the_nearest_rank(ratio, expected):
    assert quantile_of(tuple(range(10, 0, -1)), ratio) == expected


def test_the_contracts_time_to_detect_bounds_what_was_learned():
    limits = Limits(step_floor_us=30_000_000, step_ceiling_us=60_000_000)
    for _ in range(10):
        limits = learn(limits, "compute", 40_000_000)
    assert limit_of_key_us(limits, "compute") == 60_000_000


def test_it_does_not_bound_warm_up_or_sections():
    limits = Limits(
        warmup_floor_us=600_000_000, section_floor_us=500_000_000, step_ceiling_us=60_000_000
    )
    assert limit_of_key_us(limits, "joining") == 600_000_000
    assert limit_of_key_us(limits, "section:eval") == 500_000_000
