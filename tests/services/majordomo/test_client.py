"""The Majordomo client: its requests, valid replies, and its acts without a reply."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Answered, Dial, GivenUp, HangUp, PartlyAnswered, Patience, Send
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.majordomo.client import majordomo_caller

ADDRESS = "tcp://broker"
PATIENCE = Patience(2.5, 3)
WIRE = {
    1: ((b"", b"MDPC01", b"echo"), (b"", b"MDPC01", b"echo")),
    2: ((b"MDPC02", b"\x01", b"echo"), (b"MDPC02", b"\x03", b"echo")),
}


def calling(version: int) -> tuple[LockstepCaller, str]:
    """A caller that has called, and the port by which."""
    caller = majordomo_caller([ADDRESS], version)
    caller.call(1, "echo", (b"a", b"b"), PATIENCE, 0.0)
    dial, send = caller.take_sends()
    assert isinstance(dial, Dial)
    assert send == Send(dial.port, b"", (*WIRE[version][0], b"a", b"b"))
    return caller, dial.port


@pytest.mark.parametrize("version", [1, 2])
def test_a_request_gets_its_reply(version: int) -> None:
    caller, port = calling(version)
    caller.receive(port, b"", [*WIRE[version][1], b"c", b"d"], 1.0)
    assert caller.take_events() == [Answered(1, (b"c", b"d"))]
    caller.call(2, "echo", (b"x",), PATIENCE, 2.0)
    assert caller.take_sends() == [Send(port, b"", (*WIRE[version][0], b"x"))]


@pytest.mark.parametrize("version", [1, 2])
def test_the_reply_to_an_earlier_try_is_given_to_no_later_one(version: int) -> None:
    caller, port = calling(version)
    caller.tick(2.5)
    hang_up, dial, send = caller.take_sends()
    assert hang_up == HangUp(port)
    assert isinstance(dial, Dial)
    assert dial.port != port
    assert isinstance(send, Send)
    caller.receive(port, b"", [*WIRE[version][1], b"late"], 2.6)
    assert caller.take_events() == []
    caller.receive(dial.port, b"", [*WIRE[version][1], b"in time"], 2.7)
    assert caller.take_events() == [Answered(1, (b"in time",))]


def test_a_caller_gives_up_after_its_tries() -> None:
    caller, _ = calling(1)
    while (due := caller.timer()) is not None:
        caller.tick(due)
    assert caller.take_events() == [GivenUp(1, 3, 7.5, (ADDRESS,))]


def test_parts_come_at_once_and_a_call_with_parts_is_not_sent_again() -> None:
    caller, port = calling(2)
    caller.receive(port, b"", [b"MDPC02", b"\x02", b"echo", b"1"], 2.0)
    assert caller.take_events() == [PartlyAnswered(1, (b"1",))]
    caller.tick(2.5)
    assert caller.take_sends() == []
    caller.receive(port, b"", [b"MDPC02", b"\x02", b"echo", b"2"], 4.0)
    caller.receive(port, b"", [b"MDPC02", b"\x03", b"echo", b"3"], 6.0)
    assert caller.take_events() == [PartlyAnswered(1, (b"2",)), Answered(1, (b"3",))]


def test_a_call_with_parts_only_is_given_up() -> None:
    caller, port = calling(2)
    caller.receive(port, b"", [b"MDPC02", b"\x02", b"echo", b"1"], 2.0)
    caller.take_events()
    assert caller.timer() == 4.5
    caller.tick(4.5)
    assert caller.take_events() == [GivenUp(1, 1, 4.5, (ADDRESS,))]


@pytest.mark.parametrize(
    ("version", "frames"),
    [
        (1, [b""]),
        (1, [b"", b"MDPC01", b"other", b"x"]),
        (1, [b"", b"MDPC01", b"echo"]),
        (1, [b"MDPC02", b"\x03", b"echo", b"x"]),
        (2, [b"MDPC02", b"\x01", b"echo", b"x"]),
        (2, [b"MDPC02", b"\x04", b"echo", b"x"]),
        (2, [b"MDPC02", b"\x03", b"other", b"x"]),
        (2, [b"", b"MDPC01", b"echo", b"x"]),
    ],
)
def test_an_invalid_reply_is_counted_and_dropped(version: int, frames: list[bytes]) -> None:
    caller, port = calling(version)
    caller.receive(port, b"", frames, 1.0)
    assert caller.take_events() == []
    assert caller.counters["undecodable"] == 1
