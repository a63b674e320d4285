"""A server's links to its proxies, with time as an argument."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from pubsub.base.clock import Stamps
from pubsub.protocol import Heartbeat, Outcome, Periodic, Status
from pubsub.server.ownership.proxies import RECONNECT_SECONDS_MAX, Proxies
from pubsub.server.state.replies import LISTENER
from tests.server.stage import Stage, put, settings

HELD = {"t": "a" * 16}


@pytest.fixture
def proxies() -> Proxies:
    return Proxies(settings(Path("unused")), "5" * 16, 7, Stamps(1.0, 0.0), 0.0)


def sent(proxies: Proxies, now: float) -> list[tuple[int | str, str]]:
    proxies.out.clear()
    proxies.tick(HELD, 3, now)
    return [(out.link, type(out.message).__name__) for out in proxies.out]


def hear(proxies: Proxies, now: float) -> None:
    for proxy in (0, 1):
        proxies.received(proxy, now)


def test_everything_is_announced_on_connect_and_every_five_seconds(proxies: Proxies) -> None:
    assert sent(proxies, 0.0) == [(0, "Periodic"), (1, "Periodic")]
    message = proxies.out[0].message
    assert isinstance(message, Periodic)
    assert (message.incarnation, message.change, message.partial, message.topics) == (7, 3, 0, HELD)
    assert message.proxies == "tcp://127.0.0.1:1,tcp://127.0.0.1:2"
    hear(proxies, 4.0)
    assert all(kind == "Heartbeat" for _, kind in sent(proxies, 4.9))
    assert sent(proxies, 5.0) == [(0, "Periodic"), (1, "Periodic")]


def test_an_idle_link_carries_heartbeats(proxies: Proxies) -> None:
    sent(proxies, 0.0)
    hear(proxies, 0.5)
    assert sent(proxies, 0.9) == []
    proxies.sent(0, 0.9)
    assert sent(proxies, 1.0) == [(1, "Heartbeat")]
    assert proxies.deadline() == pytest.approx(1.9)


def test_a_change_names_the_previous_announcement(proxies: Proxies) -> None:
    proxies.announce({"u": "b" * 16}, 4, 0.0)
    assert proxies.out == []  # all of it is still to come
    sent(proxies, 0.0)
    proxies.out.clear()
    proxies.announce({"u": "b" * 16}, 4, 0.1)
    proxies.announce({"t": ""}, 5, 0.2)
    changes = [
        (out.link, out.message.change, out.message.previous) for out in proxies.out if isinstance(out.message, Periodic)
    ]
    assert changes == [(0, 4, 3), (1, 4, 3), (0, 5, 4), (1, 5, 4)]


def test_a_proxy_that_does_not_know_the_server_gets_a_full_announcement_at_once(proxies: Proxies) -> None:
    sent(proxies, 0.0)
    proxies.answered(1, Status("p", Outcome.ANNOUNCE), 1.2)
    assert (1, "Periodic") in sent(proxies, 1.2)


def test_a_silent_proxy_gets_a_new_socket_with_back_off(proxies: Proxies) -> None:
    at = []
    for tenth in range(1, 1200):
        proxies.received(1, tenth / 10)
        sent(proxies, tenth / 10)
        at += [tenth / 10 for proxy in proxies.reconnect if proxy == 0]
        assert 1 not in proxies.reconnect
        proxies.reconnect.clear()
    assert at[:3] == [6.0, 18.0, 42.0]
    assert max(after - before for before, after in pairwise(at)) <= RECONNECT_SECONDS_MAX + 0.1
    hear(proxies, 120.0)
    sent(proxies, 125.9)
    assert proxies.reconnect == []
    sent(proxies, 126.0)
    assert proxies.reconnect == [0, 1]


def test_a_new_socket_gets_a_full_announcement(stage: Stage) -> None:
    stage.ask(put("t", 1))
    stage.periodics()
    for _ in range(100):
        stage.now += 0.1
        stage.core.proxies.received(1, stage.now)
        stage.loop()
        if stage.core.proxies.reconnect:
            break
    assert stage.core.proxies.reconnect == [0]
    told = [out.message for out in stage.sent if out.link == 0 and isinstance(out.message, Periodic)]
    assert [(message.partial, set(message.topics or {})) for message in told][-1] == (0, {"t"})


@pytest.mark.parametrize("outcome", [Outcome.TAKEN, Outcome.STALE])
def test_a_taken_id_is_requested_again_and_given_up_in_the_end(proxies: Proxies, outcome: Outcome) -> None:
    sent(proxies, 0.0)
    for second in range(9):
        proxies.answered(0, Status("p", outcome, reason="id"), float(second))
        assert proxies.taken(float(second)) == ""
        assert (0, "Periodic") in sent(proxies, second + 1.0)
    proxies.answered(0, Status("p", outcome), 9.0)
    assert proxies.taken(9.0) == str(outcome)


def test_a_success_meanwhile_restarts_the_wait(proxies: Proxies) -> None:
    proxies.answered(0, Status("p", Outcome.TAKEN), 0.0)
    proxies.answered(0, Status("p", Outcome.SUCCESS, change=3), 5.0)
    proxies.answered(0, Status("p", Outcome.TAKEN), 6.0)
    assert proxies.taken(14.0) == ""
    assert proxies.taken(15.0) == "taken"
    assert proxies.all[0].confirmed == 3


def test_reverted_announcements_are_withdrawn_and_made_anew(proxies: Proxies) -> None:
    sent(proxies, 0.0)
    proxies.announce({"u": "b" * 16}, 4, 0.1)
    proxies.ask_owners({"t": ""}, 17, 0.1)
    proxies.withdraw_announcements()
    assert [type(out.message).__name__ for out in proxies.out] == ["Owners", "Owners"]
    assert sent(proxies, 0.1) == [(0, "Periodic"), (1, "Periodic")]


def test_every_proxy_learns_of_a_leave(proxies: Proxies) -> None:
    proxies.leave(1.0)
    said = [out.message for out in proxies.out]
    assert [isinstance(message, Heartbeat) and message.leaving for message in said] == [1, 1]


def test_other_servers_are_no_signs_of_life_of_a_proxy(proxies: Proxies) -> None:
    for link in (LISTENER, "tcp://127.0.0.1:9"):
        proxies.received(link, 50.0)
        proxies.sent(link, 50.0)
    assert not any(proxy.liveness.alive(50.0) for proxy in proxies.all)


def test_a_server_is_ready_when_a_proxy_has_accepted_it_or_none_answers(proxies: Proxies) -> None:
    assert not proxies.is_ready(0.5)
    assert proxies.is_ready(1.0)
    proxies.answered(0, Status("p", Outcome.TAKEN, reason="id"), 0.5)
    assert not proxies.is_ready(60.0)
    assert proxies.refusal() == "id"
    proxies.answered(0, Status("p", Outcome.SUCCESS, change=3), 0.6)
    assert proxies.is_ready(0.6)


def test_a_full_topic_table_accepts_a_server_but_a_full_server_table_does_not(
    proxies: Proxies,
) -> None:
    proxies.answered(0, Status("p", Outcome.TAKEN), 0.0)
    proxies.answered(0, Status("p", Outcome.FULL, reason="servers_max_is_reached"), 4.0)
    assert not proxies.answered_once
    proxies.answered(0, Status("p", Outcome.FULL, reason="topics_max_is_reached", change=3), 5.0)
    assert proxies.answered_once
    assert proxies.all[0].confirmed == -1, "to whom a topic was given may have found no room"
    proxies.answered(0, Status("p", Outcome.TAKEN), 100.0)
    assert proxies.taken(100.0) == ""
