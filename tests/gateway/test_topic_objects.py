"""Topics as objects over HTTP and on the page: create one, purge one, and search its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow
in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried in a browser"
)


def test_a_topic_is_created_once_and_refused_with_other_settings(gateway: Gateway) -> None:
    made = gateway.ask("PUT", "/topics/made", {"keep": "7d"})
    assert (made.status_code, made.json()["keep"], made.json()["drop"]) == (201, "7d", "never")
    again = gateway.ask("PUT", "/topics/made", {"keep": "7d"})
    assert (again.status_code, again.json()) == (200, made.json())
    other = gateway.ask("PUT", "/topics/made")
    assert other.status_code == 409
    assert "topic made exists with keep=7d drop=never" in other.json()["detail"]
    assert gateway.ask("PUT", "/topics/made-without-settings").status_code == 201


@pytest.mark.parametrize(
    ("topic", "body", "text"),
    [
        ("_mine", {}, "reserved"),
        ("wrong", {"kep": "7d"}, "The body is not valid"),
        ("wrong", {"keep": 7}, "a text"),
        ("wrong", {"keep": "7 years"}, "keep is none, ever"),
        ("wrong", b"keep=7d", "not JSON"),
    ],
)
def test_a_creation_that_is_not_valid_is_refused(gateway: Gateway, topic: str, body: object, text: str) -> None:
    answer = gateway.ask("PUT", f"/topics/{topic}", body)
    assert answer.status_code == 400, answer.text
    assert text in answer.json()["detail"]
    assert gateway.ask("POST", "/topics/wrong/purge", {"unread": False}).status_code == 404


def test_a_purge_deletes_stored_messages_and_with_unread_the_others_too(gateway: Gateway) -> None:
    gateway.ask("PUT", "/topics/purged", {"keep": "ever"})
    gateway.put("purged", b"kept")
    gateway.subscribe("purged", "s")
    gateway.put("purged", b"unread")
    done = gateway.ask("POST", "/topics/purged/purge", {"unread": False})
    assert (done.status_code, done.json()) == (200, {"topic": "purged", "records": 1, "unread": 0})
    shown = gateway.ask("GET", "/topics/purged/messages").json()
    assert [one["body"] for one in shown["messages"]] == ["unread"]
    done = gateway.ask("POST", "/topics/purged/purge", {"unread": True})
    assert done.json() == {"topic": "purged", "records": 1, "unread": 1}
    assert gateway.ask("GET", "/topics/purged/messages").json()["messages"] == []


@pytest.mark.parametrize("body", [{}, [], {"unread": 1}, {"unread": True, "all": True}, b"x"])
def test_a_purge_that_is_not_valid_is_refused(gateway: Gateway, body: object) -> None:
    assert gateway.ask("POST", "/topics/purged/purge", body).status_code == 400


def test_a_topic_is_deleted_and_one_with_subscribers_only_by_force(gateway: Gateway) -> None:
    gateway.ask("PUT", "/topics/deleted", {"keep": "ever"})
    gateway.put("deleted", b"old")
    gateway.subscribe("deleted", "s")
    refused = gateway.ask("DELETE", "/topics/deleted")
    assert refused.status_code == 409
    assert "topic deleted has 1 subscriber" in refused.json()["detail"]
    assert gateway.ask("DELETE", "/topics/deleted?force=perhaps").status_code == 400
    done = gateway.ask("DELETE", "/topics/deleted?force=true")
    assert (done.status_code, done.json()) == (200, {"topic": "deleted", "records": 1, "subscribers": 1})
    again = gateway.ask("DELETE", "/topics/deleted")
    assert (again.status_code, again.json()["records"]) in {(200, None), (200, 0)}
    assert gateway.ask("DELETE", "/topics/never-there").status_code == 404


def test_a_search_shows_the_messages_with_a_key_a_text_and_a_time(gateway: Gateway) -> None:
    for number in range(4):
        gateway.put("searched", b"order %d" % number, pubsub_key=f"customer{number % 2}")
    every = gateway.ask("GET", "/topics/searched/messages").json()
    assert (len(every["messages"]), every["searched"]) == (4, 4)

    def bodies(query: str) -> list[str]:
        answer = gateway.ask("GET", f"/topics/searched/messages?{query}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["searched"] == 4
        return [one["body"] for one in answer.json()["messages"]]

    assert bodies("key=customer1") == ["order 1", "order 3"]
    assert bodies("text=2") == ["order 2"]
    assert bodies("key=customer1&text=2") == []
    stamp = every["messages"][2]["stamp"]
    assert bodies(f"since={stamp}") == ["order 2", "order 3"]
    assert bodies(f"until={stamp}") == ["order 0", "order 1", "order 2"]
    assert gateway.ask("GET", "/topics/searched/messages?since=x").status_code == 400


def test_only_an_operator_creates_purges_and_deletes(cluster: Cluster, tmp_path: Path) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"looker th_{digest(token)} status get=* put=*\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=token) as gateway:
        assert gateway.ask("PUT", "/topics/mine").status_code == 403
        assert gateway.ask("POST", "/topics/mine/purge", {"unread": True}).status_code == 403
        assert gateway.ask("DELETE", "/topics/mine?force=true").status_code == 403


def fill(browser: Browser, form: str, name: str, value: str) -> None:
    browser.run(f"document.querySelector('#{form}').elements.{name}.value = arguments[0]", value)


@in_browser
def test_the_page_creates_a_topic(gateway: Gateway, browser: Browser) -> None:
    browser.go(f"{gateway.url}/")
    until(lambda: browser.run("return document.querySelector('#create').hidden") is False, "the form is shown")
    fill(browser, "create", "topic", "from-page")
    fill(browser, "create", "keep", "1h")
    browser.click("#create button")
    until(lambda: browser.text("#created") == "from-page exists: keep=1h drop=never", "it is created")
    assert gateway.ask("GET", "/topics/from-page/settings").json()["keep"] == "1h"


@in_browser
def test_the_page_searches_messages_and_purges_a_topic_after_its_name_was_typed(
    gateway: Gateway, browser: Browser
) -> None:
    gateway.ask("PUT", "/topics/purged-there", {"keep": "ever"})
    gateway.put("purged-there", b"first")
    gateway.put("purged-there", b"second")
    browser.go(f"{gateway.url}/#/topics/purged-there")
    until(lambda: browser.run("return document.querySelector('#purge').hidden") is False, "the form is shown")
    fill(browser, "find", "text", "sec")
    browser.click("#newest")
    until(lambda: "2 of them were searched, and 1 found" in browser.text("#peeked"), "the search has an answer")
    assert "second" in browser.text("#messages")
    assert "first" not in browser.text("#messages")
    fill(browser, "purge", "typed", "page")
    browser.click("#purge button")
    until(lambda: browser.text("#purged") == "This is not the name; type purged-there.", "the name is asked for")
    fill(browser, "purge", "typed", "purged-there")
    browser.click("#purge button")
    until(lambda: browser.text("#purged") == "2 messages deleted, 0 unread.", "it is purged")
    assert gateway.ask("GET", "/topics/purged-there/messages").json()["messages"] == []


@in_browser
def test_the_page_deletes_a_topic_after_its_name_was_typed(gateway: Gateway, browser: Browser) -> None:
    gateway.ask("PUT", "/topics/deleted-there", {"keep": "ever"})
    gateway.put("deleted-there", b"first")
    browser.go(f"{gateway.url}/#/topics/deleted-there")
    until(lambda: browser.run("return document.querySelector('#delete').hidden") is False, "the form is shown")
    fill(browser, "delete", "typed", "page")
    browser.click("#delete button")
    until(lambda: browser.text("#deleted") == "This is not the name; type deleted-there.", "the name is asked for")
    fill(browser, "delete", "typed", "deleted-there")
    browser.click("#delete button")
    until(lambda: browser.text("#deleted") == "deleted-there is deleted, with 1 message.", "it is deleted")
    assert gateway.ask("DELETE", "/topics/deleted-there").json()["records"] is None
