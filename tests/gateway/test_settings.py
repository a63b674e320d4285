"""Settings of topics over HTTP and on the page."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pubsub.gateway.handlers.operations import OPERATIONS_MAX, Operating, Operations
from pubsub.web.tokens import ANYBODY, digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow
in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried in a browser"
)


def put(gateway: Gateway, topic: str, **values: str) -> dict[str, Any]:
    answer = gateway.ask("PUT", f"/topics/{topic}/settings", values)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_topic_that_does_not_exist_has_the_defaults_and_asking_creates_none(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/topics/none/settings")
    defaults = {"topic": "none", "keep": "none", "drop": "never", "version": "", "conflict": False}
    defaults |= {"sources": {}, "own": {}, "expire": "never", "tombstones": "1d", "rate": "none", "bytes": "none"}
    assert (answer.json(), answer.headers["etag"]) == (defaults, '""')
    assert gateway.ask("GET", "/topics/none").status_code == 404


def test_a_put_changes_what_it_names_and_its_answer_is_what_a_get_shows(gateway: Gateway) -> None:
    made = put(gateway, "changed", keep="7d, 10GiB")
    assert (made["keep"], made["drop"]) == ("7d,10GiB", "never")
    made = put(gateway, "changed", drop="30d")
    assert (made["keep"], made["drop"]) == ("7d,10GiB", "30d")
    answer = gateway.ask("GET", "/topics/changed/settings")
    assert (answer.json(), answer.headers["etag"]) == (made, f'"{made["version"]}"')
    assert put(gateway, "changed", keep="", drop="")["keep"] == "none"


def test_a_topic_has_its_settings_in_the_report(gateway: Gateway) -> None:
    put(gateway, "reported", keep="1h")
    gateway.put("reported", b"x" * 1000)

    def shown() -> Any:
        answer = gateway.ask("GET", "/topics/reported")
        return answer.status_code == 200 and answer.json()["kept_bytes"] and answer.json()

    found = until(shown, "the report has it")
    assert (found["keep"], found["drop"], found["keep_seconds"]) == ("1h", "never", 3600.0)
    assert found["kept_bytes"] >= 1000


def test_of_two_changes_of_one_version_the_second_is_answered_412_with_the_settings_in_force(gateway: Gateway) -> None:
    first = gateway.ask("PUT", "/topics/raced/settings", {"keep": "1d"}, if_match='""')
    assert first.status_code == 200
    for tag in ('""', '"0123456789abcdef"'):
        late = gateway.ask("PUT", "/topics/raced/settings", {"keep": "2d"}, if_match=tag)
        assert late.status_code == 412
        assert late.json()["type"] == "urn:pubsub:problem:precondition-failed"
        assert f"version {first.json()['version']}: keep=1d drop=never" in late.json()["detail"]
        assert late.headers["etag"] == first.headers["etag"]
    again = gateway.ask("PUT", "/topics/raced/settings", {"keep": "2d"}, if_match=late.headers["etag"])
    assert again.json()["keep"] == "2d"
    any_version = gateway.ask("PUT", "/topics/raced/settings", {"keep": "3d"}, if_match="*")
    assert any_version.json()["keep"] == "3d"


def test_of_many_changes_of_one_version_at_once_one_counts(gateway: Gateway) -> None:
    def change(number: int) -> int:
        body = {"keep": f"{number + 1}d"}
        return gateway.ask("PUT", "/topics/at-once/settings", body, if_match='""').status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(change, range(4))) == [200, 412, 412, 412]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "The body is not valid"),
        ([], "The body is not valid"),
        ({"kep": "7d"}, "The body is not valid"),
        ({"keep": 7}, "a text"),
        ({"keep": None}, "a text"),
        (b"keep=7d", "not JSON"),
        ({"keep": "7 years"}, "keep is none, ever, latest, or amounts such as 7d"),
        ({"tombstones": "5m"}, "tombstones is an age such as 1d, at least 1h"),
        ({"drop": "100 records"}, "drop is never, an age such as 30d"),
        ({"keep": "9" * 1000 + "d"}, "keep is none, ever"),
    ],
)
def test_settings_that_are_none_are_refused_with_the_form_that_they_need(
    gateway: Gateway, body: object, text: str
) -> None:
    answer = gateway.ask("PUT", "/topics/refused/settings", body)
    assert answer.status_code == 400
    assert text in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 400
    assert gateway.ask("GET", "/topics/refused/settings").json()["version"] == ""


@pytest.mark.parametrize("tag", ["x", "0123456789abcdef", 'W/"0123456789abcdef"', '"0123456789abcdef", ""', '"x"'])
def test_a_tag_that_is_none_is_refused(gateway: Gateway, tag: str) -> None:
    answer = gateway.ask("PUT", "/topics/tagged/settings", {"keep": "1d"}, if_match=tag)
    assert answer.status_code == 400
    assert "If-Match" in answer.json()["detail"]


def test_topics_of_services_have_none(gateway: Gateway) -> None:
    for method, body in (("GET", None), ("PUT", {"keep": "1d"})):
        answer = gateway.ask(method, "/topics/%24calls.echo/settings", body)
        assert answer.status_code == 400
        assert "belongs to a service" in answer.json()["detail"]


def test_users_who_look_keep_no_operator_from_a_change() -> None:
    release = threading.Event()

    class Slow:
        def settings(self, user: str, topic: str) -> dict[str, Any]:
            release.wait(120)
            return {"topic": topic, "version": ""}

        def configure(self, topic: str, values: dict[str, str | None], base: str | None) -> dict[str, Any]:
            return {"topic": topic, **values, "version": "a" * 16}

    async def body() -> dict[str, str]:
        return {"keep": "1d"}

    exchange: Any = SimpleNamespace(
        topic="t", user=ANYBODY, check=lambda needs: None, json=body, request=SimpleNamespace(headers={})
    )

    async def run() -> int:
        operating = Operating(cast("Operations", Slow()))
        looks = [asyncio.create_task(operating.settings(exchange)) for _ in range(OPERATIONS_MAX + 1)]
        try:
            (full,), _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
            assert str(full.exception()) == f"{OPERATIONS_MAX} looks are running, which is the limit; try again."
            return (await operating.configure(exchange)).status_code
        finally:
            release.set()
            await asyncio.gather(*looks, return_exceptions=True)

    assert asyncio.run(run()) == 200


def test_a_user_needs_the_right_to_get_for_looking_and_to_operate_for_changing(
    cluster: Cluster, tmp_path: Path
) -> None:
    users = {"ops": "operate", "reader": "get=mine", "stranger": "put=* status"}
    tokens = {name: new_token() for name in users}
    path = tmp_path / "tokens"
    path.write_text("".join(f"{name} th_{digest(tokens[name])} {rights}\n" for name, rights in users.items()))
    path.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(path)) as gateway:
        answers = {}
        for name, token in tokens.items():
            head = {"authorization": f"Bearer {token}"}
            changed = gateway.ask("PUT", "/topics/mine/settings", {"keep": "1d"}, **head)
            looked = gateway.ask("GET", "/topics/mine/settings", **head)
            answers[name] = changed.status_code, looked.status_code
        assert answers == {"ops": (200, 200), "reader": (403, 200), "stranger": (403, 403)}
        assert gateway.ask("GET", "/topics/mine/settings").status_code == 401


@in_browser
def test_the_page_shows_the_settings_and_changes_them(gateway: Gateway, browser: Browser) -> None:
    put(gateway, "on-page", keep="1h")
    gateway.put("on-page", b"x")
    browser.go(f"{gateway.url}/#/topics/on-page")
    until(lambda: "keep: 1h; drop: never" in browser.text("#kept"), "the settings are shown")
    value = "return document.querySelector('#settings').elements.keep.value"
    until(lambda: browser.run(value) == "1h", "the form has them")
    browser.run("window.confirm = () => true")
    browser.run("document.querySelector('#settings').elements.keep.value = '2h,100 records'")
    browser.click("#settings button")
    until(lambda: browser.text("#set") == "set: keep=2h,100 records drop=never", "they are set")
    assert gateway.ask("GET", "/topics/on-page/settings").json()["keep"] == "2h,100 records"
    put(gateway, "on-page", keep="9d")
    browser.run("document.querySelector('#settings').elements.keep.value = '1m'")
    browser.click("#settings button")
    until(lambda: "has other settings meanwhile" in browser.text("#set"), "another change is not overwritten")
    until(lambda: browser.run(value) == "9d", "the form has the settings in force")
    browser.run("document.querySelector('#settings').elements.keep.value = 'x'")
    browser.click("#settings button")
    until(lambda: "keep is none, ever" in browser.text("#set"), "the form of a value is said")
    browser.run("location.hash = '#/topics/another'")
    until(lambda: browser.text("#name") == "another" and browser.text("#set") == "", "another topic is shown")
    shown = value.replace(".value", ".placeholder")
    until(lambda: (browser.run(value), browser.run(shown)) == ("", "none"), "the form has its default in grey")


@in_browser
def test_a_user_without_the_right_to_operate_has_no_form(cluster: Cluster, tmp_path: Path, browser: Browser) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"looker th_{digest(token)} status get=* put=*\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=token) as gateway:
        gateway.put("seen", b"x")
        browser.go(f"{gateway.url}/livez")
        browser.run("sessionStorage.setItem('token', arguments[0])", token)
        browser.go(f"{gateway.url}/#/topics/seen")
        until(lambda: "keep: none; drop: never" in browser.text("#kept"), "the settings are shown")
        until(lambda: "1 servers" in browser.text("#state"), "the rights are known")
        assert browser.run("return document.querySelector('#settings').hidden") is True
    browser.go("about:blank")
