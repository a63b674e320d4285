"""The page with foreign content, and with users of different rights, in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried in a browser"
    ),
]
EVIL = "<img/src=x/onerror=document.title='bad'><script>title='bad'</script>&amp;"
NAME = "b<img/src=x/onerror=document.title='bad';&amp;\"'"
"""A topic's name has no space and no >."""

BUTTONS = "return document.querySelectorAll('#subscribers button').length"


def put_evil(gateway: Gateway, topic: str) -> None:
    headers = {"pubsub-key": quote(EVIL), "pubsub-header-" + quote("<b>x", safe=""): quote(EVIL)}
    gateway.put(topic, EVIL.encode() + b"\n" + EVIL.encode(), **headers)


def test_any_content_of_a_message_is_shown_as_text(gateway: Gateway, browser: Browser) -> None:
    topic = quote(NAME, safe="")
    put_evil(gateway, topic)
    gateway.put(topic, b"\xff\x00")
    until(lambda: gateway.ask("GET", f"/topics/{topic}").status_code == 200, "the report has it")
    browser.go(f"{gateway.url}/#/topics/{topic}")
    until(lambda: browser.text("#name") == NAME, "its name is shown")
    browser.click("#newest")
    until(lambda: browser.text("#peeked").startswith("2 messages"), "they are shown")
    cells = "return [...document.querySelector('#messages tbody tr').cells].slice(3).map((one) => one.textContent)"
    assert browser.run(cells) == [EVIL, f"<b>x: {EVIL}", str(2 * len(EVIL) + 1), f"{EVIL}\n{EVIL}"]
    assert "base64: /wA=" in browser.text("#messages")
    assert browser.run("return document.querySelectorAll('#topic img, #topic script, #topic b').length") == 0
    assert browser.run("return document.title") == f"{NAME} · pubsub"
    assert browser.complaints() == []


def test_a_dead_letter_says_why_and_is_shown_as_text(gateway: Gateway, browser: Browser) -> None:
    with Receiver(lambda headers, body: 410) as receiver:
        gateway.ask("PUT", "/topics/evil/webhooks/w", {"url": receiver.url})
        put_evil(gateway, "evil")
        browser.go(f"{gateway.url}/#/topics/evil")
        until(lambda: "status 410, try 1" in browser.text("#webhooks"), "how it failed is shown")
        browser.run(
            "[...document.querySelectorAll('#webhooks button')].find((b) => b.textContent.includes('Dead')).click()"
        )
        until(lambda: "status 410" in browser.text("#dead"), "the letter is shown")
        assert browser.text("#dead").count(EVIL) == 4
        assert browser.run("return document.querySelectorAll('#dead img, #dead script').length") == 0


def test_unchanged_elements_are_kept_when_the_page_is_redrawn(gateway: Gateway, browser: Browser) -> None:
    gateway.subscribe("kept", "s")
    browser.go(f"{gateway.url}/#/topics/kept")
    until(lambda: "http.s" in browser.text("#subscribers"), "its subscriber is shown")
    browser.run("const b = document.querySelector('#subscribers button'); b.mine = true; b.focus()")
    for number in range(2):
        gateway.put("kept", b"x")
        until(lambda n=number: f"\t{n + 1}\t" in browser.text("#subscribers"), "what waits is drawn anew")
        assert browser.run("return document.activeElement.mine") is True


def tokens_of(tmp_path: Path, **rights: str) -> tuple[Path, dict[str, str]]:
    made = {user: new_token() for user in rights}
    path = tmp_path / "tokens"
    path.write_text("".join(f"{user} th_{digest(made[user])} {right}\n" for user, right in rights.items()))
    path.chmod(0o600)
    return path, made


def test_a_user_without_the_right_to_operate_has_no_buttons_and_is_refused(
    cluster: Cluster, tmp_path: Path, browser: Browser
) -> None:
    path, tokens = tokens_of(tmp_path, looker="status put=* get=mine", ops="operate put=* get=*")
    with Gateway(cluster, tmp_path / "data", "--tokens", str(path), token=tokens["ops"]) as gateway:
        gateway.subscribe("theirs", "s")
        for user, buttons, told in (("looker", 0, "This token may not receive theirs;"), ("ops", 2, "0 messages")):
            browser.go(f"{gateway.url}/livez")  # The page is left, and with it what it knows.
            browser.run("sessionStorage.setItem('token', arguments[0])", tokens[user])
            browser.go(f"{gateway.url}/#/topics/theirs")
            until(lambda: "ops.s" in browser.text("#subscribers"), "the subscriber is shown")
            until(lambda: "1 servers" in browser.text("#state"), "what may be done is known")
            until(lambda n=buttons: browser.run(BUTTONS) == n, "only who may has the button")
            browser.click("#newest")
            until(lambda text=told: browser.text("#peeked").startswith(text), "it is said")
        looker = {"authorization": f"Bearer {tokens['looker']}"}
        assert gateway.ask("DELETE", "/topics/theirs/clients/ops.s", **looker).status_code == 403
        assert gateway.ask("PUT", "/servers/s1/drain", **looker).status_code == 403
        assert gateway.ask("GET", "/topics/theirs/messages", **looker).status_code == 403
        assert gateway.ask("GET", "/topics/theirs/webhooks", **looker).status_code == 403
    browser.go("about:blank")


def test_a_user_without_the_list_of_topics_opens_a_topic_by_its_name(
    cluster: Cluster, tmp_path: Path, browser: Browser
) -> None:
    path, tokens = tokens_of(tmp_path, mine="put=mine get=mine")
    with Gateway(cluster, tmp_path / "data", "--tokens", str(path), token=tokens["mine"]) as gateway:
        gateway.put("mine", b"tea")
        browser.go(f"{gateway.url}/livez")
        browser.run("sessionStorage.setItem('token', arguments[0])", tokens["mine"])
        browser.go(f"{gateway.url}/")
        until(lambda: "lacks the right" in browser.text("#state"), "it is said that the list is not for them")
        browser.type("#search input", "mine\ue007")
        until(lambda: browser.text("#name") == "mine", "the topic is opened")
        browser.click("#newest")
        until(lambda: "tea" in browser.text("#messages"), "its messages are shown")
    browser.go("about:blank")
