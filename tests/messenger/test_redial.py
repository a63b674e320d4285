"""A connection that ZeroMQ abandons, because another kind of peer answered, is made anew."""

import struct
import time

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger import Messenger
from pubsub.messenger import redial as redialing
from pubsub.messenger.redial import REDIAL_SECONDS, REDIAL_SECONDS_MAX, open_redialed
from pubsub.messenger.sockets import open_router
from tests.messenger.stranger import STRANGERS, Stranger

ENDED, ESTABLISHED = zmq.EVENT_DISCONNECTED, zmq.EVENT_HANDSHAKE_SUCCEEDED


class Told:
    """What a monitor tells, as the test has it."""

    def recv_multipart(self, flags):
        if not self.events:
            raise zmq.Again
        return [struct.pack("=hi", self.events.pop(0), 0)]


@pytest.mark.parametrize("words", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_client_that_met_another_listener_finds_the_right_one_later(words, until):
    stranger = Stranger(words)
    with Messenger() as client, Messenger() as server:
        answers = []
        client.send(stranger.endpoint, b"hello", lambda _, answer, __: answers.append(bytes(answer)))
        until(lambda: stranger.connections)
        stranger.leave()
        server.listen(stranger.endpoint, lambda request: request.reply(request.contents))
        assert client.wait(lambda: bool(answers), time.monotonic() + 20)
        assert answers == [b"hello"]


def test_a_foreign_listener_is_dialled_less_and_less_often(monkeypatch):
    monkeypatch.setattr(redialing, "REDIAL_SECONDS", 0.01)
    monkeypatch.setattr(redialing, "REDIAL_SECONDS_MAX", 0.04)
    stranger = Stranger(STRANGERS["another mechanism"])
    context = zmq.Context()
    sock, redial = open_redialed(context, stranger.endpoint)
    waits = []
    try:
        for _ in range(4):
            while redial.due == float("inf"):
                assert redial.sock.poll(10_000)
                redial.take(100.0)
            waits.append(round(redial.due - 100.0, 3))
            redial.redial()
    finally:
        redial.close()
        sock.close(0)
        context.term()
        stranger.leave()
    assert waits == [0.01, 0.02, 0.04, 0.04]


def test_the_redial_interval_is_reset_after_a_connection():
    context = zmq.Context()
    sock, redial = open_redialed(context, "tcp://127.0.0.1:9")
    monitor, redial.sock, waits = redial.sock, Told(), []
    try:
        for events in ([ENDED], [ENDED], [ESTABLISHED, ENDED]):
            redial.sock.events = events
            redial.take(100.0)
            waits.append(redial.due - 100.0)
            redial.redial()
    finally:
        redial.sock = monitor
        redial.close()
        sock.close(0)
        context.term()
    assert waits == [REDIAL_SECONDS, 2 * REDIAL_SECONDS, REDIAL_SECONDS]


def test_a_cut_connection_is_left_to_zeromq(relay_to, until):
    with Messenger() as client, Messenger() as server:
        relay = relay_to(server.listen("tcp://127.0.0.1:0", lambda request: request.reply(request.contents)))
        answers = []
        for count in range(1, 4):
            client.send(relay.endpoint, b"x", lambda _, answer, __: answers.append(bytes(answer)))
            assert client.wait(lambda count=count: len(answers) == count, time.monotonic() + 20)
            relay.cut(0)
            relay.cut(1)
        assert client.counters.redialed == 0


def test_the_pauses_between_redials_have_names():
    assert 0 < REDIAL_SECONDS < REDIAL_SECONDS_MAX <= 60


def test_the_end_of_a_connection_is_reported_but_not_a_failed_try():
    context = zmq.Context()
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    sock, redial = open_redialed(context, endpoint)
    try:
        sock.send(b"hello")
        assert router.poll(10_000)
        redial.take(100.0)
        assert not redial.ended
        router.close(0)
        while not redial.ended:
            assert redial.sock.poll(10_000)
            redial.take(100.0)
        redial.ended = False
        for _ in range(3):  # It tries again, in vain.
            assert redial.sock.poll(10_000)
            redial.take(100.0)
        assert not redial.ended
    finally:
        redial.close()
        sock.close(0)
        context.term()


def test_watching_ends_where_the_context_was_ended_before():
    context = zmq.Context()
    _, redial = open_redialed(context, "tcp://127.0.0.1:9")
    context.destroy(0)
    redial.close()
    assert redial.sock.closed


def test_an_invalid_address_leaves_nothing_behind():
    context = zmq.Context()
    with pytest.raises(ConfigurationError, match="cannot connect"):
        open_redialed(context, "tcp://nowhere")
    context.term()
