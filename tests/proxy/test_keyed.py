"""A proxy with keys over real sockets: who gets in, what each may do there, and what follows when that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Get, Outcome, Put, Status, Subscribe
from tests.proxy.locked import denied, line, locked
from tests.proxy.peers import TCP, get, wait_until
from tests.proxy.stage import log_id

ADDRESSES = pytest.mark.parametrize("addresses", [{}, {"servers": None}], ids=["two ports", "one port"])


def put(topic: str = "t", sender: str = "ann") -> Put:
    return Put(sender, topic, 1, "0" * 16, 1, 0, 0, body=b"x")


@ADDRESSES
def test_who_has_the_right_is_served_as_without_keys(tmp_path: Path, addresses: dict[str, None]) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, client = proxy.serving("t"), proxy.peer("ann")
        for k in range(3):
            client.send(put())
            origin, _, body = server.request()
            assert origin[:1] == b"c"
            assert body == b"x"
            answer = Status("s1", Outcome.SUCCESS, last=k, body=b"y" * 200_000 * k)
            server.send(answer, origin=origin, destination=40, source=0)
            assert client.status() == answer
        assert client.ask(get("unknown-topic", "ann")).outcome is Outcome.DENIED
        assert client.ask(get("new-1")).reason == "no_server_holds_this_topic"


@ADDRESSES
@pytest.mark.parametrize(
    ("message", "why", "sentence"),
    [
        (put("other"), "right", "client ann may not put to other"),
        (put("t", "bob"), "sender", "this key is ann's, not bob's"),
        (get("other"), "right", "client ann may not get from other"),
        (get("t", name="theirs"), "right", "client ann may not use the subscription theirs of t"),
        (get("t", "bob"), "sender", "this key is ann's, not bob's"),
    ],
)
def test_who_has_no_right_is_told_so_and_no_server_hears_of_it(
    tmp_path: Path, addresses: dict[str, None], message: Put | Get, why: str, sentence: str
) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, client = proxy.serving("t", "other"), proxy.peer("ann")
        answer = client.ask(message)
        assert (denied(answer), answer.reason) == (sentence, why)
        client.send(Subscribe("ann", "t", 1, 1))
        assert b"SUBSCRIBE" in server.request()[1]
        assert proxy.count("denied") == 1
        (noted,) = proxy.written("denied")
        assert (noted["user"].split("#")[0], noted["reason"]) == ("client:ann", sentence)


def test_answers_to_what_was_asked_before_a_key_was_revoked_go_to_nobody(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann, bob = proxy.serving("t"), proxy.peer("ann"), proxy.peer("bob")
        ann.send(get())
        ann_asked = server.request()[0]
        bob.send(get("t", "bob"))
        bob_asked = server.request()[0]
        proxy.authorize(line("server", "s1"), line("client", "bob", "put=*", "get=*"))
        answer = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 1), records=1, body=b"secret")
        server.send(answer, origin=ann_asked, destination=40, source=0)
        wait_until(lambda: proxy.count("answers_dropped_rights_changed") == 1)
        server.send(answer, origin=bob_asked, destination=40, source=0)
        assert bob.status() == answer
        assert denied(ann.ask(get())) == "this key is not authorized any more"
        assert not ann.socket.poll(0)


def test_the_report_says_what_the_file_means_and_how_often_what_happened(tmp_path: Path) -> None:
    with locked(tmp_path, bind=TCP) as proxy:
        report = proxy.report()
        assert report["authorized_lines"] == 6
        assert len(report["authorized_digest"]) == 16
        assert report["counters"]["handshakes_entered"] == 1
        assert report["counters"]["servers_under_a_wrong_name"] == 0
