"""The proxy's behaviour as its peers see it, with time as an argument: routes of requests, and live servers."""

from __future__ import annotations

import pytest

from pubsub.protocol import (
    Configure,
    Get,
    Heartbeat,
    Outcome,
    Put,
    Settings,
    Status,
    Unsubscribe,
    encode,
)
from pubsub.proxy.assignments import TENTATIVE_SECONDS
from pubsub.proxy.replies import Send
from tests.proxy.stage import REMEMBERED, Stage

# Routing and assignment


def test_a_request_for_a_known_topic_goes_to_its_holder_unchanged() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    header, _ = encode(Put("ann", "t", 1, "0" * 16, 1, 0, 0, body=b"!"))
    frames = (b"7-40-0-" + header, b"body")
    stage.core.client_message(b"C", frames, stage.now)
    assert stage.core.replies.take() == [Send(True, b"s1", (b"cC", *frames))]


@pytest.mark.parametrize("ask", [Stage.subscribe, Stage.put])
def test_a_new_topic_is_given_to_the_server_with_the_fewest_topics(ask: object) -> None:
    stage = Stage()
    stage.announce("s1", {"a": "x", "b": "x"})
    stage.announce("s2", {"c": "x"})
    assert [ask(stage, f"new{k}") for k in range(4)] == ["-> s2", "-> s1", "-> s2", "-> s1"]  # type: ignore[operator]


def test_unsubscribe_assigns_a_topic_too_but_get_does_not() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.get("t") == "unknown no_server_holds_this_topic"
    assert stage.outcome(Unsubscribe("ann", "t", 1, 1)) == "-> s1"
    assert stage.get("t") == "-> s1", "the server may have made it by now"


def test_a_question_for_settings_assigns_no_topic_and_a_change_does() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.outcome(Settings("ops", "t")) == "unknown no_server_holds_this_topic"
    assert stage.outcome(Configure("ops", "t", "a" * 16, values=b"{}")) == "-> s1"
    assert stage.outcome(Settings("ops", "t")) == "-> s1"


def test_an_assignment_is_replaced_when_the_server_dies_before_its_announcement() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2")
    assert stage.put("t") == "-> s1"
    stage.sleep(4.0, "s2")
    assert stage.put("t") == "-> s2"


def test_an_unused_assignment_is_forgotten() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.put("t")
    stage.sleep(TENTATIVE_SECONDS + 2, "s1")
    assert stage.core.table.assignments.tentative == {}


def test_a_request_without_any_server_is_refused_at_once() -> None:
    assert Stage().put("t") == "unavailable no_server_sends_heartbeats"


def test_a_topic_beyond_the_limit_is_answered_full() -> None:
    stage = Stage(topics_max=1)
    stage.announce("s1", {"t": "x"})
    assert stage.put("u") == "full topics_max_is_reached"
    assert stage.put("t") == "-> s1"
    assert "topics_max = 1" in stage.log()


# The start-up wait


def test_a_started_proxy_assigns_no_topic_for_one_liveness() -> None:
    stage = Stage(starting=True)
    stage.announce("s1", {"t": "x"})
    assert stage.put("t") == "-> s1", "what has a live holder is served at once"
    for ask in (stage.put, stage.subscribe, stage.get):
        assert ask("new") == "unavailable proxy_starting"
    stage.sleep(2.9, "s1")
    assert stage.put("new") == "unavailable proxy_starting"
    stage.sleep(0.1, "s1")
    assert stage.put("new") == "-> s1"


def test_the_start_up_wait_is_a_setting() -> None:
    stage = Stage(startup_wait_seconds=10.0)
    stage.announce("s1")
    stage.sleep(9.5, "s1")
    assert stage.put("new") == "unavailable proxy_starting"
    stage.sleep(0.5, "s1")
    assert stage.put("new") == "-> s1"


# Dead and returned holders


def test_a_topic_of_a_dead_server_is_unavailable_at_once_and_never_given_to_another() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2")
    stage.sleep(3.5, "s2")
    for ask in (stage.put, stage.subscribe, stage.get):
        assert ask("t") == "unavailable server_s1_sends_no_heartbeats"
    assert "no heartbeat from server s1 for 3.0 s; topics that it alone holds are unavailable: 1" in stage.log()


