"""Laws of the figure algebra, for any figures: kinds only accumulate, and only weaken."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.errors import EvidenceError
from lastgood.base.figures import Figure, FigureKind, FigureRole, combine, project, render, weakest

# The one stated order, written out here a second time on purpose.
ORDER = ["measured", "reported", "modelled", "assumed", "simulated", "projected"]

values = st.none() | st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15)
texts = st.text(st.characters(categories=["L"]), min_size=1, max_size=8)


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    assumptions = draw(st.lists(texts, max_size=3).map(tuple))
    kinds = list(FigureKind)[2:] if assumptions else list(FigureKind)
    kind = draw(st.sampled_from(kinds))
    is_projected = kind is FigureKind.PROJECTED
    return Figure(
        name=draw(texts),
        value=draw(values),
        unit=draw(st.sampled_from(["us", "bytes", "ratio", "", "faults/h"])),
        kind=kind,
        assumptions=assumptions,
        as_of_us=draw(st.none() | st.integers(0, 10**16)),
        condition=draw(texts) if is_projected else None,
        source_window=draw(texts) if is_projected else None,
        extrapolation=draw(st.floats(1, 1e3)) if is_projected else None,
    )


many = st.lists(figures(), min_size=1, max_size=5)


def total(*parts: float) -> float:
    return sum(parts)


def summed(parts: list[Figure], *, assumptions: tuple[str, ...] = ()) -> Figure:
    return combine(parts, total, name="sum", unit="", source="sum", assumptions=assumptions)


@given(many, st.lists(texts, max_size=2).map(tuple))
def test_combining_keeps_every_kind_and_every_assumption(parts, assumptions):
    result = summed(parts, assumptions=assumptions)
    assert {part.kind for part in parts} <= set(result.kinds)
    assert set(result.assumptions) == {a for part in parts for a in part.assumptions} | set(
        assumptions
    )


@given(many)
def test_the_weakest_kind_is_the_one_printed_in_the_one_stated_order(parts):
    result = summed(parts)
    positions = [ORDER.index(kind) for kind in result.kinds]
    assert positions == sorted(positions)
    assert ORDER.index(result.kind) == max(positions)
    assert f" {result.kind.value}" in render(result)


@given(many, st.lists(texts, max_size=2).map(tuple))
def test_nothing_leads_back_to_measured(parts, assumptions):
    result = summed(parts, assumptions=assumptions)
    weakest_part = max(ORDER.index(part.kind) for part in parts)
    assert ORDER.index(result.kind) >= weakest_part
    if weakest_part > 0:
        assert result.kind is not FigureKind.MEASURED


@given(many, texts)
def test_a_formula_with_assumptions_is_at_best_modelled(parts, assumption):
    assert ORDER.index(summed(parts, assumptions=(assumption,)).kind) >= ORDER.index("modelled")


@given(many)
def test_kinds_do_not_depend_on_the_order_or_the_grouping_of_the_parts(parts):
    at_once, reversed_ = summed(parts), summed(parts[::-1])
    step_by_step = parts[0]
    for part in parts[1:]:
        step_by_step = summed([step_by_step, part])
    step_by_step = summed([step_by_step])
    assert at_once.kinds == reversed_.kinds == step_by_step.kinds
    assert at_once.kind == reversed_.kind == step_by_step.kind


@given(many)
def test_a_part_that_was_not_observed_makes_the_result_not_observed(parts):
    assert (summed(parts).value is None) == any(part.value is None for part in parts)


@given(many)
def test_a_projected_part_carries_its_condition_into_every_result(parts):
    result = summed(parts)
    for part in parts:
        if part.kind is FigureKind.PROJECTED:
            assert part.condition is not None
            assert part.condition in (result.condition or "")
            assert f"if {result.condition}" in render(result)


@given(figures(), texts, texts, st.floats(1, 100))
def test_a_projection_never_renders_without_condition_window_and_factor(
    part, condition, window, factor
):
    figure = project(
        part,
        total,
        name="p",
        unit="us",
        condition=condition,
        source_window=window,
        extrapolation=factor,
        source="s",
    )
    assert figure.kind is FigureKind.PROJECTED
    assert condition in render(figure)
    for field in ("condition", "source_window", "extrapolation"):
        with pytest.raises(EvidenceError):
            render(msgspec.structs.replace(figure, **{field: None}))


@given(figures(), st.lists(figures(), max_size=3))
def test_a_throughput_never_renders_without_both_companions(figure, companions):
    throughput = msgspec.structs.replace(
        figure, role=FigureRole.THROUGHPUT, companions=tuple(companions)
    )
    with pytest.raises(EvidenceError):
        render(throughput)
    full = msgspec.structs.replace(
        figure,
        role=FigureRole.THROUGHPUT,
        companions=(
            msgspec.structs.replace(figure, role=FigureRole.CORRECTNESS),
            msgspec.structs.replace(figure, role=FigureRole.LATENCY),
        ),
    )
    assert full.kind.value in render(full)


@given(st.sampled_from(list(FigureKind)), st.lists(st.sampled_from(list(FigureKind)), max_size=4))
def test_a_figure_that_claims_more_than_its_kinds_cannot_exist(kind, kinds):
    claims_too_much = any(ORDER.index(other) > ORDER.index(kind) for other in kinds)
    if claims_too_much:
        with pytest.raises(EvidenceError):
            Figure(name="x", value=1, unit="", kind=kind, kinds=tuple(kinds))
    else:
        figure = Figure(name="x", value=1, unit="", kind=kind, kinds=tuple(kinds))
        assert weakest(figure.kinds) is figure.kind


@given(figures())
def test_json_brings_a_figure_back_unchanged(figure):
    assert msgspec.json.decode(msgspec.json.encode(figure), type=Figure) == figure
