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
def links() -> Proxies:
    return Proxies(settings(Path("unused")), "5" * 16, 7, Stamps(1.0, 0.0), 0.0)


def sent(links: Proxies, now: float) -> list[tuple[int | str, str]]:
    links.out.clear()
    links.tick(HELD, 3, now)
    return [(out.link, type(out.message).__name__) for out in links.out]


def hear(links: Proxies, now: float) -> None:
    for proxy in (0, 1):
        links.heard(proxy, now)


def test_everything_is_announced_on_connect_and_every_five_seconds(links: Proxies) -> None:
    assert sent(links, 0.0) == [(0, "Periodic"), (1, "Periodic")]
    message = links.out[0].message
    assert isinstance(message, Periodic)
    assert (message.incarnation, message.change, message.partial, message.topics) == (7, 3, 0, HELD)
    assert message.proxies == "tcp://127.0.0.1:1,tcp://127.0.0.1:2"
    hear(links, 4.0)
    assert all(kind == "Heartbeat" for _, kind in sent(links, 4.9))
    assert sent(links, 5.0) == [(0, "Periodic"), (1, "Periodic")]


def test_an_idle_link_carries_heartbeats(links: Proxies) -> None:
    sent(links, 0.0)
    hear(links, 0.5)
    assert sent(links, 0.9) == []
    links.sent(0, 0.9)
    assert sent(links, 1.0) == [(1, "Heartbeat")]
    assert links.deadline() == pytest.approx(1.9)


def test_what_changed_names_the_announcement_before_it(links: Proxies) -> None:
    links.announce({"u": "b" * 16}, 4, 0.0)
    assert links.out == []  # all of it is still to come
    sent(links, 0.0)
    links.out.clear()
    links.announce({"u": "b" * 16}, 4, 0.1)
    links.announce({"t": ""}, 5, 0.2)
    changes = [
        (out.link, out.message.change, out.message.previous) for out in links.out if isinstance(out.message, Periodic)
    ]
    assert changes == [(0, 4, 3), (1, 4, 3), (0, 5, 4), (1, 5, 4)]


def test_a_proxy_that_does_not_know_us_is_told_everything_at_once(links: Proxies) -> None:
    sent(links, 0.0)
    links.answered(1, Status("p", Outcome.ANNOUNCE), 1.2)
    assert (1, "Periodic") in sent(links, 1.2)


def test_a_silent_proxy_gets_a_new_socket_with_back_off(links: Proxies) -> None:
    at = []
    for tenth in range(1, 1200):
        links.heard(1, tenth / 10)
        sent(links, tenth / 10)
        at += [tenth / 10 for proxy in links.reconnect if proxy == 0]
        assert 1 not in links.reconnect
        links.reconnect.clear()
    assert at[:3] == [6.0, 18.0, 42.0]
    assert max(after - before for before, after in pairwise(at)) <= RECONNECT_SECONDS_MAX + 0.1
    hear(links, 120.0)
    sent(links, 125.9)
    assert links.reconnect == []
    sent(links, 126.0)
    assert links.reconnect == [0, 1]


def test_a_new_socket_is_told_everything_that_is_held(stage: Stage) -> None:
    stage.ask(put("t", 1))
    stage.periodics()
    for _ in range(100):
        stage.now += 0.1
        stage.core.proxies.heard(1, stage.now)
        stage.loop()
        if stage.core.proxies.reconnect:
            break
    assert stage.core.proxies.reconnect == [0]
    told = [out.message for out in stage.sent if out.link == 0 and isinstance(out.message, Periodic)]
    assert [(message.partial, set(message.topics or {})) for message in told][-1] == (0, {"t"})


@pytest.mark.parametrize("outcome", [Outcome.TAKEN, Outcome.STALE])
def test_an_id_that_is_taken_is_asked_for_again_and_given_up_in_the_end(links: Proxies, outcome: Outcome) -> None:
    sent(links, 0.0)
    for second in range(9):
        links.answered(0, Status("p", outcome, reason="id"), float(second))
        assert links.taken(float(second)) == ""
        assert (0, "Periodic") in sent(links, second + 1.0)
    links.answered(0, Status("p", outcome), 9.0)
    assert links.taken(9.0) == str(outcome)


def test_a_success_in_between_begins_the_wait_anew(links: Proxies) -> None:
    links.answered(0, Status("p", Outcome.TAKEN), 0.0)
    links.answered(0, Status("p", Outcome.SUCCESS, change=3), 5.0)
    links.answered(0, Status("p", Outcome.TAKEN), 6.0)
    assert links.taken(14.0) == ""
    assert links.taken(15.0) == "taken"
    assert links.links[0].confirmed == 3


def test_announcements_that_did_not_come_to_be_are_withdrawn_and_made_anew(links: Proxies) -> None:
    sent(links, 0.0)
    links.announce({"u": "b" * 16}, 4, 0.1)
    links.ask_whole({"t": ""}, 17, 0.1)
    links.withdraw_announcements()
    assert [type(out.message).__name__ for out in links.out] == ["Whole", "Whole"]
    assert sent(links, 0.1) == [(0, "Periodic"), (1, "Periodic")]


def test_leaving_is_said_to_everybody(links: Proxies) -> None:
    links.leave(1.0)
    said = [out.message for out in links.out]
    assert [isinstance(message, Heartbeat) and message.leaving for message in said] == [1, 1]


def test_other_servers_are_no_signs_of_life_of_a_proxy(links: Proxies) -> None:
    for link in (LISTENER, "tcp://127.0.0.1:9"):
        links.heard(link, 50.0)
        links.sent(link, 50.0)
    assert not any(link.liveness.alive(50.0) for link in links.links)


def test_a_server_is_ready_when_a_proxy_has_taken_it_over_or_none_answers(links: Proxies) -> None:
    assert not links.is_ready(0.5)
    assert links.is_ready(1.0)
    links.answered(0, Status("p", Outcome.TAKEN, reason="id"), 0.5)
    assert not links.is_ready(60.0)
    assert links.refusal() == "id"
    links.answered(0, Status("p", Outcome.SUCCESS, change=3), 0.6)
    assert links.is_ready(0.6)
