"""A proxy with keys over real sockets: the effects of a changed access list."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from tests.proxy.locked import (
    ADDRESSES,
    SERVES,
    USUAL,
    denied,
    line,
    locked,
    put,
    serves,
    write,
)
from tests.proxy.peers import get, wait_until

# The file changes


@ADDRESSES
def test_answers_to_requests_from_before_a_revocation_are_dropped(tmp_path: Path, addresses: dict[str, None]) -> None:
    with locked(tmp_path, **addresses) as proxy:
        server, ann, bob = proxy.serving("t"), proxy.peer("ann"), proxy.peer("bob")
        ann.send(get())
        ann_asked = server.request()[0]
        bob.send(get("t", "bob"))
        bob_asked = server.request()[0]
        proxy.authorize(line("server", "s1"), line("client", "bob", "put=*", "get=*"))
        server.send(SERVES, origin=ann_asked, destination=40, source=0)
        wait_until(lambda: proxy.count("answers_dropped_rights_changed") == 1)
        server.send(SERVES, origin=bob_asked, destination=40, source=0)
        assert bob.status() == SERVES
        assert denied(ann.ask(get())) == "this key is not authorized any more"
        again = proxy.peer("ann")
        again.socket.sndtimeo = 0
        with suppress(zmq.Again):  # After the refusal the socket has no connection that takes a message.
            again.send(get())
        wait_until(lambda: proxy.count("handshakes_refused_key") == 1)
        assert not again.socket.poll(0)
        assert not ann.socket.poll(0)


def test_a_removed_right_ends_the_requests_made_by_it(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        asked = server.request()[0]
        proxy.authorize(*USUAL[:3], line("client", "ann", "put=t"))
        server.send(SERVES, origin=asked, destination=40, source=0)
        wait_until(lambda: proxy.count("answers_dropped_rights_changed") == 1)
        assert denied(ann.ask(get())) == "client ann may not get from t"
        ann.send(put())
        server.send(SERVES, origin=server.request()[0], destination=40, source=0)
        assert ann.status() == SERVES


def test_a_client_whose_id_left_its_line_is_asked_to_connect_again(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        assert serves(proxy, server, ann)
        proxy.authorize(*USUAL[:3], line("client", "a*", "get=t", key="ann"))
        assert denied(ann.ask(get())) == "this key is authorized as client a* since it connected: connect again"
        assert serves(proxy, server, proxy.peer("ann"))


@pytest.mark.parametrize("content", [None, b"", b"client ann nonsense\n", b"half"], ids=str)
def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, content: bytes | None) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        whole = proxy.authorized.read_bytes()
        before = proxy.report()
        if content is None:
            proxy.authorized.unlink()
        else:
            proxy.authorized.write_bytes(whole[:-9] if content == b"half" else content)
        wait_until(lambda: proxy.count("reload_failed") == 1)
        assert serves(proxy, server, ann)
        assert serves(proxy, server, proxy.peer("bob"), "bob")
        wait_until(lambda: any(str(proxy.authorized) in text for text in proxy.report()["problems"]))
        assert proxy.report()["authorized_digest"] == before["authorized_digest"]
        proxy.authorized.write_bytes(whole)
        wait_until(lambda: proxy.count("reloads") >= 1)
        wait_until(lambda: proxy.report()["problems"] == before["problems"] == [])


def test_the_access_list_is_checked_without_a_signal(tmp_path: Path) -> None:
    with locked(tmp_path, heartbeat_seconds=30.0) as proxy:
        server = proxy.serving("t")
        write(proxy.authorized, *USUAL, line("client", "late", "get=t"))
        began = time.monotonic()
        wait_until(lambda: proxy.count("reloads") == 1)
        assert time.monotonic() - began < 5.0, "about a second, on a quiet machine"
        assert serves(proxy, server, proxy.peer("late"), "late")


def test_a_reload_every_50_ms_disturbs_no_client_with_an_unchanged_line(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        waits = server.request()[0]
        end, turns, served = time.monotonic() + 2.0, 0, 0
        while time.monotonic() < end:
            write(proxy.authorized, *USUAL, *([line("client", "late", "get=t")] if turns % 2 else []))
            proxy.process.hang_up()
            turns += 1
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                assert serves(proxy, server, ann)
                served += 1
        wait_until(lambda: proxy.count("reloads") > 10)
        server.send(SERVES, origin=waits, destination=40, source=0)
        assert ann.status() == SERVES, "also what was asked before all of them"
        assert served > turns
        assert proxy.count("denied") == proxy.count("answers_dropped_rights_changed") == 0
        assert proxy.count("handshakes_entered") == 2, "nobody had to come again"
