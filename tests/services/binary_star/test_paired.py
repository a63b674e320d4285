"""A service as one of a pair: the messages that reach its core, their times, and its sent messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.services.core.binary_star.paired import PEER, STATE, Paired, PairedServer
from pubsub.services.core.binary_star.states import Role, State
from pubsub.services.core.interface import Asked, BaseCore, Dial, HangUp, Noticed, Requested, Send
from pubsub.services.core.lazy import ReplyServer
from tests.services.stage import Stage


class Broker(BaseCore):
    """A service that hears workers (`w…`) and clients, dials somebody, and has a timer."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Broker.made += 1
        self.heard: list[bytes] = []
        self.due: float | None = None
        self.undelivered_count = 0

    def start(self, now: float) -> None:
        self.due = now + 1.0
        self._sends.append(Dial("elsewhere", "tcp://127.0.0.1:9"))

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        self.heard.append(frames[0])
        self._sends.append(Send(port, peer, (b"re: " + frames[0],)))

    def tick(self, now: float) -> None:
        self.due = now + 1.0
        self._sends.append(Send("front", b"worker", (b"heartbeat",)))

    def timer(self) -> float | None:
        return self.due

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        return None if frames[0] == b"w" else Asked("serve" if frames[0].startswith(b"w") else "call", "x")

    def reads(self, port: str) -> bool:
        return False

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        self.undelivered_count += 1

    def leave(self, now: float) -> None:
        self._sends.append(Send("front", b"worker", (b"disconnect",)))


def on_stage(role: Role = Role.PRIMARY, core: Any = None) -> Stage:
    return Stage(core or Paired(role, Broker))


def active(core: Any = None) -> Stage:
    """A primary that a client has made active, at 102 s."""
    stage = on_stage(core=core).wait(2.0)
    stage.receive("front", *(b"", b"c1"), peer=b"client")
    assert stage.core.state is State.ACTIVE
    return stage


def words(stage: Stage) -> list[bytes]:
    return [frames[0] for port, _, frames in stage.sent() if port == STATE]


def answers(stage: Stage) -> list[tuple[bytes, ...]]:
    return [frames for port, _, frames in stage.sent() if port != STATE]


def test_the_frames_of_states_are_golden() -> None:
    stage = on_stage()
    assert stage.sent() == [(STATE, b"", (b"1",))]
    stage.receive(PEER, b"3")
    assert stage.sent() == [(STATE, b"", (b"4",))]
    stage.wait(1.0)
    assert words(stage) == [b"4", b"4"]
    assert Stage(Paired(Role.BACKUP, Broker)).sent() == [(STATE, b"", (b"2",))]


def test_an_inactive_server_reads_everything_and_forwards_nothing() -> None:
    stage = on_stage()
    assert stage.core.reads("front")
    stage.receive("front", b"c1", peer=b"client").wait(1.0).receive("front", b"c1", peer=b"client")
    assert answers(stage) == []
    assert stage.core.counters["not_active"] == 2
    assert stage.dialled == {}


def test_the_request_that_makes_a_server_active_is_answered() -> None:
    stage = on_stage().wait(2.0)
    stage.sent()
    stage.receive("front", b"c1", peer=b"client")
    assert stage.sent() == [(STATE, b"", (b"3",)), ("front", b"client", (b"re: c1",))]
    assert stage.dialled == {"elsewhere": "tcp://127.0.0.1:9"}
    assert not stage.core.reads("front"), "now the service says what is read"


@pytest.mark.parametrize("message", [b"w", b"wready"], ids=["heartbeat", "READY"])
def test_a_message_of_a_worker_is_no_vote(message: bytes) -> None:
    stage = on_stage().wait(5.0).receive("front", message, peer=b"worker")
    assert stage.core.state is State.PRIMARY
    stage.receive("front", b"c1", peer=b"client").receive("front", message, peer=b"worker")
    assert answers(stage) == [(b"re: c1",), (b"re: " + message,)]


def test_the_service_has_its_timer_while_the_server_is_active() -> None:
    stage = active()
    stage.sent()
    stage.wait(1.0)
    assert answers(stage) == [(b"heartbeat",)]


def test_a_server_that_is_not_active_any_more_says_good_bye_and_begins_with_nothing() -> None:
    stage = active()
    stage.sent()
    before = Broker.made
    stage.receive(PEER, b"3")
    assert stage.sent() == [(STATE, b"", (b"1",)), ("front", b"worker", (b"disconnect",))]
    assert stage.dialled == {}
    assert stage.core.reads("front")
    assert Broker.made == before + 1
    stage.wait(3.0)
    assert answers(stage) == []
    stage.receive("front", b"c2", peer=b"client")
    assert stage.core.counters["terms"] == 2
    assert answers(stage) == [(b"re: c2",)]


def test_a_server_that_stood_still_answers_no_request_that_waited_for_it() -> None:
    stage = active()
    stage.sent()
    stage.now += 1.6
    stage.receive("front", b"late", peer=b"client")
    assert stage.sent() == [(STATE, b"", (b"1",)), ("front", b"worker", (b"disconnect",))]
    (event,) = [event for event in stage.said() if isinstance(event, Noticed) and event.warning]
    assert "was paused" in event.text


