"""Model 1: one server after the other."""

from __future__ import annotations

from pubsub.services.core.freelance.one_at_a_time import OneAtATime
from pubsub.services.core.interface import Answered, Dial, GivenUp, HangUp, Patience, Send

A, B, C = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"


def test_golden_frames() -> None:
    caller = OneAtATime([A])
    caller.call(1, "", (b"Hello world",), Patience(1.0, 3), 0.0)
    assert caller.take_sends() == [Dial("lane 1", A), Send("lane 1", b"", (b"", b"Hello world"))]
    caller.receive("lane 1", b"", [b"", b"Hello world"], 0.5)
    assert caller.take_events() == [Answered(1, (b"Hello world",))]


def test_one_server_is_asked_as_often_as_there_are_tries() -> None:
    caller = OneAtATime([A])
    caller.call(1, "", (b"x",), Patience(1.0, 3), 0.0)
    for now in (1.0, 2.0, 3.0):
        assert caller.timer() == now
        caller.tick(now)
    dials = [act.address for act in caller.take_sends() if isinstance(act, Dial)]
    assert dials == [A, A, A]
    assert caller.take_events() == [GivenUp(1, 3, 3.0, (A,))]


def test_each_of_several_servers_is_asked_once() -> None:
    caller = OneAtATime([A, B, C])
    caller.call(1, "", (b"x",), Patience(1.0, 9), 0.0)
    for now in (1.0, 2.0, 3.0):
        caller.tick(now)
    dials = [act.address for act in caller.take_sends() if isinstance(act, Dial)]
    assert dials == [A, B, C]
    assert caller.take_events() == [GivenUp(1, 3, 3.0, (A, B, C))]


def test_the_next_call_begins_at_the_last_answering_server_and_a_late_reply_is_dropped() -> None:
    caller = OneAtATime([A, B])
    caller.call(1, "", (b"x",), Patience(1.0, 1), 0.0)
    caller.tick(1.0)
    acts = caller.take_sends()
    assert acts == [
        Dial("lane 1", A),
        Send("lane 1", b"", (b"", b"x")),
        HangUp("lane 1"),
        Dial("lane 2", B),
        Send("lane 2", b"", (b"", b"x")),
    ]
    caller.receive("lane 2", b"", [b"", b"from B"], 1.1)
    caller.call(2, "", (b"y",), Patience(1.0, 1), 1.2)
    caller.receive("lane 1", b"", [b"", b"late, from A"], 1.3)
    assert caller.take_events() == [Answered(1, (b"from B",))]
    assert caller.take_sends() == [Send("lane 2", b"", (b"", b"y"))]
