"""Waiting for sockets by their descriptors: nothing that comes is missed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import zmq

from pubsub.services.waiting import Waiting

Socket = zmq.Socket[bytes]


@pytest.fixture
def pair() -> Iterator[tuple[Socket, Socket]]:
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://pair")
        other.connect("inproc://pair")
        yield one, other


def test_an_idle_socket_is_not_reported(pair: tuple[Socket, Socket]) -> None:
    waiting = Waiting([pair[0]], [pair[1]])
    assert waiting.wait(0.01) == []
    assert not waiting.at_once


@pytest.mark.parametrize("used", [True, False])
def test_an_earlier_message_is_reported_until_it_is_read(pair: tuple[Socket, Socket], used: bool) -> None:
    one, other = pair
    waiting = Waiting([one], []) if used else Waiting([], [one])
    other.send(b"1")
    other.send(b"2")
    for expected in (b"1", b"2"):
        assert waiting.wait(10.0) == [one]
        assert waiting.wait(10.0) == [one]
        assert waiting.at_once
        assert one.recv() == expected
    assert waiting.wait(0.01) == []


@pytest.mark.parametrize("used", [True, False])
def test_a_message_during_the_sleep_ends_the_sleep(pair: tuple[Socket, Socket], used: bool) -> None:
    one, other = pair
    waiting = Waiting([one], []) if used else Waiting([], [one])
    assert waiting.wait(0.0) == []
    later = threading.Timer(0.05, lambda: other.send(b"x"))
    later.start()
    found: list[object] = []
    while not found:
        found = waiting.wait(10.0)
    assert found == [one]
    later.join()


def test_a_signal_consumed_by_a_send_does_not_hide_a_message(pair: tuple[Socket, Socket]) -> None:
    one, other = pair
    waiting = Waiting([one], [])
    assert waiting.wait(0.0) == []
    other.send(b"x")
    for _ in range(1_000):
        one.send(b"y")
    assert waiting.wait(10.0) == [one]


def test_a_descriptor_is_reported_and_ends_a_pause(pair: tuple[Socket, Socket]) -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        waiting = Waiting([pair[0]], [reader.fileno()], [reader.fileno()])
        pair[1].send(b"does not end a nap")
        waiting.batching_seconds(0.01)
        writer.send(b"x")
        waiting.batching_seconds(100.0)
        assert set(waiting.wait(10.0)) == {pair[0], reader.fileno()}
