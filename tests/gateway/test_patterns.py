"""Subscribers and webhooks of patterns of topics, as HTTP clients see them (docs/http.md, *Patterns of topics*)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway

in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: patterns were not tried in a browser"
)


def collected(gateway: Gateway, pattern: str, name: str, count: int) -> list[tuple[str, str]]:
    """Topic and body of messages, in the order of the batches; each batch has messages of one topic."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        batch = gateway.poll(pattern, name)
        assert batch["messages"], f"only {found} came"
        assert len({message["topic"] for message in batch["messages"]}) == 1
        found += [(message["topic"], message["body"]) for message in batch["messages"]]
        gateway.confirm(batch)
    assert gateway.poll(pattern, name, wait=0)["messages"] == []
    return found


def test_topics_that_begin_after_the_subscription_come_from_their_first_message_on(gateway: Gateway) -> None:
    gateway.subscribe("fresh.%3E", "s")
    for topic in ("fresh.eu", "fresh.us.east", "fresh.eu"):
        gateway.put(topic, topic.encode())
    gateway.put("fresher.eu", b"another family")
    found = collected(gateway, "fresh.%3E", "s", 3)
    assert sorted(found) == [("fresh.eu", "fresh.eu")] * 2 + [("fresh.us.east", "fresh.us.east")]


def test_an_unconfirmed_batch_and_a_topic_that_begins_survive_the_death_of_the_gateway(
    cluster: Cluster, gateway: Gateway, tmp_path: Path
) -> None:
    with Gateway(cluster, tmp_path / "data") as first:
        first.subscribe("killed.*", "s")
        gateway.put("killed.a", b"1")
        batch = first.poll("killed.*", "s")
        first.kill()
    gateway.put("killed.b", b"2")  # Neither the gateway nor the reader is there when the topic begins.
    with Gateway(cluster, tmp_path / "data") as second:
        again = second.poll("killed.*", "s")
        assert again["messages"] == batch["messages"] != []
        second.confirm(again)
        assert collected(second, "killed.*", "s", 1) == [("killed.b", "2")]


def test_a_stream_names_the_topic_of_each_event_and_continues_after_the_last(gateway: Gateway) -> None:
    gateway.subscribe("streamed.*", "s")
    for topic in ("a", "b", "c"):
        gateway.put(f"streamed.{topic}", topic.encode())
    with gateway.events("streamed.*", "s") as events:
        first, second = next(events), next(events)
    with gateway.events("streamed.*", "s", last_event_id=first["id"]) as events:
        assert next(events) == second
        third = next(events)
    seen = [json.loads(one["data"]) for one in (first, second, third)]
    assert sorted((one["topic"], one["body"]) for one in seen) == [(f"streamed.{one}", one) for one in "abc"]
    until(lambda: gateway.ask("GET", "/topics/streamed.*/subscribers/s/messages").is_success, "the stream has ended")
    rest = collected(gateway, "streamed.*", "s", 2)  # Each a batch of its own, confirmed alone.
    assert rest == [(one["topic"], one["body"]) for one in seen[1:]]


def test_a_webhook_of_a_pattern_names_the_topic_and_keeps_the_order_within_each(gateway: Gateway) -> None:
    refused = b"eu-0"
    with Receiver(lambda headers, body: 500 if body == refused else 204) as receiver:
        made = gateway.ask("PUT", "/topics/hooked.%3E/webhooks/w", {"url": receiver.url})
        assert made.status_code == 201
        for number in range(2):
            for topic in ("eu", "us"):
                gateway.put(f"hooked.{topic}", f"{topic}-{number}".encode())
        until(lambda: len(receiver.taken) == 2, "the topic that is not refused arrives")
        taken = [(headers["pubsub-topic"], body) for headers, body in receiver.taken]
        assert taken == [("hooked.us", b"us-0"), ("hooked.us", b"us-1")]
        refused = b""
        redrive = "/topics/hooked.%3E/webhooks/w/redrive"
        until(lambda: gateway.ask("POST", redrive).is_success and len(receiver.taken) == 4, "the other follows")
        assert [body for _, body in receiver.taken[2:]] == [b"eu-0", b"eu-1"]
        assert gateway.ask("DELETE", "/topics/hooked.%3E/webhooks/w").status_code == 204


def test_an_ended_pattern_holds_nothing(gateway: Gateway) -> None:
    gateway.subscribe("ended.*", "s")
    gateway.put("ended.a", b"waits")
    assert gateway.poll("ended.*", "s")["messages"]
    assert gateway.ask("DELETE", "/topics/ended.*/subscribers/s").status_code == 204
    assert gateway.ask("GET", "/topics/ended.*/subscribers/s/messages").status_code == 404
    gateway.put("ended.b", b"for nobody")
    until(lambda: subscribers(gateway, "ended.a") == subscribers(gateway, "ended.b") == [], "no subscriber is left")


