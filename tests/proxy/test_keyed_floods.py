"""A proxy with keys over real sockets: many frames, many handshakes, and too little memory."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import zmq

from pubsub.base.resources import allow_connections
from pubsub.messenger.memory import MemoryGuard
from pubsub.protocol import (
    Heartbeat,
    Outcome,
    encode,
)
from tests.proxy.locked import (
    ADDRESSES,
    SERVES,
    Locked,
    locked,
    outsider,
    pair,
    put,
    raw,
    serves,
)
from tests.proxy.peers import get, periodic, wait_until
from tests.proxy.stage import log_id
from tests.proxy.test_hostile import MEMBERS

# Many, and much


@ADDRESSES
def test_no_frames_of_authorized_peers_stop_the_proxy(tmp_path: Path, addresses: dict[str, None]) -> None:
    draw = Random(11)
    with locked(tmp_path, heartbeat_seconds=30.0, **addresses) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        ann.send(get())
        origin = server.request()[0]
        words = [b"", b"c", b"c" + bytes(9), origin, origin[:12], origin + b"x", b"1-40-0-", bytes(300), b"\xff" * 20]
        words += [
            b"1-40-0-" + encode(each)[0] for each in (put(), get(), periodic({}), Heartbeat("s2"), SERVES, *MEMBERS)
        ]
        for _ in range(1_500):
            for peer in (proxy.store("s2"), ann) if draw.random() < 0.01 else (ann, server):
                raw(peer, *draw.choices(words, k=draw.randint(1, 6)))
        bob = proxy.peer("bob")
        bob.send(get("t", "bob", log="0" * 16))
        while b"log=" not in (frames := server.request())[-1]:
            continue
        server.send(SERVES, origin=frames[0], destination=40, source=0)
        assert bob.status() == SERVES
        assert all(row.server in {"s1", "s2"} for row in proxy.process.core.members.registers.rows.values())
        for table in vars(proxy.process._access.rights).values() if proxy.process._access else ():
            assert not isinstance(table, dict) or len(table) < 50


def test_a_thousand_handshakes_at_once_do_not_block_connected_peers(tmp_path: Path) -> None:
    allow_connections()
    with locked(tmp_path) as proxy:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        context: zmq.Context[bytes] = zmq.Context()
        newcomers = [context.socket(zmq.DEALER) for _ in range(10)]
        for k, socket in enumerate(newcomers):
            own = pair("bob" if k % 2 else "stranger")
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (
                pair("p1").public,
                own.public,
                own.secret,
            )
            for place in range(100):  # A DEALER connects to an address once; from each place it is another one.
                socket.connect(proxy.process.bind.replace("//", f"//127.0.0.{place + 1}:0;"))
        served, longest = 0, 0.0
        deadline = time.monotonic() + 60
        while proxy.count("handshakes_entered") < 502 or proxy.count("handshakes_refused_key") < 500:
            began = time.monotonic()
            assert began < deadline
            assert serves(proxy, server, ann)
            longest = max(longest, time.monotonic() - began)
            served += 1
        context.destroy(0)
        assert served > 10
        assert longest < 5.0
        assert len(proxy.written("refused")) <= 100


def test_keys_stay_required_after_connections_are_closed_for_memory(tmp_path: Path) -> None:
    size = [0]
    proxy = Locked(tmp_path, heartbeat_seconds=0.2)
    proxy.process._guard = MemoryGuard(1_000, lambda: size[0])
    proxy.start()
    try:
        server, ann = proxy.serving("t"), proxy.peer("ann")
        assert serves(proxy, server, ann)
        server.socket.close(0)
        before = proxy.process._clients
        size[0] = 2_000
        wait_until(lambda: proxy.process._clients is not before and bool(proxy.process._connections))
        size[0] = 0
        null = outsider(proxy, proxy.process.bind, "NULL")
        null.send(get())
        wait_until(lambda: proxy.count("handshakes_failed") > 0)
        fresh = proxy.store()
        wait_until(lambda: fresh.announce({"t": log_id("t")}, incarnation=2, change=2).outcome is Outcome.SUCCESS)
        assert serves(proxy, fresh, proxy.peer("bob"), "bob")
        assert not null.socket.poll(0)
    finally:
        proxy.stop()
