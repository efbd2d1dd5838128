"""The error tree: messages that a person can act on, codes and exit codes that a script can rely on."""

import pickle

import pytest

from lastgood.base import errors
from lastgood.base.errors import (
    BadInput,
    EvidenceError,
    LastgoodError,
    LedgerCorrupt,
    LedgerError,
    MissingExtra,
    Problem,
    Problems,
    RecoveryError,
    Refused,
)


def test_a_message_has_its_four_parts_in_the_stated_order():
    error = BadInput(
        "objectives.ettr",
        where="contract.yaml:7",
        found="97",
        needs="a ratio between 0 and 1",
        next="write 0.97",
    )
    assert str(error) == (
        "contract.yaml:7: objectives.ettr: found 97, needs a ratio between 0 and 1; write 0.97"
    )


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "broken"),
        ({"where": "here"}, "here: broken"),
        ({"found": "x"}, "broken: found x"),
        ({"needs": "y"}, "broken: needs y"),
        ({"next": "type z"}, "broken; type z"),
    ],
)
def test_a_part_that_is_not_known_is_left_out(parts, text):
    assert str(LastgoodError("broken", **parts)) == text
    assert str(Problem(what="broken", **parts)) == text


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (BadInput, 2),
        (errors.ContractError, 2),
        (errors.CanonicalError, 2),
        (Refused, 3),
        (EvidenceError, 3),
        (LedgerError, 3),
        (errors.LedgerPathError, 2),
        (LedgerCorrupt, 1),
        (RecoveryError, 70),
        (LastgoodError, 70),
    ],
)
def test_each_class_has_its_exit_code(kind, exit_code):
    assert kind("x").exit_code == exit_code


def test_every_class_has_a_code_of_its_own():
    kinds = [
        v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, LastgoodError)
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(kinds) == 12
    assert all(code.startswith("LG-") for code in codes)


def test_every_class_stands_in_the_drawing_at_the_top_of_the_file():
    drawing = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, LastgoodError):
            assert f"{name} " in drawing, name
            assert kind.code in drawing, kind.code


def test_problems_tells_all_of_them_in_order():
    error = Problems(
        [Problem(what="a", where="f:1"), Problem(what="b", where="f:2", next="write c")]
    )
    assert str(error) == "f:1: a\nf:2: b; write c"
    assert error.what == "2 problems"


def test_problems_without_a_problem_is_a_defect():
    with pytest.raises(AssertionError):
        Problems([])


def test_a_missing_extra_names_the_exact_pip_command():
    error = MissingExtra(module="torch", extra="torch")
    assert str(error).endswith('; run: pip install "lastgood[torch]"')
    assert error.exit_code == 3


@pytest.mark.parametrize(
    "error",
    [
        BadInput("a", where="w", found="f", needs="n", next="x", code="LG-I77"),
        Problems([Problem(what="p")]),
        MissingExtra(module="m", extra="e"),
    ],
)
def test_errors_survive_the_way_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.code, vars(again)) == (str(error), error.code, vars(error))
