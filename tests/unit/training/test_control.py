"""Messages arrive whole, in order, however the bytes were cut; a peer that is gone is no exception."""

import socket
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.training import control
from lastgood.training.control import Channel
from lastgood.training.supervising.supervisor import Supervisor

MESSAGES = [
    control.Hello(worker="w1", pid=7, golden="ab", versions={"torch": "2"}),
    control.Ready(state_bytes=10),
    control.StepRaised(
        generation=1,
        step=2,
        type_name="E",
        message="line\nbreak \u2028 ü",
        is_group_error=False,
        trace="a\nb",
    ),
    control.StateRestored(generation=2, rank=0, is_intact=False, bad_step=5, detail="x"),
    control.Finished(generation=1, step=9),
    control.Remark(rank=1, text="the loader", next="write"),
]
PLAN = control.Plan(tier="slot", mode="repeat", restore_step=1, target_step=1, digest="aa")
ORDERS = [
    control.Assignment(generation=1, rank=0, world=2),
    control.Assignment(generation=2, rank=1, world=2, plan=PLAN, tolerance=(0.5).hex()),
    control.Revoked(generation=1, newest_step=7),
    control.ReadAhead(newest_step=7),
    control.Prepare(generation=2, rank=1, world=2, newest_step=7),
    control.Proceed(generation=2),
    control.ReplayAgain(generation=2),
    control.Resumed(generation=2, step=4),
    control.StopAfter(step=8),
    control.FinishAcknowledged(),
    control.DumpStack(path="/x"),
]


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Channel(ours, control.ToSupervisor), Channel(theirs, control.ToWorker)
    ours.close()
    theirs.close()


def test_every_message_arrives_as_it_was_sent_in_both_directions(pair):
    supervisor, worker = pair
    assert all(worker.send(message) for message in MESSAGES)
    assert list(supervisor.receive()) == MESSAGES
    assert all(supervisor.send(order) for order in ORDERS)
    assert list(worker.receive()) == ORDERS


@given(cuts=st.lists(st.integers(1, 400), max_size=8))
def test_messages_cut_anywhere_are_put_together_again(cuts):
    raw = b"".join(msgspec.json.encode(message) + b"\n" for message in MESSAGES)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours, control.ToSupervisor)
        heard = []
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(raw)], strict=True):
            if raw[start:end]:
                theirs.sendall(raw[start:end])
                heard += channel.receive()
        assert heard == MESSAGES


def test_a_message_larger_than_one_read_arrives(pair):
    supervisor, worker = pair
    big = control.StateRestored(generation=1, rank=0, is_intact=False, detail="x" * 100_000)
    assert worker.send(big)
    heard = []
    for _ in range(20):
        if supervisor.has_input(0):
            heard += supervisor.receive()
    assert heard == [big]


def test_half_a_message_is_not_taken_when_its_sender_dies(pair):
    supervisor, worker = pair
    worker.socket.sendall(msgspec.json.encode(MESSAGES[0])[:20])
    worker.socket.close()
    assert list(supervisor.receive()) == []
    assert not supervisor.is_closed
    assert list(supervisor.receive()) == []
    assert supervisor.is_closed


def test_sending_to_a_peer_that_is_gone_says_so_and_raises_nothing(pair):
    supervisor, worker = pair
    worker.socket.close()
    assert not supervisor.send(ORDERS[2])
    assert supervisor.is_closed


def test_a_socket_that_was_closed_here_is_a_closed_channel(pair):
    supervisor, _ = pair
    supervisor.socket.close()
    assert list(supervisor.receive()) == []
    assert supervisor.is_closed


def test_without_input_nothing_is_read_and_nothing_blocks(pair):
    supervisor, worker = pair
    assert not supervisor.has_input(0)
    supervisor.socket.setblocking(False)
    assert list(supervisor.receive()) == []
    assert not supervisor.is_closed
    worker.send(MESSAGES[1])
    assert supervisor.has_input(0.2)


def test_a_worker_does_not_take_what_only_a_supervisor_may_hear(pair):
    supervisor, worker = pair
    supervisor.socket.sendall(msgspec.json.encode(MESSAGES[0]) + b"\n")
    with pytest.raises(msgspec.ValidationError):
        list(worker.receive())


def test_a_worker_that_was_let_go_in_this_turn_is_heard_no_more():
    """What another worker said in the same turn can end it."""
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours, control.ToSupervisor)
        Channel(theirs, control.ToWorker).send(control.Parked(generation=1))
        channel.close()
        Supervisor.hear_all(None, SimpleNamespace(channel=channel))  # type: ignore[arg-type]
        assert list(channel.receive()) == []
        assert not channel.send(control.Proceed(generation=1))


def test_an_error_that_names_a_file_without_utf8_arrives_in_words_that_are():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        said = control.ScriptFailed(text="no such file: \udcff.db")
        assert Channel(ours, control.ToWorker).send(said)
        (heard,) = Channel(theirs, control.ToSupervisor).receive()
        assert heard == control.ScriptFailed(text=r"no such file: \xff.db")
