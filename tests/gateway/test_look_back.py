"""Starts, seeks, records and times over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow
in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried in a browser"
)
COUNT = 20
OLD = [str(number) for number in range(COUNT)]


@pytest.fixture
def kept(gateway: Gateway, request: pytest.FixtureRequest) -> str:
    """A topic that keeps COUNT old messages."""
    topic = str(request.node.name)[:70].replace("[", ".").replace("]", "")
    assert gateway.ask("PUT", f"/topics/{topic}/settings", {"keep": "ever"}).status_code == 200
    for body in OLD:
        gateway.put(topic, body.encode())
    return topic


def subscribe(gateway: Gateway, topic: str, query: str, status: int = 201) -> Any:
    answer = gateway.ask("PUT", f"/topics/{topic}/subscribers/s?{query}")
    assert answer.status_code == status, answer.text
    return answer.json()


def seek(gateway: Gateway, topic: str, start: str, status: int = 200, place: str = "subscribers/s") -> Any:
    answer = gateway.ask("POST", f"/topics/{topic}/{place}/seek", {"start": start})
    assert answer.status_code == status, answer.text
    return answer.json()


def bodies(gateway: Gateway, topic: str, count: int) -> list[tuple[str, int]]:
    return [(one["body"], one.get("replay", 0)) for one in gateway.take(topic, "s", count)]


def some(gateway: Gateway, topic: str, count: int) -> None:
    """Receive and confirm the first messages."""
    batch = gateway.poll(topic, "s", most=count)
    assert [one["body"] for one in batch["messages"]] == OLD[:count]
    gateway.confirm(batch)


def page(gateway: Gateway, topic: str, query: str, status: int = 200) -> Any:
    answer = gateway.ask("GET", f"/topics/{topic}/records?{query}")
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_subscriber_begins_at_its_start_and_continues_afterwards(gateway: Gateway, kept: str) -> None:
    subscribe(gateway, kept, "start=earliest")
    some(gateway, kept, 5)
    subscribe(gateway, kept, "start=earliest", 200)
    assert bodies(gateway, kept, COUNT - 5) == [(body, 0) for body in OLD[5:]]


def test_fresh_begins_at_the_start(gateway: Gateway, kept: str) -> None:
    subscribe(gateway, kept, "start=earliest")
    some(gateway, kept, 5)
    subscribe(gateway, kept, "start=earliest&fresh=true", 200)
    assert bodies(gateway, kept, COUNT) == [(body, 1) for body in OLD]


def test_a_seek_drops_what_was_taken_and_brings_each_message_once_more(gateway: Gateway, kept: str) -> None:
    subscribe(gateway, kept, "start=earliest")
    found = gateway.poll(kept, "s", most=7)["messages"]
    assert len(found) == 7, "it is taken and not confirmed"
    done = seek(gateway, kept, found[3]["position"])
    assert (done["client"], done["start"], done["replay"]) == ("http.s", found[3]["position"], 1)
    assert bodies(gateway, kept, COUNT - 3) == [(body, 1) for body in OLD[3:]]
    assert seek(gateway, kept, "earliest")["replay"] == 2
    assert bodies(gateway, kept, COUNT) == [(body, 2) for body in OLD]


def test_a_seek_outlives_the_gateway(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        assert gateway.ask("PUT", "/topics/outlived/settings", {"keep": "ever"}).status_code == 200
        for body in OLD:
            gateway.put("outlived", body.encode())
        subscribe(gateway, "outlived", "start=earliest")
        assert len(gateway.poll("outlived", "s", most=7)["messages"]) == 7
        seek(gateway, "outlived", "earliest")
        gateway.kill()
        gateway.start()
        assert bodies(gateway, "outlived", COUNT) == [(body, 1) for body in OLD]


@pytest.mark.parametrize("start", ["17", "2026-11-01T00:00", "beginning", ""])
def test_a_start_that_is_not_valid_changes_nothing(gateway: Gateway, kept: str, start: str) -> None:
    subscribe(gateway, kept, "start=earliest")
    refused = seek(gateway, kept, start, 400)
    assert refused["type"] == "urn:pubsub:problem:bad-request"
    assert gateway.ask("PUT", f"/topics/{kept}/subscribers/t?start={quote(start)}").status_code == 400
    assert page(gateway, kept, f"start={quote(start)}", 400)["type"] == "urn:pubsub:problem:bad-request"
    assert bodies(gateway, kept, COUNT) == [(body, 0) for body in OLD]


def test_an_operator_moves_a_subscriber_by_its_client(gateway: Gateway, kept: str) -> None:
    subscribe(gateway, kept, "start=latest")
    assert seek(gateway, kept, "earliest", place="clients/http.s")["replay"] == 1
    assert bodies(gateway, kept, COUNT) == [(body, 1) for body in OLD]
    assert seek(gateway, kept, "earliest", 404, place="clients/stranger")["type"] == "urn:pubsub:problem:not-subscribed"
    assert seek(gateway, kept, "earliest", 404, place="subscribers/none")["type"] == "urn:pubsub:problem:not-subscribed"


def test_records_are_read_by_page_and_no_position_changes(gateway: Gateway, kept: str) -> None:
    subscribe(gateway, kept, "start=earliest")
    found: list[str] = []
    after = ""
    while True:
        got = page(gateway, kept, f"max=6&after={quote(after)}" if after else "start=earliest&max=6")
        found += [one["body"] for one in got["messages"]]
        assert len(got["messages"]) <= 6
        if got["next"] is None:
            break
        after = got["next"]
    assert found == OLD
    assert bodies(gateway, kept, COUNT) == [(body, 0) for body in OLD]


def test_a_range_begins_and_stops_where_it_is_asked(gateway: Gateway, kept: str) -> None:
    everything = page(gateway, kept, "max=100")["messages"]
    third, sixth = everything[2]["position"], everything[5]["position"]
    assert [one["body"] for one in page(gateway, kept, f"start={third}&stop={sixth}")["messages"]] == OLD[2:6]
    stamps = [one["stamp"] for one in everything]
    moment = quote(datetime.fromtimestamp(stamps[10] / 1e6, UTC).isoformat())
    later = [body for body, stamp in zip(OLD, stamps, strict=True) if stamp >= stamps[10]]
    assert [one["body"] for one in page(gateway, kept, f"start={moment}")["messages"]] == later
    assert [one["body"] for one in page(gateway, kept, "start=last:4")["messages"]] == OLD[-4:]
    assert page(gateway, kept, "after=nonsense", 400)["type"] == "urn:pubsub:problem:bad-request"
    assert page(gateway, "none", "", 404)["type"] == "urn:pubsub:problem:not-found"
    gone = page(gateway, kept, "start=00000000000000aa.5", 410)
    assert gone["type"] == "urn:pubsub:problem:start-gone"
    assert everything[0]["position"] in gone["detail"]


def test_times_are_those_of_the_stored_messages(gateway: Gateway, kept: str) -> None:
    everything = page(gateway, kept, "max=100")["messages"]
    found = gateway.ask("GET", f"/topics/{kept}/times").json()
    assert found["records"] == COUNT
    assert found["first"] == everything[0]["position"]
    for name, message in (("oldest", everything[0]), ("newest", everything[-1])):
        assert datetime.fromisoformat(found[name]) == datetime.fromtimestamp(message["stamp"] / 1e6, UTC)


@in_browser
def test_the_page_moves_a_subscriber(gateway: Gateway, kept: str, browser: Browser) -> None:
    subscribe(gateway, kept, "start=latest")
    browser.go(f"{gateway.url}/#/topics/{kept}")
    button = "#subscribers button[aria-label='Seek: http.s']"
    until(lambda: browser.run(f'return document.querySelector("{button}") !== null'), "the subscriber is shown")
    browser.run("window.prompt = () => '17'")
    browser.click(button)
    until(lambda: "a bare number" in browser.text("#sought"), "a start that is not valid is refused")
    browser.run("window.prompt = () => 'earliest'")
    browser.click(button)
    until(lambda: browser.text("#sought") == "http.s continues at earliest (replay 1)", "it is moved")
    assert bodies(gateway, kept, COUNT) == [(body, 1) for body in OLD]


@in_browser
def test_the_page_reads_from_a_start(gateway: Gateway, kept: str, browser: Browser) -> None:
    browser.go(f"{gateway.url}/#/topics/{kept}")
    until(lambda: browser.text("#name") == kept, "the topic is shown")
    browser.run("document.querySelector('#back').elements.start.value = 'last:3'")
    browser.click("#back button")
    until(lambda: browser.text("#read").startswith("3 messages"), "they are read")
    for body in OLD[-3:]:
        assert body in browser.text("#records")
    until(lambda: f"{COUNT} messages" in browser.text("#times"), "the times are shown")
    browser.click("#further")
    until(lambda: browser.text("#read") == "No more messages.", "that was all")
    browser.run("location.hash = '#/topics/another'")
    until(lambda: browser.text("#name") == "another" and browser.text("#read") == "", "another topic is shown")
