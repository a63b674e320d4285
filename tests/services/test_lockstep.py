from pubsub.services.core.interface import AccessRefused, Answered, Dial, GivenUp, HangUp, Patience, Send
from pubsub.services.core.lazy import lazy_caller
from pubsub.services.core.lockstep import LANES_MAX
from tests.services.stage import Stage

A, B = "tcp://a:1", "tcp://b:1"
ONCE = Patience(1.0, 1)
PATIENCE = Patience(1.0, 3)


def caller(*addresses: str) -> Stage:
    return Stage(lazy_caller(addresses or (A,)))


def call(stage: Stage, token: int = 1, body: bytes = b"hi", patience: Patience = PATIENCE) -> str:
    """Call; the port of the lane that it took."""
    stage.do("call", token, "echo", (body,), patience)
    return stage.sent()[-1][0]


def test_a_call_takes_its_own_connection_and_the_next_call_reuses_it():
    stage = caller()
    lane = call(stage)
    assert stage.dialled == {lane: A}
    stage.receive(lane, b"", b"HI")
    assert stage.said() == [Answered(1, (b"HI",))]
    assert call(stage, 2) == lane
    assert len(stage.dialled) == 1


def test_an_ended_try_is_repeated_on_a_new_connection_at_the_next_address():
    stage = caller(A, B)
    first = call(stage)
    stage.wait(1.0)
    (second, address), *_ = stage.dialled.items()
    assert (second != first, address) == (True, B)
    assert stage.acts[0] == HangUp(first)
    assert stage.sent() == [(second, b"", (b"", b"hi"))]
    stage.wait(1.0)
    assert list(stage.dialled.values()) == [A]


def test_a_late_reply_is_dropped():
    stage = caller()
    first = call(stage)
    stage.wait(1.0).receive(first, b"", b"late")
    assert stage.said() == []
    assert stage.core.counters["unasked"] == 1


def test_an_unexpected_reply_on_a_lane_is_dropped():
    stage = caller()
    lane = call(stage)
    stage.receive(lane, b"", b"HI").receive(lane, b"", b"again")
    assert len(stage.said()) == 1
    assert stage.core.counters["unasked"] == 1


def test_a_call_is_given_up_after_its_tries():
    stage = caller()
    call(stage)
    stage.wait(2.999)
    assert stage.said() == []
    stage.wait(0.001)
    assert stage.said() == [GivenUp(1, 3, 3.0, (A,))]
    assert (stage.dialled, stage.core.timer()) == ({}, None)


def test_the_next_call_begins_where_the_last_one_was_answered():
    stage = caller(A, B)
    call(stage)
    stage.wait(1.0)
    stage.receive(next(iter(stage.dialled)), b"", b"HI")
    stage.do("cancel", 1)
    lane = call(stage, 2)
    other = call(stage, 3)
    assert (stage.dialled[lane], stage.dialled[other]) == (B, B)


def test_concurrent_calls_beyond_the_lanes_wait_for_one():
    stage = caller()
    lanes = [call(stage, token) for token in range(LANES_MAX)]
    stage.do("call", 100, "echo", (b"waits",), PATIENCE)
    assert (stage.sent(), len(stage.dialled)) == ([], LANES_MAX)
    stage.receive(lanes[5], b"", b"HI")
    assert stage.sent() == [(lanes[5], b"", (b"", b"waits"))]
    stage.do("call", 101, "echo", (b"too",), PATIENCE)
    stage.do("cancel", 0)
    assert stage.sent()[-1][2] == (b"", b"too")


def test_a_call_that_waits_for_a_lane_is_given_up_in_its_time_too():
    stage = caller()
    for token in range(LANES_MAX):
        call(stage, token, patience=Patience(60.0, 1))
    stage.do("call", 100, "echo", (b"waits",), PATIENCE)
    stage.wait(3.0)
    assert stage.said() == [GivenUp(100, 0, 3.0, (A,))]


def test_a_waiting_call_can_be_cancelled():
    stage = caller()
    lanes = [call(stage, token) for token in range(LANES_MAX)]
    stage.do("call", 100, "echo", (b"waits",), PATIENCE).do("cancel", 100)
    stage.receive(lanes[0], b"", b"HI")
    assert stage.sent() == []


def test_a_cancelled_call_leaves_no_connection_with_a_misleading_reply():
    stage = caller()
    lane = call(stage)
    stage.do("cancel", 1)
    assert stage.acts == [HangUp(lane)]
    assert (stage.core.timer(), stage.dialled) == (None, {})
    assert call(stage, 2) != lane
    stage.do("cancel", 7)


def test_a_refused_connection_without_another_address_ends_the_call_at_once():
    stage = caller()
    lane = call(stage)
    stage.do("refused", lane, "no key")
    assert stage.said() == [AccessRefused(1, "no key")]
    assert stage.dialled == {}


def test_a_refused_connection_makes_the_caller_try_the_next_address_at_once():
    stage = caller(A, B)
    lane = call(stage)
    stage.do("refused", lane, "no key")
    (port, address), *_ = stage.dialled.items()
    assert address == B
    stage.do("refused", port, "").do("refused", port, "no key").do("refused", *next(iter(stage.dialled.items())))
    assert isinstance(stage.said()[0], AccessRefused)


def test_a_refused_idle_connection_changes_nothing():
    stage = caller()
    lane = call(stage)
    stage.receive(lane, b"", b"HI").do("refused", lane, "no key").do("refused", "another", "no key")
    assert stage.said() == [Answered(1, (b"HI",))]
    assert stage.core.counters["refused"] == 2


def test_an_invalid_reply_is_counted_and_the_call_keeps_waiting():
    stage = caller()
    lane = call(stage)
    stage.receive(lane, b"x").receive(lane, b"x", b"HI").receive(lane, b"")
    assert stage.core.counters["undecodable"] == 3
    stage.receive(lane, b"", b"HI")
    assert stage.said() == [Answered(1, (b"HI",))]


def test_socket_operations_are_in_order():
    stage = caller()
    stage.do("call", 1, "echo", (b"hi",), ONCE)
    dial, send = stage.acts
    assert isinstance(dial, Dial)
    assert send == Send(dial.port, b"", (b"", b"hi"))