def test_unsent_messages_of_a_server_that_stood_still_are_dropped() -> None:
    core = Paired(Role.PRIMARY, Broker)
    stage = active(core)
    stage.sent()
    core.receive("front", b"client", [b"c2"], stage.now)
    core.confirm(stage.now + 1.0)
    assert [act.frames for act in core.take_sends() if isinstance(act, Send)] == [(b"re: c2",)]
    core.tick(stage.now + 1.0)
    core.take_sends()
    core.receive("front", b"client", [b"c3"], stage.now + 1.1)
    core.confirm(stage.now + 9.0)
    acts = core.take_sends()
    assert acts == [
        Send(STATE, b"", (b"1",)),
        Send("front", b"worker", (b"disconnect",)),
        HangUp("elsewhere"),
    ]


def test_an_outdated_unsent_state_is_not_sent() -> None:
    core = Paired(Role.BACKUP, Broker)
    core.start(0.0)
    core.receive(PEER, b"", [b"3"], 0.1)
    core.receive(PEER, b"", [b"4"], 0.2)
    assert core.state is State.LISTENING
    assert [act.frames[0] for act in core.take_sends() if isinstance(act, Send)] == []


def test_an_undelivered_message_is_reported_only_to_the_service_of_this_term() -> None:
    core = Paired(Role.PRIMARY, Broker)
    stage = active(core)
    core.undelivered(Send("front", b"client", (b"x",)), stage.now, gone=True)
    core.undelivered(Send(STATE, b"", (b"3",)), stage.now, gone=False)
    assert core._service.undelivered_count == 1


def test_the_required_right_of_a_message_is_known_in_any_state() -> None:
    stage = on_stage()
    assert stage.core.asked("front", [b"c1"]) == Asked("call", "x")
    assert stage.core.asked("front", [b"wready"]) == Asked("serve", "x")


def test_an_ending_server_says_good_bye_only_if_it_is_active() -> None:
    stage = on_stage()
    stage.sent()
    assert answers(stage.do("leave")) == []
    stage = active()
    stage.sent()
    assert answers(stage.do("leave")) == [(b"disconnect",)]


def test_a_change_of_state_is_logged() -> None:
    stage = active()
    texts = [event.text for event in stage.said() if isinstance(event, Noticed)]
    assert texts == ["the primary is now: active (a client asked, and the other is silent)"]


# Servers whose requests are done by whoever runs them


def serving() -> Stage:
    return on_stage(core=PairedServer(Role.PRIMARY, ReplyServer)).wait(2.0)


def asked_for(stage: Stage, body: bytes) -> Requested:
    stage.receive("requests", b"", body, peer=b"client")
    (event,) = [event for event in stage.said() if isinstance(event, Requested)]
    return event


def test_a_request_is_answered_by_its_token() -> None:
    stage = serving()
    first, second = asked_for(stage, b"a"), asked_for(stage, b"b")
    stage.sent()
    stage.do("reply_part", second.token, (b"part",)).do("reply", second.token, (b"to b",))
    stage.do("reply", first.token, (b"to a",)).do("reply", first.token, (b"again",))
    assert answers(stage) == [(b"", b"part", b"to b"), (b"", b"to a")]


def test_a_request_of_an_earlier_term_is_never_answered_in_a_later_one() -> None:
    stage = serving()
    old = asked_for(stage, b"old")
    stage.receive(PEER, b"3").wait(2.0)
    new = asked_for(stage, b"new")
    stage.sent()
    stage.do("reply", old.token, (b"to the old one",)).do("fail", old.token, "no").do("reply_part", old.token, (b"x",))
    assert answers(stage) == []
    stage.do("reply", new.token, (b"to the new one",))
    assert answers(stage) == [(b"", b"to the new one")]


def test_a_reply_that_took_longer_than_the_stand_still_time_is_dropped() -> None:
    stage = serving()
    request = asked_for(stage, b"a")
    stage.sent()
    stage.now += 2.0
    stage.do("reply", request.token, (b"late",))
    assert answers(stage) == []
    assert stage.core.state is State.PRIMARY


def test_a_reply_that_takes_long_while_the_loop_turns_is_sent() -> None:
    stage = serving()
    request = asked_for(stage, b"a")
    stage.wait(60.0)
    stage.sent()
    stage.do("reply", request.token, (b"done",))
    assert answers(stage) == [(b"", b"done")]


def test_a_handler_that_failed_sends_nothing() -> None:
    stage = serving()
    request = asked_for(stage, b"a")
    stage.sent()
    stage.do("fail", request.token, "broken").do("reply", request.token, (b"x",))
    assert answers(stage) == []


FRAMES = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"1", b"2", b"3", b"4", b"5"]), min_size=1, max_size=3)
STEP = st.tuples(st.sampled_from([PEER, "requests"]), FRAMES, st.floats(0.0, 2.0))


@given(st.sampled_from(Role), st.lists(STEP, max_size=40))
def test_no_message_raises_and_only_an_active_server_answers(
    role: Role, steps: list[tuple[str, list[bytes], float]]
) -> None:
    core = PairedServer(role, ReplyServer)
    core.start(0.0)
    now = 0.0
    for port, frames, pause in steps:
        now += pause
        core.receive(port, b"client", frames, now)
        for event in core.take_events():
            if isinstance(event, Requested):
                assert core.state is State.ACTIVE
                core.reply(event.token, (b"OK",), now)
        core.confirm(now)
        for act in core.take_sends():
            if isinstance(act, Send) and act.port != STATE:
                assert core.state is State.ACTIVE
            elif isinstance(act, Send):
                assert act.frames == (b"%d" % (core.state.word or 0),)
        core.tick(now)
