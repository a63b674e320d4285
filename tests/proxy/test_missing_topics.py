"""A proxy that creates no topic by itself: what it refuses, what it lets wait, and the name that it suggests.

The rules are those of docs/explanation/topics.md, U2 and U3.
"""

from __future__ import annotations

import pytest

from pubsub.protocol import Configure, Message, Publish, Put, Stage, Status
from pubsub.protocol.topic_objects import NO_SUCH_TOPIC, Purge
from pubsub.proxy.missing_topics import LOOKED_UP_MAX, refusal
from tests.proxy.stage import Stage as Proxy

SINK = "0123456789abcdef"
REFUSED = f"denied {NO_SUCH_TOPIC}"
CREATE = Configure("ops", "t", "a" * 16, create=1, values=b"{}")
CREATING: tuple[Message, ...] = (
    Put("ann", "t", 1, SINK, 1, 0, 0),
    Stage("out", "t", 0, SINK, "0.a", 0, 1, 0, body=b"x"),
    Publish("out", "t", 0, SINK, {"0.a": 1}),
    Configure("ops", "t", "a" * 16, values=b"{}"),
)


def strict(*servers: str, **changed: bool) -> Proxy:
    proxy = Proxy(topics_auto=False, **changed)
    for server in servers:
        proxy.announce(server, {f"of-{server}": server})
    return proxy


def sentence(proxy: Proxy, topic: str) -> str:
    (said,) = proxy.request(Put("ann", topic, 1, SINK, 1, 0, 0))
    assert isinstance(said.message, Status)
    return bytes(said.message.body).decode()


@pytest.mark.parametrize("message", CREATING, ids=lambda message: type(message).__name__)
def test_a_request_that_would_create_a_topic_is_refused(message: Message) -> None:
    proxy = strict("s1", "s2")
    assert proxy.outcome(message) == REFUSED
    assert proxy.core.counters["missing_topics_refused"] == 1
    assert not proxy.core.table.assignments.tentative


def test_a_topic_that_exists_is_served_and_one_of_a_service_is_created() -> None:
    proxy = strict("s1", "s2")
    assert proxy.put("of-s2") == "-> s2"
    assert proxy.put("$calls.echo").startswith("-> ")


def test_an_operator_creates_a_topic_and_requests_follow_it_to_that_server() -> None:
    proxy = strict("s1", "s2")
    assert proxy.outcome(CREATE) == "-> s1"
    assert proxy.put("t") == "-> s1"
    proxy.announce("s1", {"of-s1": "s1", "t": "t"}, change=2)
    assert proxy.put("t") == "-> s1"


def test_a_topic_to_purge_is_unknown_and_not_created() -> None:
    proxy = strict("s1")
    assert proxy.outcome(Purge("ops", "t")) == "unknown no_server_holds_this_topic"


def test_a_proxy_that_has_just_started_refuses_nothing() -> None:
    proxy = Proxy(topics_auto=False, starting=True)
    proxy.announce("s1")
    assert proxy.put("t").startswith("unavailable ")
    proxy.sleep(10, "s1")
    assert proxy.put("t") == REFUSED


def test_while_a_server_is_silent_its_unknown_topics_wait() -> None:
    proxy = strict("s1", "s2")
    proxy.sleep(10, "s1")
    assert proxy.put("t") == "unavailable server_s2_may_hold_the_topic_and_sends_no_heartbeats"
    proxy.heartbeat("s2")
    proxy.announce("s2", {"of-s2": "s2"}, change=2)
    assert proxy.put("t") == REFUSED


def test_while_no_server_is_known_a_topic_waits() -> None:
    assert strict().put("t").startswith("unavailable ")


def test_a_server_with_topics_beyond_the_limit_may_hold_the_topic() -> None:
    proxy = Proxy(topics_auto=False, topics_max=1)
    proxy.announce("s1", {"a": "a", "b": "b"})
    assert proxy.put("t") == "unavailable server_s1_may_hold_the_topic_and_has_not_announced_all_its_topics"


def test_a_server_that_may_be_creating_the_topic_is_waited_for() -> None:
    proxy = strict("s1", "s2")
    proxy.outcome(CREATE)
    proxy.sleep(10, "s2")
    assert proxy.put("t").startswith("unavailable server_s1_may_hold_the_topic")


@pytest.mark.parametrize("wrong", ["ordres", "orders1", "order", "0rders", "oorders"])
def test_a_refusal_names_the_topic_at_one_edit(wrong: str) -> None:
    proxy = Proxy(topics_auto=False)
    proxy.announce("s1", {"orders": "a"})
    assert sentence(proxy, wrong) == (
        f"topic '{wrong}' does not exist; did you mean 'orders'? create it with `pubsub topic create {wrong}`"
    )


@pytest.mark.parametrize("wrong", ["ordrse1", "invoices"])
def test_a_refusal_names_no_topic_that_differs_more(wrong: str) -> None:
    proxy = Proxy(topics_auto=False)
    proxy.announce("s1", {"orders": "a"})
    assert sentence(proxy, wrong) == f"topic '{wrong}' does not exist; create it with `pubsub topic create {wrong}`"


def test_a_refusal_names_no_topic_that_the_client_may_not_know() -> None:
    proxy = Proxy(topics_auto=False)
    proxy.announce("s1", {"orders": "a"})
    proxy.core.may_name = lambda client, head, topic: False
    assert "did you mean" not in sentence(proxy, "ordres")


def test_a_long_name_is_named_without_a_search_and_within_the_limit_of_a_sentence() -> None:
    looked: list[str] = []

    def exists(name: str) -> bool:
        looked.append(name)
        return False

    assert len(refusal("'" * 80, exists, 300)) <= 300
    assert looked == []
    refusal("t" * LOOKED_UP_MAX, exists, 300)
    assert len(looked) < 140 * LOOKED_UP_MAX
    assert refusal("a;b", exists, 300).endswith("create it with `pubsub topic create 'a;b'`")
