"""Peers that send more than a process can take, read no answers, or announce more topics than there is room for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.protocol import encode
from pubsub.protocol import messages as m
from pubsub.protocol.batch import encode_batch
from pubsub.proxy.in_flight import CLIENT_BYTES_MAX
from pubsub.proxy.process import UNREAD_BYTES_MAX
from pubsub.security.keys import format_public
from pubsub.server.loop import UNSENT_BYTES_MAX
from tests.faults.cluster import Cluster
from tests.faults.hostile import KEYS, LOG, MIB, PORTS, Growth, Peer, Town, framed, raw, with_keys

pytestmark = pytest.mark.faults

BODY = encode_batch([b"x" * MIB])
CHECKSUM = crc32(BODY)

KNOCKS = 300
KNOCKED_ROUNDS = 30
"""Puts and gets that come through meanwhile."""

ONE_OFFENDER = CLIENT_BYTES_MAX + UNREAD_BYTES_MAX + UNSENT_BYTES_MAX
"""What one client, or one peer, can have wait in a process: its large requests and answers, on either side."""

WORKING = 128 * MIB
"""What a process takes while it works on large messages: those in hand, the cache of the store, what is freed late."""


BUSY = "busy_too_many_bytes_under_way"


def send_put(eve: Peer, number: int) -> None:
    """A put of 1 MiB, the next one each time."""
    message = m.Put("eve", "eves", number + 1, LOG, 1, number, CHECKSUM, body=BODY)
    eve.send(framed(message, number + 1, number + 40), seconds=60)


@pytest.fixture(scope="module", params=KEYS, ids=with_keys)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory, keys=request.param) as cluster:
        town = Town(cluster)
        with cluster.client("filler") as filler:
            filler.subscribe("big")
            for _ in range(2):
                filler.put_many("big", [b"y" * MIB] * 8)
        yield town
        town.well.stop()


def test_large_puts_of_a_peer_that_reads_no_answer_are_refused_as_busy(town: Town) -> None:
    growth, before = Growth(town.everyone), town.counters("-")
    with town.peer("clients", reads=False) as eve:
        for first in range(0, 2000, 200):
            for server in town.cluster.servers:  # Not for so long that they are taken for dead; else they may keep up.
                server.pause()
            for number in range(first, first + 100):
                send_put(eve, number)
            for server in town.cluster.servers:
                server.resume()
            for number in range(first + 100, first + 200):
                send_put(eve, number)
            if town.counters("-").get(BUSY, 0) >= before.get(BUSY, 0) + 10:
                break
        town.counted("-", BUSY, before, 10)
        town.unharmed()
    growth.within(ONE_OFFENDER + WORKING)


@pytest.mark.parametrize("name", ["", "all"])
def test_a_peer_that_reads_no_answers_to_its_reads_gets_no_more(town: Town, name: str) -> None:
    growth, before = Growth(town.everyone), town.counters("-")
    with town.peer("clients") as helper:
        helper.confirmed(m.Subscribe("eve", "big", 7, 7, name=name, start="earliest" if name else "latest"))
    with town.peer("clients", reads=False) as eve:
        message = m.Read("eve", "big", None, name=name, records_max=1000)
        for number in range(8_000):
            eve.send(framed(message, number, number + 40), seconds=60)
        town.counted("-", "answers_dropped_unread", before)
        town.unharmed()
    growth.within(ONE_OFFENDER + WORKING)


def test_a_peer_that_reads_no_answers_to_its_gets_gets_no_more(town: Town) -> None:
    growth, before = Growth(town.everyone), town.counters("-")
    with town.peer("clients") as helper:
        helper.confirmed(m.Subscribe("mallory", "big2", 7, 7))
        for number in range(16):
            helper.confirmed(m.Put("mallory", "big2", number + 1, LOG, 1, number, CHECKSUM, body=BODY))
    with town.peer("clients", reads=False) as eve:
        message = m.Get("mallory", "big2", None, 7, 7, records_max=1000)
        for number in range(8_000):
            eve.send(framed(message, number, number + 40), seconds=60)
        town.counted("-", "answers_dropped_unread", before)
        town.unharmed()
    growth.within(ONE_OFFENDER + WORKING)


def test_another_server_that_sends_large_chunks_without_end_is_refused_one_by_one(town: Town) -> None:
    growth = Growth(town.everyone)
    with town.peer("other servers") as eve:
        for number in range(100):
            eve.send(
                framed(m.Transfer("eve", "big", "chunk", LOG, number, LOG, b"{}\n" + BODY * 8), number, number + 40)
            )
        eve.all_taken("other servers")
        assert eve.answers["unknown"] == 101
    town.unharmed()
    growth.within(ONE_OFFENDER + WORKING)


@pytest.mark.parametrize("keys", KEYS, ids=with_keys)
def test_a_server_that_announces_a_million_topics_is_refused(tmp_path: Path, keys: bool) -> None:
    """In a town of its own: what that server holds is never known, so that no topic begins there any more."""
    with Cluster(tmp_path, keys=keys) as cluster:
        town = Town(cluster)
        growth, before = Growth(town.everyone), town.counters("-")
        body = b" ".join([b"topic%d=%s" % (number, LOG.encode()) for number in range(1_000_000)])
        with town.peer("servers") as eve:
            for change in range(1, 4):
                header, _ = encode(m.Periodic("eve", LOG, 1, change, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", 1))
                eve.send([b"", b"%d-40-0-" % change + header, body])
            eve.until_answered("full")
            eve.all_taken("servers")
            town.counted("-", "announcements", before, 3)
            report = town.cluster.report("-")
            assert report["topics_total"] < 1_000
            assert any("beyond topics_max" in text for text in report["warnings"])
            town.unharmed()
        growth.within(4 * len(body) + WORKING)
        town.well.stop()


@pytest.mark.parametrize("town", [True], ids=with_keys, indirect=True)
@pytest.mark.parametrize("port", ["clients", "other servers"])
def test_endless_handshakes_with_unknown_keys_block_no_client(town: Town, port: str) -> None:
    growth, target = Growth(town.everyone), town.behind(port)
    before = town.counters(target)
    curve = town.curve(port)
    assert curve is not None
    knocking = town.cluster.process(f"knocking-{port.replace(' ', '-')}", "-m", "tests.faults.knocking")
    knocking.start(town.endpoint(port), format_public(curve.expected[0]))
    knocking.wait_line("knocking")
    town.counted(target, "handshakes_refused_key", before, KNOCKS)
    town.well.served(KNOCKED_ROUNDS)
    town.unharmed()
    knocking.end()
    growth.within(WORKING)


MEMORY_BYTES_MAX = 256 * MIB


@pytest.mark.parametrize("keys", KEYS, ids=with_keys)
def test_a_peer_with_an_endless_message_is_disconnected_and_the_others_continue(tmp_path: Path, keys: bool) -> None:
    frame = b"\3" + MIB.to_bytes(8, "big") + bytes(MIB)  # Large, and more to come.
    with Cluster(tmp_path, keys=keys) as cluster:
        town = Town(cluster, memory_bytes_max=MEMORY_BYTES_MAX)
        growth = Growth(town.everyone)
        for port in PORTS:
            before = town.counters(town.behind(port))
            if keys:
                with town.peer(port) as eve:  # As many frames as are far too many; all are one and the same bytes.
                    eve.sock.send_multipart([bytes(MIB)] * 2_000, copy=False)
                    town.counted(town.behind(port), "memory_limit_reached", before)
                town.unharmed()
                continue
            with raw(town.endpoint(port), ready=True) as eve, contextlib.suppress(ConnectionError):
                eve.settimeout(60)
                for _ in range(20_000):
                    eve.sendall(frame)
                raise AssertionError("20 GB were taken")
            town.counted(town.behind(port), "memory_limit_reached", before)
            town.unharmed()
        growth.within(3 * MEMORY_BYTES_MAX)
        town.well.stop()
