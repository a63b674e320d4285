"""The client of a pair: one server, then the other, and the time between."""

from __future__ import annotations

from pubsub.services.core.binary_star.caller import StarCaller
from pubsub.services.core.interface import AccessRefused, Answered, GivenUp, Patience
from tests.services.stage import Stage

PRIMARY, BACKUP = "tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002"


def calling(tries: int = 4) -> Stage:
    """A client with a call under way, at 100 s."""
    stage = Stage(StarCaller([PRIMARY, BACKUP]))
    return stage.do("call", 7, "", (b"0",), Patience(1.0, tries))


def test_golden_frames() -> None:
    stage = calling()
    assert stage.dialled == {"lane 1": PRIMARY}
    assert stage.sent() == [("lane 1", b"", (b"", b"0"))]
    stage.receive("lane 1", b"", b"0")
    assert stage.said() == [Answered(7, (b"0",))]


def test_a_caller_waits_before_it_asks_the_other_server_the_same() -> None:
    stage = calling()
    stage.sent()
    stage.wait(2.99)
    assert stage.sent() == []
    assert stage.dialled == {"lane 1": PRIMARY}
    stage.wait(0.02)
    assert stage.dialled == {"lane 2": BACKUP}
    assert stage.sent() == [("lane 2", b"", (b"", b"0"))]


def test_a_reply_during_the_wait_is_taken() -> None:
    stage = calling()
    stage.wait(2.5)
    stage.receive("lane 1", b"", b"0")
    assert stage.said() == [Answered(7, (b"0",))]
    stage.do("call", 8, "", (b"1",), Patience(1.0, 4))
    stage.sent()
    stage.wait(2.99)
    assert stage.dialled == {"lane 1": PRIMARY}, "the next call on this connection settles too"
    stage.wait(0.02)
    assert stage.dialled == {"lane 2": BACKUP}


def test_a_caller_alternates_until_its_tries_are_over() -> None:
    stage = calling(3)
    visited = []
    for _ in range(100):
        visited += [address for address in stage.dialled.values() if [address] != visited[-1:]]
        stage.wait(0.1)
    assert visited == [PRIMARY, BACKUP, PRIMARY]
    (event,) = stage.said()
    assert isinstance(event, GivenUp)
    assert (event.token, event.tries, round(event.seconds, 3)) == (7, 3, 7.0)
    assert stage.dialled == {}


def test_a_late_reply_is_dropped() -> None:
    stage = calling()
    stage.wait(3.1)
    stage.receive("lane 1", b"", b"late")
    assert stage.said() == []
    stage.receive("lane 2", b"", b"0")
    assert stage.said() == [Answered(7, (b"0",))]


def test_a_call_begins_where_the_last_one_was_answered() -> None:
    stage = calling()
    stage.wait(3.1)
    stage.receive("lane 2", b"", b"0")
    stage.sent()
    stage.do("call", 8, "", (b"1",), Patience(1.0, 4))
    assert stage.sent() == [("lane 2", b"", (b"", b"1"))]


def test_the_first_failure_of_a_silent_server_closes_its_free_connections() -> None:
    stage = Stage(StarCaller([PRIMARY, BACKUP]))
    for token in (1, 2, 3):
        stage.do("call", token, "", (b"x",), Patience(1.0, 4))
    for lane in ("lane 1", "lane 2", "lane 3"):
        stage.receive(lane, b"", b"x")
    stage.do("call", 4, "", (b"y",), Patience(1.0, 4))
    stage.wait(3.1)
    assert list(stage.dialled.values()) == [BACKUP]


def test_a_refused_caller_does_not_wait() -> None:
    stage = calling(2)
    stage.do("refused", "lane 1", "no key")
    assert stage.dialled == {"lane 2": BACKUP}
    stage.do("refused", "lane 2", "wrong key")
    assert stage.said() == [AccessRefused(7, "wrong key")]
