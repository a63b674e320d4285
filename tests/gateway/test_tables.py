"""Topics as tables over HTTP (docs/how-to/keep-the-latest.md)."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.gateway import problems
from tests.faults.cluster import until
from tests.gateway.browser import Browser
from tests.gateway.serving import Gateway
from tests.gateway.test_page import in_browser

pytestmark = pytest.mark.slow


def table(gateway: Gateway, topic: str, place: str = "", status: int = 200) -> Any:
    answer = gateway.ask("GET", f"/topics/{topic}/table{place}")
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_table_has_the_last_message_of_each_key_by_page(gateway: Gateway) -> None:
    topic = "prices"
    assert gateway.ask("PUT", f"/topics/{topic}/settings", {"keep": "latest"}).status_code == 200
    for key, body in (("b", b"1"), ("a", b"1"), ("%FF", b"\xfe"), ("b", b"2"), ("gone", b"1"), ("gone", b"")):
        gateway.put(topic, body, pubsub_key=key)
    gateway.put(topic, b"without a key")
    values = table(gateway, topic)["values"]
    stamps = [value.pop("stamp") for value in table(gateway, topic)["values"]]
    shown = [{"key": "a", "body": "1"}, {"key": "b", "body": "2"}, {"key_base64": "/w==", "body_base64": "/g=="}]
    assert [{**one, "stamp": stamp} for one, stamp in zip(shown, stamps, strict=True)] == values
    assert table(gateway, topic) == {"topic": topic, "keys": 3, "values": values, "next": None}
    assert table(gateway, topic, "?max=1") == {"topic": topic, "keys": 3, "values": values[:1], "next": "a"}
    assert table(gateway, topic, "?max=2&after=a") == {"topic": topic, "keys": 3, "values": values[1:], "next": None}
    assert table(gateway, topic, "?key=b")["values"] == values[1:2]
    assert table(gateway, topic, "?text=1")["values"] == values[:1]
    assert table(gateway, topic, f"?since={stamps[1]}&until={stamps[1]}")["values"] == values[1:2]
    assert table(gateway, topic, "/b") == values[1]
    assert table(gateway, topic, "/%FF") == values[2]
    gone = table(gateway, topic, "/gone", 404)
    assert gone["type"] == f"{problems.PREFIX}not-found"
    assert f"GET /topics/{topic}/table" in gone["detail"]
    assert table(gateway, topic, "?after=%25zz")["values"] == values, "it sorts before all keys"
    assert table(gateway, topic, "/%zz", 400)["type"] == f"{problems.PREFIX}bad-request"
    assert table(gateway, "none", "", 404)["type"] == f"{problems.PREFIX}not-found"


def test_a_second_request_sees_what_came_since_and_what_expired(gateway: Gateway) -> None:
    assert gateway.put("sessions", b"1", pubsub_key="a")
    assert gateway.ask("POST", "/topics/sessions/messages?ttl=0.2", b"2", pubsub_key="b").status_code == 201
    assert table(gateway, "sessions", "/a")["body"] == "1"
    gateway.put("sessions", b"3", pubsub_key="c")
    until(lambda: [one["key"] for one in table(gateway, "sessions")["values"]] == ["a", "c"], "the message expires")


@in_browser
def test_the_page_shows_the_table_with_a_search(gateway: Gateway, browser: Browser) -> None:
    for number in range(25):
        gateway.put("rates", b"<b>%d" % number, pubsub_key=f"k%25{number:02}")
    browser.go(f"{gateway.url}/#/topics/rates")
    until(lambda: browser.text("#name") == "rates", "the topic is shown")
    browser.click("#latest button")
    until(lambda: browser.text("#keyed") == "25 keys have a value; shown: 20.", "the first page is shown")
    cells = "return [...document.querySelectorAll('#values tbody tr')].map((row) => row.cells[%d].textContent)"
    assert browser.run(cells % 0) == [f"k%{number:02}" for number in range(20)]
    browser.click("#further-keys")
    until(lambda: browser.run(cells % 1) == [f"<b>{number}" for number in range(20, 25)], "the others follow")
    browser.run("document.querySelector('#latest').elements.key.value = '07'")
    browser.click("#latest button")
    until(lambda: browser.run(cells % 0) == ["k%07"], "a key is found")
    assert browser.run(cells % 2) != [""]
    assert browser.complaints() == []
    browser.run("location.hash = '#/topics/another'")
    until(lambda: browser.text("#name") == "another" and browser.text("#keyed") == "", "another topic is shown")
