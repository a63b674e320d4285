"""Webhooks, as their receivers see them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.faults.cluster import Cluster, until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway

SECRETS = ["whsec_" + letter * 32 for letter in "AB"]


def hook(gateway: Gateway, topic: str, url: str, name: str = "w", **facts: Any) -> dict[str, Any]:
    answer = gateway.ask("PUT", f"/topics/{topic}/webhooks/{name}", {"url": url, **facts})
    assert answer.status_code in {200, 201}, answer.text
    return dict(answer.json())


def facts(gateway: Gateway, topic: str, name: str = "w") -> dict[str, Any]:
    return dict(gateway.ask("GET", f"/topics/{topic}/webhooks/{name}").json())


def test_messages_arrive_in_order_and_signed_by_the_standard(gateway: Gateway) -> None:
    with Receiver() as receiver:
        made = hook(gateway, "hooked", receiver.url)
        ids = [gateway.put("hooked", b'{"n": %d}' % number)["id"] for number in range(5)]
        until(lambda: len(receiver.taken) == 5, "all arrive")
        for headers, body in receiver.taken:
            assert Webhook(made["secret"]).verify(body, headers)
        assert [headers["webhook-id"] for headers, _ in receiver.taken] == ids
        assert receiver.bodies() == [b'{"n": %d}' % number for number in range(5)]
        until(lambda: facts(gateway, "hooked")["delivered"] == 5, "it is counted")


def test_either_of_two_secrets_verifies(gateway: Gateway) -> None:
    with Receiver() as receiver:
        assert "secret" not in hook(gateway, "rotated", receiver.url, secrets=SECRETS)
        gateway.put("rotated", b"{}")
        until(lambda: receiver.taken, "it arrives")
        headers, body = receiver.taken[0]
        for secret in SECRETS:
            assert Webhook(secret).verify(body, headers) == {}
        hook(gateway, "rotated", receiver.url, secrets=SECRETS[:1])
        gateway.put("rotated", b"[]")
        until(lambda: len(receiver.taken) == 2, "the next arrives")
        assert receiver.taken[1][0]["webhook-signature"].count("v1,") == 1


def test_a_failed_delivery_is_repeated_under_the_same_id_and_later_ones_wait(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 500) as receiver:
        hook(gateway, "failing", receiver.url)
        gateway.put("failing", b"first")
        gateway.put("failing", b"second")
        until(lambda: receiver.requests, "the first is tried")
        until(lambda: facts(gateway, "failing")["failed"] == 1, "it failed")
        receiver.answer = lambda headers, body: 200
        assert gateway.ask("POST", "/topics/failing/webhooks/w/retry").json() == {"retried": 1}
        until(lambda: len(receiver.taken) == 2, "both arrive")
        assert receiver.bodies() == [b"first", b"second"]
        assert {headers["webhook-id"] for headers, body in receiver.requests if body == b"first"} == {
            receiver.taken[0][0]["webhook-id"]
        }


def test_a_receiver_that_answers_gone_ends_the_webhook_and_a_retry_restarts_it(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 410) as receiver:
        hook(gateway, "ended", receiver.url)
        gateway.put("ended", b"x")
        until(lambda: facts(gateway, "ended")["state"] == "ended", "it ends")
        assert "410" in facts(gateway, "ended")["reason"]

        def dead_letters() -> list[dict[str, Any]]:
            return list(gateway.ask("GET", "/topics/ended/webhooks/w/dead-letters").json()["dead_letters"])

        until(lambda: [one["body"] for one in dead_letters()] == ["x"], "what it had is a dead letter")
        (letter,) = dead_letters()
        assert (letter["attempts"], letter["error"]) == (1, "status 410")
        assert abs(letter["failed_at"] / 1e6 - time.time()) < 300
        named = {name: letter[name] for name in ("id", "error", "attempts", "failed_at")}
        assert facts(gateway, "ended")["last_failure"] == named
        receiver.answer = lambda headers, body: 204
        assert gateway.ask("POST", "/topics/ended/webhooks/w/redrive").json() == {"redriven": 1}
        until(lambda: receiver.bodies() == [b"x"], "it arrives")
        assert dead_letters() == []
        assert facts(gateway, "ended")["state"] == "active"


def test_old_dead_letters_are_purged(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 410) as receiver:
        hook(gateway, "purged", receiver.url)
        gateway.put("purged", b"x")
        until(lambda: facts(gateway, "purged")["state"] == "ended", "it ends")
        letters = "/topics/purged/webhooks/w/dead-letters"
        until(lambda: gateway.ask("GET", letters).json()["dead_letters"], "it is a dead letter")
        assert gateway.ask("DELETE", letters).status_code == 400
        assert gateway.ask("DELETE", f"{letters}?age=-1").status_code == 400
        assert gateway.ask("DELETE", f"{letters}?age=3600").json() == {"purged": 0}
        assert gateway.ask("DELETE", f"{letters}?age=0").json() == {"purged": 1}
        assert gateway.ask("GET", letters).json()["dead_letters"] == []


def test_the_failure_of_a_delivery_is_shown_while_it_is_repeated(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 503) as receiver:
        assert hook(gateway, "told", receiver.url)["last_failure"] is None
        made = gateway.put("told", b"x")
        last = until(lambda: facts(gateway, "told")["last_failure"], "the failure is told")
        assert (last["id"], last["error"], last["attempts"]) == (made["id"], "status 503", 1)


def test_an_ended_webhook_keeps_its_dead_letters_over_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    with Receiver(lambda headers, body: 410) as receiver, Gateway(cluster, tmp_path / "restarted") as gateway:
        hook(gateway, "restarted", receiver.url)
        gateway.put("restarted", b"x")
        until(lambda: facts(gateway, "restarted")["state"] == "ended", "it ends")
        before = facts(gateway, "restarted")
        gateway.kill()
        gateway.start()
        after = facts(gateway, "restarted")
        assert (after["dead_letters"], after["last_failure"]) == (1, before["last_failure"])


def test_a_dead_and_a_slow_receiver_delay_no_other(gateway: Gateway) -> None:
    released = threading.Event()

    def slow(headers: dict[str, str], body: bytes) -> int:
        released.wait(120)
        return 200

    with Receiver(slow) as first, Receiver() as second:
        hook(gateway, "slow", first.url, "slow")
        hook(gateway, "slow", "http://127.0.0.1:9/", "dead")
        hook(gateway, "slow", second.url, "quick")
        for number in range(20):
            gateway.put("slow", b"%d" % number)
        until(lambda: len(second.taken) == 20, "the quick one has all")
        assert len(first.requests) <= 1
        released.set()
        until(lambda: len(first.taken) == 20, "the slow one gets all in the end")
        found = gateway.ask("GET", "/topics/slow/webhooks").json()["webhooks"]
        assert [one["name"] for one in found] == ["dead", "quick", "slow"]
        assert found[0]["delivered"] == 0


def test_a_gateway_that_is_killed_delivers_everything_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    with Receiver() as receiver, Gateway(cluster, tmp_path / "killed") as gateway:
        hook(gateway, "killed", receiver.url)
        client = cluster.client("putting")
        for number in range(60):
            client.put("killed", b"%d" % number)
            if number % 20 == 10:
                gateway.kill()
                gateway.start()
        until(lambda: len(receiver.bodies()) == 60, "all arrive")
        assert receiver.bodies() == [b"%d" % number for number in range(60)]


def test_a_webhook_that_is_removed_sends_nothing_more(gateway: Gateway) -> None:
    with Receiver() as receiver:
        hook(gateway, "removed", receiver.url)
        gateway.put("removed", b"x")
        until(lambda: receiver.taken, "it arrives")
        assert gateway.ask("DELETE", "/topics/removed/webhooks/w").status_code == 204
        assert gateway.ask("GET", "/topics/removed/webhooks/w").status_code == 404
        gateway.put("removed", b"y")
        hook(gateway, "removed", receiver.url)
        gateway.put("removed", b"z")
        until(lambda: len(receiver.taken) == 2, "what is put later arrives")
        assert receiver.bodies() == [b"x", b"z"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"url": "ftp://x/"},
        {"url": "http:///x"},
        {"url": "http://x:y/"},
        {"url": "http://x/", "more": 1},
        {"url": "http://x/" + "x" * 2048},
        {"url": "http://x/", "secrets": []},
        {"url": "http://x/", "secrets": ["whsec_short"]},
        {"url": "http://x/", "secrets": SECRETS + SECRETS},
        b"{",
    ],
)
def test_an_invalid_webhook_is_refused(gateway: Gateway, body: Any) -> None:
    assert gateway.ask("PUT", "/topics/hooked/webhooks/bad", body).status_code == 400


def test_a_name_is_a_subscriber_or_a_webhook(gateway: Gateway) -> None:
    gateway.subscribe("either", "s")
    assert gateway.ask("PUT", "/topics/either/webhooks/s", {"url": "http://127.0.0.1:9/"}).status_code == 409
    hook(gateway, "either", "http://127.0.0.1:9/", "w")
    assert gateway.ask("PUT", "/topics/either/subscribers/w").status_code == 409
    assert gateway.ask("GET", "/topics/either/subscribers/w/messages").status_code == 409


def test_a_receivers_password_and_query_are_used_and_shown_nowhere(gateway: Gateway) -> None:
    with Receiver(lambda headers, body: 503) as receiver:
        url = receiver.url.replace("http://", "http://hook:Passw0rd@") + "?key=Qu3ry"
        shown = [str(hook(gateway, "masked", url))]
        gateway.put("masked", b"x")
        until(lambda: facts(gateway, "masked")["failed"] == 1, "it failed")
        assert receiver.requests[0][0]["authorization"] == "Basic aG9vazpQYXNzdzByZA=="
        assert receiver.paths == ["/hook?key=Qu3ry"]
        receiver.answer = lambda headers, body: 204
        gateway.ask("POST", "/topics/masked/webhooks/w/retry")
        until(lambda: facts(gateway, "masked")["delivered"] == 1, "it is delivered")
        hook(gateway, "masked", "http://hook:Passw0rd@127.0.0.1:9/hook?key=Qu3ry")
        gateway.put("masked", b"y")
        until(lambda: facts(gateway, "masked")["last_failure"], "nobody is there")
        for path in ("/topics/masked/webhooks", "/topics/masked/webhooks/w", "/topics/masked/webhooks/w/dead-letters"):
            shown.append(gateway.ask("GET", path).text)
        shown += gateway.process.errors.read_text().splitlines() + gateway.process.output.read_text().splitlines()
        assert not [text for text in shown if "Passw0rd" in text or "Qu3ry" in text]
        assert facts(gateway, "masked")["url"] == "http://***@127.0.0.1:9/hook?***"
        masked = gateway.ask("PUT", "/topics/masked/webhooks/w", {"url": "http://***@127.0.0.1:9/hook?***"})
        assert masked.status_code == 400


@pytest.mark.parametrize("query", ["max=0", "max=x", "after=-1", "beginnings=yes", "maxx=1"])
def test_dead_letters_are_requested_by_known_parameters(gateway: Gateway, query: str) -> None:
    hook(gateway, "asked", "http://127.0.0.1:9/")
    assert gateway.ask("GET", f"/topics/asked/webhooks/w/dead-letters?{query}").status_code == 400
    assert gateway.ask("GET", "/topics/asked/webhooks/w/dead-letters?max=1&after=0&beginnings=true").status_code == 200