def test_a_dead_holder_is_remembered_over_a_restart_of_the_proxy() -> None:
    stage = Stage(remembered=REMEMBERED)
    stage.announce("s2")
    assert stage.put("t") == "unavailable server_s1_sends_no_heartbeats"
    assert stage.put("u") == "-> s2"


def test_a_server_that_is_heard_again_gets_requests_again() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(4.0)
    stage.heartbeat("s1")
    assert stage.put("t") == "-> s1"
    stage.sleep(0.5)
    assert "server s1 sends heartbeats again" in stage.log()


def test_an_answer_that_passes_is_a_sign_of_life() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    for _ in range(4):
        stage.sleep(2.0)
        stage.from_server(b"s1", b"cC", Status("s1", Outcome.SUCCESS), 40)
        stage.said()
    assert stage.put("t") == "-> s1"


def test_a_server_that_leaves_is_dead_at_once() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert stage.heartbeat("s1", leaving=1) is None
    assert stage.put("t") == "unavailable server_s1_sends_no_heartbeats"


def test_a_closed_link_is_a_dead_server() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    send = Send(True, b"s1", (b"cC", b"7-40-0-" + encode(Get("a", "t", None, 1, 1))[0]))
    stage.core.undelivered(send, stage.now, gone=True)
    (said,) = stage.said()
    assert isinstance(said.message, Status)
    assert (said.link, said.destination, said.message.outcome) == (b"C", 40, Outcome.UNAVAILABLE)
    assert stage.put("t") == "unavailable server_s1_sends_no_heartbeats"


def test_a_full_queue_is_busy_and_the_server_stays_alive() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    send = Send(True, b"s1", (b"cC", b"7-40-0-" + encode(Get("a", "t", None, 1, 1))[0]))
    stage.core.undelivered(send, stage.now, gone=False)
    (said,) = stage.said()
    assert isinstance(said.message, Status)
    assert said.message.outcome is Outcome.BUSY
    assert stage.put("t") == "-> s1"


def test_a_pause_of_the_proxy_does_not_look_like_the_death_of_its_servers() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(1.0, "s1")
    stage.now += 60.0
    stage.core.tick(stage.now)
    stage.said()
    assert stage.put("t") == "-> s1"
    answer = stage.announce("s1", {}, store="other", link=b"new")
    assert answer is not None
    assert answer.outcome is Outcome.TAKEN


# Heartbeats


def test_an_idle_server_gets_a_heartbeat_each_interval_and_a_busy_one_none() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", {"u": "x"})
    beats = {b"s1": 0, b"s2": 0}
    for _ in range(10):
        for said in stage.sleep(0.5, "s1", "s2"):
            assert isinstance(said.message, Heartbeat)
            assert said.origin == b""
            beats[said.link] += 1
        stage.put("t")
    assert (beats[b"s1"], beats[b"s2"]) == (1, 5)


def test_the_deadline_is_kept_within_a_heartbeat() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.tick(stage.now)
    assert stage.now < stage.core.deadline <= stage.now + 1.0


def test_an_unknown_server_with_a_heartbeat_is_asked_for_its_announcement() -> None:
    stage = Stage()
    answer = stage.heartbeat("s1")
    assert answer is not None
    assert answer.outcome is Outcome.ANNOUNCE
    assert stage.heartbeat("s1", leaving=1) is None


def test_a_heartbeat_under_another_name_is_refused() -> None:
    stage = Stage()
    stage.announce("s1")
    answer = stage.heartbeat("s2", link=b"s1")
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED


def test_stamps_are_forwarded_unless_they_are_far_ahead() -> None:
    stage = Stage()
    near, far = 1_700_000_100_000_000, 1_800_000_000_000_000
    answer = stage.announce("s1", stamp=near)
    assert answer is not None
    assert answer.stamp == near
    answer = stage.announce("s2", stamp=far)
    assert answer is not None
    assert answer.stamp == near
    assert "server s2 has a clock more than an hour ahead" in stage.log()


def test_a_proxy_that_stops_says_so() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.leave(stage.now)
    (said,) = stage.said()
    assert said.message == Heartbeat("p1", 0, 1)
