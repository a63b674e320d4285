"""The requests that the servers of models 2 and 3 deliver, and their answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.services.core.freelance.servers import NumberedServer, SequencedServer, TrackedServer
from pubsub.services.core.interface import Asked, Requested, Send
from pubsub.services.core.lazy import REQUESTS_MAX

BOTH = pytest.mark.parametrize("make", [SequencedServer, TrackedServer])
FRAME = st.binary(max_size=6) | st.sampled_from([b"", b"1", b"PING", bytes(300)])


def ask(server: NumberedServer, peer: bytes = b"caller", number: bytes = b"1", body: bytes = b"name") -> int:
    frames = [b"", number, body] if isinstance(server, SequencedServer) else [number, body]
    server.receive("requests", peer, frames, 0.0)
    event = server.take_events()[0]
    assert isinstance(event, Requested)
    assert event.body == (body,)
    return event.token


def test_golden_exchange_of_model_2() -> None:
    server = SequencedServer()
    server.receive("requests", b"caller", [b"", b"17", b"random name"], 0.0)
    assert server.take_events() == [Requested(1, (b"random name",))]
    server.reply(1, (b"OK",), 1.0)
    assert server.take_sends() == [Send("requests", b"caller", (b"", b"17", b"OK"))]


def test_golden_exchange_of_model_3() -> None:
    server = TrackedServer()
    server.receive("requests", b"caller", [b"PING"], 0.0)
    server.receive("requests", b"caller", [b"17", b"random name"], 0.0)
    server.receive("requests", b"other", [b"17", b"", b"random name"], 0.0)
    assert server.take_events() == [Requested(1, (b"random name",)), Requested(2, (b"random name",))]
    server.reply(2, (b"OK",), 1.0)
    server.reply(1, (b"OK", b"more"), 1.0)
    assert server.take_sends() == [
        Send("requests", b"caller", (b"PONG",)),
        Send("requests", b"other", (b"17", b"OK")),
        Send("requests", b"caller", (b"17", b"OK", b"more")),
    ]


def test_a_request_of_model_3_may_have_ping_as_its_control_frame() -> None:
    server = TrackedServer()
    server.receive("requests", b"caller", [b"PING", b"name"], 0.0)
    assert server.take_events() == [Requested(1, (b"name",))]


@BOTH
def test_each_request_is_answered_once_in_any_order(make: Callable[[], NumberedServer]) -> None:
    server = make()
    tokens = [ask(server, peer) for peer in (b"x", b"y", b"z")]
    for token in (tokens[2], tokens[0], tokens[1], tokens[1]):
        server.reply(token, (b"OK",), 0.0)
    assert [send.peer for send in server.take_sends() if isinstance(send, Send)] == [b"z", b"x", b"y"]


@BOTH
def test_parts_of_a_reply_are_sent_with_it(make: Callable[[], NumberedServer]) -> None:
    server = make()
    token = ask(server)
    server.reply_part(token, (b"a",), 0.0)
    server.reply_part(token, (b"b",), 0.0)
    server.reply_part(token + 1, (b"c",), 0.0)
    assert server.take_sends() == []
    server.reply(token, (b"d",), 0.0)
    (send,) = server.take_sends()
    assert isinstance(send, Send)
    assert send.frames[-4:] == (b"1", b"a", b"b", b"d")


@BOTH
def test_a_failed_request_is_not_answered(make: Callable[[], NumberedServer]) -> None:
    server = make()
    token = ask(server)
    server.fail(token, "broken", 0.0)
    server.reply(token, (b"OK",), 0.0)
    assert server.take_sends() == []
    assert server.counters["failed"] == 1


@BOTH
def test_a_call_needs_the_right_to_call(make: Callable[..., NumberedServer]) -> None:
    assert make("requests", "names").asked("requests", [b"PING"]) == Asked("call", "names")


@BOTH
def test_kept_requests_stay_within_the_limit(make: Callable[[], NumberedServer]) -> None:
    server = make()
    tokens = [ask(server) for _ in range(REQUESTS_MAX)]
    if isinstance(server, SequencedServer):
        assert not server.reads("requests")
    else:
        assert server.reads("requests")
        server.receive("requests", b"caller", [b"2", b"name"], 0.0)
        assert server.take_events() == []
        assert server.counters["busy"] == 1
        server.receive("requests", b"caller", [b"PING"], 0.0)
        assert server.take_sends() == [Send("requests", b"caller", (b"PONG",))]
    server.reply(tokens[0], (b"OK",), 0.0)
    assert server.reads("requests")
    ask(server)


@BOTH
@given(messages=st.lists(st.lists(FRAME, min_size=1, max_size=5), max_size=20))
def test_no_message_raises_and_every_answer_goes_to_its_caller(
    make: Callable[[], NumberedServer], messages: list[list[bytes]]
) -> None:
    server = make()
    for number, frames in enumerate(messages):
        server.receive("requests", b"%d" % number, frames, 0.0)
        events = server.take_events()
        pings = server.take_sends()
        if pings:
            assert pings == [Send("requests", b"%d" % number, (b"PONG",))]
            assert frames == [b"PING"]
        for event in events:
            assert isinstance(event, Requested)
            assert event.body == tuple(frames[-len(event.body) :])
            server.reply(event.token, (b"OK",), 0.0)
            (send,) = server.take_sends()
            assert isinstance(send, Send)
            assert send.peer == b"%d" % number
            assert send.frames[-1] == b"OK"
            assert send.frames[-2] in frames
    unknown = server.counters["undecodable"] + server.counters["pinged"] + server.counters["replied"]
    assert unknown == len(messages)
