"""What a person reads when the loop gives up: not only which failure, but what it said and where."""

from lastgood.recovery.escalation import last_seen


def test_the_reason_ends_with_what_the_error_said_and_where():
    seen = "rank 2 raised KeyError in step 7 (train.py:31 in fetch): 'loss'"
    assert last_seen([seen]) == f"; the last time: {seen}"
    assert last_seen([]) == ""


def test_of_a_message_of_many_lines_the_first_one_is_told():
    error = "rank 0 raised RuntimeError in step 3: CUDA error: out of memory\nCompile with ...\n"
    assert last_seen([error]).endswith("step 3: CUDA error: out of memory")
    assert len(last_seen(["x" * 5_000])) < 400


def test_of_many_ranks_two_are_told_and_the_others_counted():
    told = [f"rank {rank} raised ValueError in step 1: bad" for rank in range(8)]
    assert last_seen(told) == f"; the last time: {told[0]}; {told[1]}; and 6 more ranks"
    assert last_seen(told[:3]).endswith("; and 1 more rank")
    assert "more" not in last_seen(told[:2])