def subscribers(gateway: Gateway, topic: str) -> list[str]:
    answer = gateway.ask("GET", f"/topics/{topic}")
    return [one["client"] for one in answer.json()["subscribers"]] if answer.status_code == 200 else ["?"]


def test_no_topic_matches_two_subscriptions_of_one_name(gateway: Gateway) -> None:
    gateway.subscribe("alone.*", "s")
    gateway.subscribe("alone.*", "s")
    gateway.subscribe("alone.a.b", "s")
    gateway.subscribe("alone.b", "t")
    for path, body in (
        ("alone.a/subscribers/s", None),
        ("alone.%3E/subscribers/s", None),
        ("alone.*/subscribers/t", None),
        ("alone.*/webhooks/t", {"url": "http://127.0.0.1:1/"}),
    ):
        answer = gateway.ask("PUT", f"/topics/{path}", body)
        assert (answer.status_code, "only one subscription" in answer.json()["detail"]) == (409, True), path


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", "a.%3E.b/subscribers/s", None, 400, "reserved"),
        ("PUT", "$a.%3E/subscribers/s", None, 400, "reserved"),
        ("PUT", "_a.*/webhooks/w", {"url": "http://127.0.0.1:1/"}, 400, "reserved"),
        ("PUT", "begun.*/subscribers/s?start=last:5", None, 400, "not at a place in one topic"),
        ("POST", "moved.*/subscribers/s/seek", {"start": "earliest"}, 409, "fresh=true"),
    ],
)
def test_what_a_pattern_cannot_be_or_do_is_refused(
    gateway: Gateway, method: str, path: str, body: Any, status: int, words: str
) -> None:
    if method == "POST":
        gateway.subscribe("moved.*", "s")
    answer = gateway.ask(method, f"/topics/{path}", body)
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
    assert gateway.ask("GET", "/topics/begun.*/subscribers/s").status_code == 404  # No subscriber was left behind.


def test_a_pattern_begins_at_a_time_and_anew(gateway: Gateway) -> None:
    gateway.subscribe("past.x", "keeps")
    gateway.put("past.x", b"before")
    assert gateway.ask("PUT", "/topics/past.*/subscribers/s?start=earliest").status_code == 201
    assert collected(gateway, "past.*", "s", 1) == [("past.x", "before")]
    gateway.put("past.x", b"skipped")
    assert gateway.ask("PUT", "/topics/past.*/subscribers/s?fresh=true").status_code == 200
    gateway.put("past.x", b"after")
    found = collected(gateway, "past.*", "s", 1)
    assert found[-1] == ("past.x", "after")
    shown = gateway.ask("GET", "/topics/past.*/subscribers/s").json()
    assert (shown["topic"], shown["open_batch"], shown["dead_letters"]) == ("past.*", None, 0)


def patterns(gateway: Gateway, topic: str) -> list[tuple[str, str]]:
    found = gateway.ask("GET", f"/patterns?topic={topic}").json()["patterns"]
    return [(row["client"], row["pattern"]) for row in found if row["pattern"] != ">"]


def test_patterns_are_listed_and_an_operator_ends_one(gateway: Gateway) -> None:
    gateway.subscribe("over.*", "s")
    gateway.put("over.a", b"waits")
    until(lambda: patterns(gateway, "over.a") == [("http.s", "over.*")], "the report has it")
    assert patterns(gateway, "under.a") == []
    assert gateway.ask("DELETE", "/topics/over.*/clients/nobody").status_code == 404
    ended = gateway.ask("DELETE", "/topics/over.*/clients/http.s")
    assert (ended.status_code, ended.json()["topic"], ended.json()["client"]) == (200, "over.*", "http.s")
    until(lambda: patterns(gateway, "over.a") == [], "the report has it no more")
    refused = gateway.ask("GET", "/topics/over.*/subscribers/s/messages?wait=10")
    assert (refused.status_code, "subscribe again" in refused.json()["detail"]) == (409, True)
    gateway.subscribe("over.*", "s")
    gateway.put("over.b", b"new")
    bodies: list[str] = []
    while "new" not in bodies:  # One as young as the bound on skew may come before.
        batch = gateway.poll("over.*", "s")
        bodies += [message["body"] for message in batch["messages"]] or ["nothing came"]
        assert "nothing came" not in bodies
        gateway.confirm(batch)


@in_browser
def test_the_page_of_a_topic_lists_patterns_that_match_and_ends_one(gateway: Gateway, browser: Browser) -> None:
    gateway.subscribe("shown.*", "s")
    gateway.put("shown.a", b"waits")
    browser.go(f"{gateway.url}/#/topics/shown.a")
    until(lambda: "shown.*" in browser.text("#patterns"), "the pattern is listed")
    assert "http.s" in browser.text("#patterns")
    browser.run("window.confirm = () => true")
    until(lambda: "Unsubscribe" in browser.text("#patterns"), "the page has learned that it may operate")
    browser.click("#patterns button")
    until(lambda: patterns(gateway, "shown.a") == [], "it has ended")
