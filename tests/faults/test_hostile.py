"""Hostile messages to a port: no process ends, none grows beyond a limit, others are served, and the counters rise.

A proxy and two servers, real processes, are shared by the tests of this file; a client that behaves well puts and gets
through them all the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pubsub.protocol import messages as m
from pubsub.security.pairs import new_pair
from tests.faults.cluster import Cluster
from tests.faults.fuzzing import NAMES, fuzz
from tests.faults.hostile import KEYS, LOG, MIB, PORTS, Growth, Peer, Town, framed, with_keys

pytestmark = pytest.mark.faults

MESSAGES = 5_000
GROWTH_BYTES_MAX = 64 * MIB
"""By how much a process may grow while it is sent MESSAGES of a few kilobytes."""


@pytest.fixture(scope="module", params=KEYS, ids=with_keys)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory, keys=request.param) as cluster:
        town = Town(cluster)
        yield town
        town.well.stop()


@pytest.mark.parametrize("port", PORTS)
def test_arbitrary_and_mutated_messages_do_no_harm_and_are_counted(town: Town, port: str) -> None:
    growth = Growth(town.everyone)
    before = town.counters(town.behind(port))
    # With keys a server speaks under its own name or not at all: so it may well try to be one of the others.
    posing = town.cluster.keys is not None and port != "clients"
    names = ("eve", "eve", "eve", town.owner, town.other) if posing else NAMES
    with town.peer(port) as eve:
        for number, frames in enumerate(fuzz(PORTS.index(port), MESSAGES, port == "servers", names)):
            eve.send(frames)
            if number % 50 == 0:
                eve.take()
        eve.until_answered("refused")
        eve.all_taken(port)
    town.unharmed()
    growth.within(GROWTH_BYTES_MAX)
    for name in ("malformed", "refused", *["servers_under_a_wrong_name"] * posing):
        town.counted(town.behind(port), name, before, MESSAGES // 200)


@pytest.mark.parametrize("port", PORTS)
def test_a_version_that_is_not_known_is_refused_by_name(town: Town, port: str) -> None:
    message = m.Transfer("eve", "t", "offer", LOG) if port == "other servers" else m.Subscribe("eve", "kept", 1, 1)
    if port == "servers":
        message = m.Heartbeat("eve")
    origin = b"" if port == "servers" else None
    head, *rest = framed(message)
    target = town.owner if port == "clients" else town.behind(port)
    before = town.counters(target)
    with town.peer(port) as eve:
        frames = [head.replace(b"!v=1", b"!v=2"), *rest]
        eve.send(frames if origin is None else [origin, *frames])
        eve.until_answered("refused")
    town.counted(target, "refused", before)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("town", [True], ids=with_keys, indirect=True)
def test_no_message_of_a_peer_without_a_known_key_is_read(town: Town, port: str) -> None:
    target = town.behind(port)
    before = town.counters(target)
    stranger = town.curve(port, new_pair())
    with Peer(town.endpoint(port)) as none, Peer(town.endpoint(port), curve=stranger) as unknown:
        for frames in fuzz(PORTS.index(port), 500, port == "servers", ("eve",)):
            for peer in (none, unknown):
                with contextlib.suppress(zmq.Again):  # Who was refused already has nobody to send to.
                    peer.sock.send_multipart(frames, zmq.NOBLOCK)
        town.counted(target, "handshakes_refused_key", before)
        town.counted(target, "handshakes_failed", before)
        town.unharmed()
        for peer in (none, unknown):
            peer.take()
            assert peer.answers == {}
    after = town.counters(target)
    for name in ("malformed", "refused", "denied", "servers_under_a_wrong_name"):
        assert after.get(name, 0) == before.get(name, 0), name
