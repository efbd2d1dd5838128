"""A contract that asks for a smaller world is refused with the reason, not only as an unknown word."""

import pytest

from lastgood.base.errors import LastgoodError
from lastgood.contract.load import default_contract, load_contract
from lastgood.contract.starter import starter_text


@pytest.mark.parametrize("row", ["isolate", "restore", "verify"])
def test_shrinking_is_refused_with_what_it_would_change_and_what_to_write(tmp_path, row):
    head, begin, tail = starter_text().partition(f"    {row}:\n")
    before, _, after = tail.partition("onTimeout: ")
    path = tmp_path / "contract.yaml"
    path.write_text(f"{head}{begin}{before}onTimeout: shrink\n{after.partition(chr(10))[2]}")
    with pytest.raises(LastgoodError) as refused:
        load_contract(path)
    (line,) = [line for line in str(refused.value).splitlines() if "onTimeout" in line]
    assert f"spec.recovery.{row}.onTimeout: found shrink" in line
    assert "fewer change the global batch, and with it every later bit; write escalate" in line


def test_an_error_of_every_rank_is_tried_once_by_default_and_never_where_the_contract_says_so(
    tmp_path,
):
    assert default_contract("training").spec.recovery.recurrence.every_rank_limit == 1
    path = tmp_path / "contract.yaml"
    path.write_text(
        starter_text().replace("      limit: 2\n", "      limit: 2\n      everyRankLimit: 0\n")
    )
    assert load_contract(path).spec.recovery.recurrence.every_rank_limit == 0
