"""The port of an attempt belongs to its ranks from the moment in which it is chosen."""

import socket

import pytest

from lastgood.training.observe.rank import MASTER_ADDR, hold_port


def test_a_held_port_is_given_to_no_other_program():
    with hold_port() as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((MASTER_ADDR, held.getsockname()[1]))


def test_the_store_of_the_ranks_may_listen_on_it():
    """Torch's store reuses addresses, on all of them."""
    with hold_port() as held, socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("", held.getsockname()[1]))
        store.listen()
        with socket.create_connection((MASTER_ADDR, held.getsockname()[1]), timeout=5) as client:
            assert client.getpeername()[1] == held.getsockname()[1]
