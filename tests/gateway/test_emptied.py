"""A gateway with a lost directory continues the subscriptions of its subscribers at the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from sqlite3 import connect

from tests.faults.cluster import Cluster, until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway
from tests.gateway.test_webhooks import hook


def test_a_subscriber_continues_in_a_new_directory_with_doubtful_marks(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "a") as lost:
        lost.subscribe("emptied", "s")
        lost.subscribe("emptied", "unread")
        for body in (b"1", b"2", b"3"):
            lost.put("emptied", body)
        assert [one["body"] for one in lost.poll("emptied", "s", most=2)["messages"]] == ["1", "2"]
        lost.kill()
    with Gateway(cluster, tmp_path / "b") as gateway:
        gateway.subscribe("emptied", "unread")
        assert ["doubtful" in one for one in gateway.take("emptied", "unread", 3)] == [False] * 3
        gateway.subscribe("emptied", "s")
        found = gateway.poll("emptied", "s")["messages"]
        assert [one["body"] for one in found] == ["1", "2", "3"][-len(found) :]  # It may have acknowledged two of them.
        assert all(one["doubtful"] for one in found[:-1])


def test_a_subscriber_that_wants_the_end_gets_no_earlier_message(gateway: Gateway) -> None:
    path = "/topics/unwanted/subscribers/s"
    gateway.subscribe("unwanted", "s")
    for body in (b"1", b"2"):
        gateway.put("unwanted", body)
    assert len(gateway.poll("unwanted", "s", most=1)["messages"]) == 1
    assert gateway.ask("PUT", f"{path}?fresh=yes").status_code == 400
    assert gateway.ask("PUT", f"{path}?fresh=true").status_code == 200
    gateway.put("unwanted", b"3")
    assert [one["body"] for one in gateway.take("unwanted", "s", 1)] == ["3"]


def test_a_webhook_gets_the_doubtful_mark(cluster: Cluster, tmp_path: Path) -> None:
    with Receiver(lambda headers, body: 500) as receiver, Gateway(cluster, tmp_path / "a") as gateway:
        hook(gateway, "doubted", receiver.url)
        gateway.put("doubted", b"1")
        gateway.put("doubted", b"2")
        until(lambda: receiver.requests, "it is tried")
        assert "pubsub-doubtful" not in receiver.requests[0][0]
        assert gateway.stop() == 0
        (file,) = (tmp_path / "a").rglob("http.w.db")
        with closing(connect(file)) as db, db:
            db.execute("UPDATE gateway_mail SET doubtful = number = 1, due = 0")
        receiver.answer = lambda headers, body: 204
        gateway.start()
        until(lambda: len(receiver.taken) == 2, "it has both")
        assert [headers.get("pubsub-doubtful") for headers, _ in receiver.taken] == ["true", None]
