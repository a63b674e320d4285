"""The page in a real browser, if there is one; and its files, everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from pubsub.gateway.handlers.page import FILES
from pubsub.gateway.history import SAMPLES_MAX, History
from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.receiver import Receiver
from tests.gateway.serving import CLIENT, Gateway, check, parsed

pytestmark = pytest.mark.slow
in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried in a browser"
)


def report(records: int, **more: object) -> dict[str, object]:
    server = {"id": "s1", "answered": True, "report": {"counters": {"records": records}, "disk": {"store": 10}}}
    topics = [{"subscribers": {"a": {"waiting": 2}, "b": {"waiting": 3}}, "oldest_unacknowledged_seconds": 7.25}]
    return {"proxies": [], "servers": [server], "topics": topics, "warnings": ["w"], "alarms": ["a"], **more}


def test_rates_are_made_of_two_reports_by_the_monotonic_clock() -> None:
    history = History()
    history.add(report(100), 1000.0, 5.0)
    history.add(report(150), 999.0, 10.0)
    history.add(report(20), 1010.0, 15.0)
    assert history.facts() == {
        "at": [1000.0, 999.0, 1010.0],
        "puts": [0.0, 10.0, 0.0],
        "backlog": [5, 5, 5],
        "oldest": [7.2, 7.2, 7.2],
        "disk": [10, 10, 10],
        "proxies": [0, 0, 0],
        "servers": [1, 1, 1],
        "warnings": [2, 2, 2],
    }


def test_one_hour_of_history_is_kept() -> None:
    history = History()
    for number in range(SAMPLES_MAX + 5):
        history.add(report(number), float(number), float(number))
    assert len(history.samples) == SAMPLES_MAX
    assert history.samples[0].at == 5.0


def test_the_page_asks_no_other_host_and_runs_only_its_own_code(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    text = "".join(gateway.ask("GET", path).text for path in FILES)
    assert "https://" not in text
    assert text.count("http://") == text.count("http://www.w3.org/2000/svg") == 1
    assert "innerHTML" not in text


def test_the_live_stream_has_the_facts_of_the_page(gateway: Gateway) -> None:
    with CLIENT.stream("GET", f"{gateway.url}/live") as answer:
        facts = json.loads(next(parsed(answer.iter_lines()))["data"])
    assert [(one["id"], one["up"]) for one in facts["servers"]] == [("s1", True)]
    assert [(one["id"], one["servers"]) for one in facts["proxies"]] == [("p1", ["s1"])]
    assert facts["history"]["puts"] is not None


@in_browser
def test_the_overview_shows_processes_topics_and_the_last_hour(gateway: Gateway, browser: Browser) -> None:
    gateway.put("seen%2Fa", b"x")
    browser.go(f"{gateway.url}/")
    until(lambda: "s1" in browser.text("#servers"), "servers are shown")
    until(lambda: "p1" in browser.text("#proxies"), "proxies are shown")
    until(lambda: browser.run("return document.querySelectorAll('#plots svg').length") == 4, "plots are drawn")
    browser.type("#search input", "seen/")
    until(lambda: browser.text("#total") == "1 found", "it is searched for")
    assert browser.text("#topics tbody").startswith("seen/a")
    assert browser.text("header").endswith("topics"), "no token is asked for"
    assert browser.complaints() == []


@in_browser
def test_a_topic_is_reached_by_the_keyboard_and_a_test_message_is_put(gateway: Gateway, browser: Browser) -> None:
    name = "b<img/src=x/onerror=document.title=1&amp;"
    gateway.subscribe(quote(name, safe=""), "s")
    browser.go(f"{gateway.url}/")
    browser.type("#search input", name[:12])
    until(lambda: name in browser.text("#topics tbody"), "the topic is shown as text")
    rows = "return document.querySelectorAll('#topics tbody tr').length"
    until(lambda: browser.run(rows) == 1, "the search has left out the others")
    browser.run("document.querySelector('#sort').focus()")
    browser.press("\ue004")  # Tab
    until(lambda: browser.run("return document.activeElement.textContent") == name, "it has the focus")
    browser.press("\ue007")  # Enter
    until(lambda: browser.text("#name") == name, "its page is shown")
    until(lambda: "http.s" in browser.text("#subscribers"), "its subscriber is shown")
    browser.type("#put textarea", '{"from": "the page"}')
    browser.click("#put button")
    until(lambda: browser.text("#result").startswith("put as "), "it is put")
    (message,) = gateway.take(quote(name, safe=""), "s", 1)
    assert (message["body"], message["id"]) == ('{"from": "the page"}', browser.text("#result").split()[-1])
    assert browser.complaints() == []


@in_browser
def test_dead_letters_are_shown_and_redriven(gateway: Gateway, browser: Browser) -> None:
    with Receiver(lambda headers, body: 410) as receiver:
        gateway.ask("PUT", "/topics/redriven/webhooks/w", {"url": receiver.url})
        gateway.put("redriven", b"x")
        browser.go(f"{gateway.url}/#/topics/redriven")
        until(lambda: "ended" in browser.text("#webhooks"), "that it ended is shown")
        receiver.answer = lambda headers, body: 204
        browser.click("#webhooks button")
        until(lambda: receiver.bodies() == [b"x"], "it is delivered")
        until(lambda: "active" in browser.text("#webhooks"), "that it works is shown")


@in_browser
def test_a_gateway_with_tokens_asks_for_one(cluster: Cluster, tmp_path: Path, browser: Browser) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ops th_{digest(token)} status\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens)) as gateway:
        assert check(CLIENT.get(f"{gateway.url}/live")).status_code == 401
        browser.go(f"{gateway.url}/")
        until(lambda: "Bearer token" in browser.text("header"), "it is asked for")
        browser.type("#token input", token)
        browser.click("#token button")
        until(lambda: "s1" in browser.text("#servers"), "servers are shown")


@in_browser
def test_the_page_shows_a_missing_gateway_and_continues_when_it_is_back(
    cluster: Cluster, tmp_path: Path, browser: Browser
) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        browser.go(f"{gateway.url}/")
        until(lambda: "s1" in browser.text("#servers"), "servers are shown")
        gateway.kill()
        until(lambda: "does not answer" in browser.text("#state") or "fetch" in browser.text("#state"), "it says so")
        gateway.start()
        until(lambda: "1 servers" in browser.text("#state"), "it goes on")
