"""Model 2: all servers at once, the first reply counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.services.core.freelance.shotgun import SILENT_SECONDS, Shotgun
from pubsub.services.core.interface import AccessRefused, Answered, Dial, GivenUp, Patience, Send

A, B = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
ONCE = Patience(2.5, 1)


def shotgun() -> Shotgun:
    caller = Shotgun([A, B])
    caller.start(0.0)
    assert caller.take_sends() == [Dial("server 1", A), Dial("server 2", B)]
    return caller


def test_golden_frames_each_server_gets_one_copy() -> None:
    caller = shotgun()
    caller.call(7, "", (b"random name",), ONCE, 0.0)
    frames = (b"", b"1", b"random name")
    assert caller.take_sends() == [Send("server 1", b"", frames), Send("server 2", b"", frames)]
    caller.receive("server 2", b"", [b"", b"1", b"OK"], 0.1)
    assert caller.take_events() == [Answered(7, (b"OK",))]
    assert caller.timer() is None


def test_the_second_reply_is_dropped() -> None:
    caller = shotgun()
    caller.call(7, "", (b"x",), ONCE, 0.0)
    for port in ("server 1", "server 2", "server 2"):
        caller.receive(port, b"", [b"", b"1", port.encode()], 0.1)
    assert caller.take_events() == [Answered(7, (b"server 1",))]
    assert caller.counters["duplicate"] == 2


def test_a_late_reply_to_an_earlier_request_is_not_given_to_a_later_one() -> None:
    caller = shotgun()
    caller.call(7, "", (b"first",), ONCE, 0.0)
    caller.tick(2.5)
    caller.call(8, "", (b"second",), ONCE, 3.0)
    caller.receive("server 1", b"", [b"", b"1", b"to the first"], 3.1)
    assert caller.take_events() == [GivenUp(7, 1, 2.5, (A, B))]
    caller.receive("server 1", b"", [b"", b"2", b"to the second"], 3.2)
    assert caller.take_events() == [Answered(8, (b"to the second",))]


def test_many_calls_are_under_way_and_answered_in_any_order() -> None:
    caller = shotgun()
    for token in (1, 2, 3):
        caller.call(token, "", (b"%d" % token,), ONCE, 0.0)
    for number in (3, 1, 2):
        caller.receive("server 1", b"", [b"", b"%d" % number, b"to %d" % number], 0.1)
    assert caller.take_events() == [Answered(token, (b"to %d" % token,)) for token in (3, 1, 2)]


def test_an_unanswered_try_is_repeated_under_its_number_and_a_reply_to_any_try_counts() -> None:
    caller = shotgun()
    caller.call(7, "", (b"x",), Patience(1.0, 3), 0.0)
    first = caller.take_sends()
    caller.tick(1.0)
    assert caller.take_sends() == first
    caller.tick(2.0)
    assert caller.timer() == 3.0
    caller.receive("server 1", b"", [b"", b"1", b"OK"], 2.9)
    assert caller.take_events() == [Answered(7, (b"OK",))]


def test_a_cancelled_call_ends_in_silence() -> None:
    caller = shotgun()
    caller.call(7, "", (b"x",), ONCE, 0.0)
    caller.cancel(7, 0.1)
    caller.cancel(7, 0.1)
    caller.receive("server 1", b"", [b"", b"1", b"OK"], 0.2)
    caller.tick(9.0)
    assert caller.take_events() == []


def test_a_server_silent_for_long_is_dialled_anew_before_it_is_asked_again() -> None:
    caller = shotgun()
    caller.call(1, "", (b"x",), ONCE, 0.0)
    caller.receive("server 1", b"", [b"", b"1", b"OK"], 0.1)
    caller.call(2, "", (b"y",), ONCE, SILENT_SECONDS - 0.1)
    caller.take_sends()
    caller.call(3, "", (b"z",), ONCE, SILENT_SECONDS)
    assert [act for act in caller.take_sends() if isinstance(act, Dial)] == [Dial("server 2", B)]
    caller.call(4, "", (b"z",), ONCE, SILENT_SECONDS + 1.0)
    assert not [act for act in caller.take_sends() if isinstance(act, Dial)]


def test_every_call_ends_if_all_servers_refuse_and_none_if_one_does_not() -> None:
    caller = shotgun()
    caller.call(1, "", (b"x",), ONCE, 0.0)
    caller.refused("server 1", "no key", 0.1)
    assert caller.take_events() == []
    caller.refused("server 2", "wrong key", 0.2)
    assert caller.take_events() == [AccessRefused(1, "no key")]
    caller.refused("server 2", "", 0.3)
    caller.call(2, "", (b"x",), ONCE, 0.4)
    caller.tick(2.9)
    assert caller.take_events() == [GivenUp(2, 1, 2.5, (A, B))]


MESSAGE = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"1", b"2", b"3", b"9"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["server 1", "server 2"]), MESSAGE), max_size=25))
def test_no_message_raises_and_each_call_ends_once(messages: list[tuple[str, list[bytes]]]) -> None:
    caller = shotgun()
    for token in (1, 2, 3):
        caller.call(token, "", (b"x",), ONCE, 0.0)
    for port, frames in messages:
        caller.receive(port, b"", frames, 1.0)
    caller.tick(2.5)
    events = caller.take_events()
    assert sorted(event.token for event in events if isinstance(event, Answered | GivenUp)) == [1, 2, 3]
    assert caller.timer() is None
