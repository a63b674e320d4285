"""The requests of operators over HTTP, on a cluster of two servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, Browser
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow


def owner(gateway: Gateway, topic: str) -> list[str]:
    answer = gateway.ask("GET", f"/topics/{topic}")
    return list(answer.json()["owners"]) if answer.status_code == 200 else []


def test_topics_are_moved_and_servers_drained_and_subscriptions_ended(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run(1, 2)
        with Gateway(cluster, tmp_path / "data") as gateway:
            gateway.subscribe("moved", "s")
            gateway.put("moved", b"1")
            (first,) = until(lambda: owner(gateway, "moved"), "somebody holds it")
            other = {"s1": "s2", "s2": "s1"}[first]
            moved = gateway.ask("POST", "/topics/moved/move", {"to": other})
            assert moved.json() == {"topic": "moved", "from": first, "to": other, "moved": True}
            until(lambda: owner(gateway, "moved") == [other], "it has moved")
            assert gateway.ask("PUT", f"/servers/{other}/drain").json() == {
                "server": other,
                "draining": True,
                "moved": 1,
            }
            until(lambda: owner(gateway, "moved") == [first], "it is back")
            assert gateway.ask("POST", "/topics/moved/move", {"to": other}).status_code == 409
            assert gateway.ask("DELETE", f"/servers/{other}/drain").status_code == 200
            gateway.put("moved", b"2")
            assert [one["body"] for one in gateway.take("moved", "s", 2)] == ["1", "2"]
            gateway.put("moved", b"3")
            ended = gateway.ask("DELETE", "/topics/moved/clients/http.s").json()
            assert ended == {"topic": "moved", "client": "http.s", "given_up": 1}
            assert gateway.ask("DELETE", "/topics/moved/clients/http.s").status_code == 404
            if DRIVER is not None:
                in_a_browser(gateway, first, other)


def in_a_browser(gateway: Gateway, first: str, other: str) -> None:
    with Browser() as browser:
        browser.go(f"{gateway.url}/#/topics/moved")
        until(lambda: f"Move to {other}" in browser.text("#moves"), "the button is there")
        browser.run("window.confirm = () => true")
        browser.click("#moves button")
        until(lambda: f"Move to {first}" in browser.text("#moves"), "it has moved")


@pytest.mark.parametrize("body", [{}, [], {"to": 1}, {"to": "s1", "more": 1}, {"to": "a b"}])
def test_an_invalid_move_is_refused(gateway: Gateway, body: object) -> None:
    assert gateway.ask("POST", "/topics/moved/move", body).status_code == 400


def test_a_user_without_the_right_to_operate_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"viewer th_{digest(token)} put=* get=* status\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=token) as gateway:
        assert gateway.ask("POST", "/topics/x/move", {"to": "s1"}).status_code == 403
        assert gateway.ask("DELETE", "/topics/x/clients/c").status_code == 403
        assert gateway.ask("PUT", "/servers/s1/drain").status_code == 403
        assert gateway.ask("DELETE", "/servers/s1/drain").status_code == 403
