"""Model 3: the present servers, and the target of a call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.services.core.freelance.tracked import PING_SECONDS, SERVER_TTL_SECONDS, Tracked
from pubsub.services.core.interface import AccessRefused, Act, Answered, Dial, GivenUp, Patience, Send

A, B = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
FIRST, SECOND = "server 1", "server 2"
USUAL = Patience(3.0, 1)


def tracked(*there: str) -> Tracked:
    """A caller of two servers of which some have answered its first ping, at 0 s."""
    caller = Tracked([A, B])
    caller.start(0.0)
    caller.take_sends()
    for port in there:
        caller.receive(port, b"", [b"PONG"], 0.0)
    return caller


def asked(acts: list[Act]) -> list[tuple[str, bytes]]:
    """Where requests went, and what they were."""
    return [(act.port, act.frames[-1]) for act in acts if isinstance(act, Send) and len(act.frames) > 1]


def test_golden_frames() -> None:
    caller = Tracked([A])
    caller.start(0.0)
    assert caller.take_sends() == [Dial(FIRST, A), Send(FIRST, b"", (b"PING",))]
    caller.receive(FIRST, b"", [b"PONG"], 0.1)
    caller.call(7, "", (b"random name",), USUAL, 0.2)
    assert caller.take_sends() == [Send(FIRST, b"", (b"1", b"random name"))]
    caller.receive(FIRST, b"", [b"1", b"OK"], 0.3)
    assert caller.take_events() == [Answered(7, (b"OK",))]


def test_a_reply_with_an_empty_frame_is_a_reply_too() -> None:
    caller = tracked(FIRST)
    caller.call(7, "", (b"x",), USUAL, 0.0)
    caller.receive(FIRST, b"", [b"1", b"", b"OK"], 0.1)
    assert caller.take_events() == [Answered(7, (b"OK",))]


def test_a_call_goes_to_the_first_present_server() -> None:
    caller = tracked(SECOND)
    caller.call(1, "", (b"x",), USUAL, 0.0)
    assert asked(caller.take_sends()) == [(SECOND, b"x")]
    caller.receive(FIRST, b"", [b"PONG"], 0.1)
    caller.call(2, "", (b"y",), USUAL, 0.2)
    assert asked(caller.take_sends()) == [(FIRST, b"y")]


def test_a_call_waits_while_no_server_is_present() -> None:
    caller = tracked()
    caller.call(1, "", (b"x",), USUAL, 0.0)
    assert asked(caller.take_sends()) == []
    caller.receive(SECOND, b"", [b"PONG"], 2.9)
    assert asked(caller.take_sends()) == [(SECOND, b"x")]
    caller.tick(3.0)
    assert caller.take_events() == [GivenUp(1, 1, 3.0, (A, B))]


def test_an_unanswered_try_goes_to_the_next_server_under_its_number() -> None:
    caller = tracked(FIRST, SECOND)
    caller.call(1, "", (b"x",), Patience(1.0, 3), 0.0)
    for now in (1.0, 2.0):
        caller.tick(now)
    sent = [act for act in caller.take_sends() if isinstance(act, Send) and len(act.frames) > 1]
    assert sent == [Send(port, b"", (b"1", b"x")) for port in (FIRST, SECOND, FIRST)]
    caller.receive(SECOND, b"", [b"1", b"OK"], 2.1)
    caller.receive(FIRST, b"", [b"1", b"OK"], 2.2)
    assert caller.take_events() == [Answered(1, (b"OK",))]
    assert caller.counters["duplicate"] == 1


def test_a_server_whose_connection_ends_is_gone_and_its_calls_move_at_once() -> None:
    caller = tracked(FIRST, SECOND)
    caller.call(1, "", (b"x",), USUAL, 0.0)
    caller.take_sends()
    caller.ended(FIRST, 1.0)
    acts = caller.take_sends()
    assert acts[:2] == [Dial(FIRST, A), Send(FIRST, b"", (b"PING",))]
    assert asked(acts) == [(SECOND, b"x")]
    caller.ended(FIRST, 1.1)
    assert caller.take_sends() == [], "that it has ended is known"
    caller.receive(FIRST, b"", [b"PONG"], 1.2)
    caller.call(2, "", (b"y",), USUAL, 1.3)
    assert asked(caller.take_sends()) == [(FIRST, b"y")]


def test_a_silent_server_is_pinged_and_in_the_end_counts_as_gone() -> None:
    caller = tracked(FIRST)
    caller.receive(SECOND, b"", [b"PONG"], 5.0)
    caller.take_sends()
    pings = []
    for now in (1.9, 2.0, 3.9, 4.0, 5.9):
        caller.tick(now)
        pings += [(now, act.port) for act in caller.take_sends() if isinstance(act, Send)]
    assert pings == [(2.0, FIRST), (4.0, FIRST)]
    caller.call(1, "", (b"x",), USUAL, 5.9)
    assert asked(caller.take_sends()) == [(FIRST, b"x")]
    caller.tick(SERVER_TTL_SECONDS)
    acts = caller.take_sends()
    assert Dial(FIRST, A) in acts
    assert asked(acts) == [(SECOND, b"x")]
    assert caller.counters["lost"] == 1


def test_an_absent_server_is_dialled_anew_once_in_its_time_to_live() -> None:
    caller = tracked(SECOND)
    dials = []
    for tenth in range(1, 250):
        now = tenth / 10
        caller.receive(SECOND, b"", [b"PONG"], now)
        caller.tick(now)
        dials += [now for act in caller.take_sends() if isinstance(act, Dial)]
    assert dials == [6.0, 12.0, 18.0, 24.0]


def test_a_reply_is_a_sign_of_life_like_a_pong() -> None:
    caller = tracked(FIRST)
    caller.call(1, "", (b"x",), USUAL, 0.0)
    caller.receive(FIRST, b"", [b"1", b"OK"], 1.5)
    caller.take_sends()
    caller.tick(PING_SECONDS)
    assert all(act.port == SECOND for act in caller.take_sends() if isinstance(act, Send))


def test_an_invalid_message_is_no_sign_of_life() -> None:
    caller = tracked()
    for frames in ([b"7"], [b"PONG", b""], [b"99", b"OK"], [b"x", b"OK"], [b""]):
        caller.receive(FIRST, b"", frames, 0.1)
    caller.call(1, "", (b"x",), USUAL, 0.2)
    assert asked(caller.take_sends()) == []


def test_a_late_reply_to_an_earlier_request_is_not_given_to_a_later_one() -> None:
    caller = tracked(FIRST)
    caller.call(7, "", (b"first",), USUAL, 0.0)
    caller.tick(3.0)
    assert caller.take_events() == [GivenUp(7, 1, 3.0, (A, B))]
    caller.call(8, "", (b"second",), USUAL, 3.1)
    caller.receive(FIRST, b"", [b"1", b"to the first"], 3.2)
    assert caller.take_events() == []
    caller.receive(FIRST, b"", [b"2", b"to the second"], 3.3)
    assert caller.take_events() == [Answered(8, (b"to the second",))]


def test_a_cancelled_call_ends_in_silence() -> None:
    caller = tracked(FIRST)
    caller.call(7, "", (b"x",), USUAL, 0.0)
    caller.cancel(7, 0.1)
    caller.receive(FIRST, b"", [b"1", b"OK"], 0.2)
    caller.tick(9.0)
    assert caller.take_events() == []


def test_every_call_ends_if_all_servers_refuse() -> None:
    caller = tracked()
    caller.call(1, "", (b"x",), USUAL, 0.0)
    caller.refused(FIRST, "no key", 0.1)
    assert caller.take_events() == []
    caller.refused(SECOND, "wrong key", 0.1)
    assert caller.take_events() == [AccessRefused(1, "no key")]


MESSAGE = st.lists(
    st.binary(max_size=3) | st.sampled_from([b"", b"1", b"2", b"3", b"9", b"PONG", b"PING"]), min_size=1, max_size=4
)
STEP = st.tuples(st.sampled_from([FIRST, SECOND]), MESSAGE | st.none(), st.floats(0.0, 1.0))


@given(st.lists(STEP, max_size=30))
def test_each_call_ends_once_in_its_time_with_any_messages(
    steps: list[tuple[str, list[bytes] | None, float]],
) -> None:
    caller = tracked()
    now = 0.0
    for token in (1, 2, 3):
        caller.call(token, "", (b"x",), Patience(1.5, 2), now)
    for port, frames, pause in steps:
        now += pause
        if frames is None:
            caller.ended(port, now)
        else:
            caller.receive(port, b"", frames, now)
        caller.tick(now)
    caller.tick(max(now, 3.0))
    events = caller.take_events()
    assert sorted(event.token for event in events if isinstance(event, Answered | GivenUp)) == [1, 2, 3]
    assert all(event.seconds <= 3.0 + 1.0 for event in events if isinstance(event, GivenUp))
