"""Whatever a peer sends to a port: no process ends, none grows beyond a limit, others are served, and it is counted.

A proxy and two servers, real processes, are shared by the tests of this file; a client that behaves well puts and gets
through them all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import messages as m
from tests.faults.cluster import Cluster
from tests.faults.hostile import LOG, MIB, PORTS, Growth, Peer, Town, framed, fuzz

pytestmark = pytest.mark.faults

MESSAGES = 5_000
GROWTH_BYTES_MAX = 64 * MIB
"""By how much a process may grow while it is sent MESSAGES of a few kilobytes."""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory) as cluster:
        town = Town(cluster)
        yield town
        town.well.stop()


@pytest.mark.parametrize("port", PORTS)
def test_arbitrary_and_mutated_messages_harm_nobody_and_are_counted(town: Town, port: str) -> None:
    growth = Growth(town.everyone)
    before = town.counters(town.behind(port))
    with Peer(town.endpoint(port)) as eve:
        for number, frames in enumerate(fuzz(PORTS.index(port), MESSAGES, origin=port == "servers")):
            eve.send(frames)
            if number % 50 == 0:
                eve.take()
        eve.until_answered("refused")
        eve.all_taken(port)
    town.unharmed()
    growth.within(GROWTH_BYTES_MAX)
    for name in ("malformed", "refused"):
        town.counted(town.behind(port), name, before, MESSAGES // 100)


@pytest.mark.parametrize("port", PORTS)
def test_a_version_that_is_not_known_is_refused_by_name(town: Town, port: str) -> None:
    message = m.Transfer("s9", "t", "offer", LOG) if port == "other servers" else m.Subscribe("eve", "kept", 1, 1)
    if port == "servers":
        message = m.Heartbeat("s9")
    origin = b"" if port == "servers" else None
    head, *rest = framed(message)
    target = town.owner if port == "clients" else town.behind(port)
    before = town.counters(target)
    with Peer(town.endpoint(port)) as eve:
        frames = [head.replace(b"!v=1", b"!v=2"), *rest]
        eve.send(frames if origin is None else [origin, *frames])
        eve.until_answered("refused")
    town.counted(target, "refused", before)
