"""A returned member: it catches up from the stream file, or by a copy of pages during puts; a kill interrupts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import Unavailable
from tests.client.opened import nothing
from tests.faults.alike import compare
from tests.faults.cluster import Process, until
from tests.faults.members import PATIENCE_SECONDS, Members
from tests.faults.relay import DOWN
from tests.faults.test_large_move import memory

pytestmark = pytest.mark.faults

MIB = 1 << 20
STREAM_BYTES = 8 * MIB
STORE_BYTES = 96 * MIB
"""More than the stream keeps, and more than either may take into memory."""

GROWN_BYTES = 80 * MIB
"""What a process may grow by meanwhile: SQLite's cache of pages, recent batches and entries, messages on their way."""

COPIED = "the store is a copy of the primary's now"


class Puts:
    """A client that puts small messages until it is told to stop."""

    def __init__(self, members: Members, topic: str) -> None:
        self.count, self._topic = 0, topic
        self.client = members.cluster.client("small", proxies=members.routing, timeout_seconds=5.0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.01):
            try:
                self.client.put(self._topic, b"%d" % self.count)
            except Unavailable:  # In doubt, and kept.
                continue
            finally:
                self.count += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_SECONDS)
        until(self._flushed, "all is put", PATIENCE_SECONDS)

    def _flushed(self) -> bool:
        try:
            self.client.flush()
        except Unavailable:
            return False
        return True


def owned(members: Members, bob: Any) -> str:
    """A topic that the server with two members has got; bob is subscribed to it."""
    for number in range(10):
        bob.subscribe(f"t{number}")
        if f"t{number}" in members.cluster.report("s1")["topics"]:
            return f"t{number}"
    raise AssertionError("no topic went to s1")


def put_bulk(members: Members, topic: str, size: int) -> int:
    """Put so many bytes; how many messages."""
    alice = members.cluster.client(f"bulk{size}", proxies=members.routing)
    count = size // (256 * 1024)
    for _ in range(count // 8):
        alice.put_many(topic, [b"x" * 256 * 1024] * 8)
    return count // 8 * 8


def take(bob: Any, topic: str, count: int) -> list[bytes]:
    """Exactly so many, and then there is nothing."""
    got: list[bytes] = []
    while len(got) < count:
        batch = bob.get_many(topic, timeout=120.0)
        assert batch, f"{len(got)} of {count} came"
        got += [body[:8] for body in batch.bodies()]
    assert nothing(bob, topic)
    return got


def roles(members: Members) -> tuple[Process, Process]:
    """The primary, and the other one."""
    primary = members.primary()
    return primary, next(member for member in members.members if member is not primary)


def test_a_member_that_lacks_less_than_the_stream_holds_gets_that(tmp_path: Path) -> None:
    with Members(tmp_path, 1, clients=False, standby_stream_bytes_max=STREAM_BYTES) as members:
        bob = members.cluster.client("bob", proxies=members.routing)
        topic = owned(members, bob)
        primary, other = roles(members)
        other.kill()
        count = put_bulk(members, topic, STREAM_BYTES // 2)
        relay = members.between[primary.name]
        before = relay.passed[DOWN]
        other.start()
        until(members.in_sync, "both are in sync again", PATIENCE_SECONDS)
        assert COPIED not in other.errors.read_text()
        assert relay.passed[DOWN] - before >= STREAM_BYTES // 2
        assert len(take(bob, topic, count)) == count
        assert compare(members) == []


@pytest.mark.parametrize("victim", [pytest.param("the standby", marks=pytest.mark.nightly), "the primary"])
def test_a_member_that_lacks_too_much_is_copied_while_puts_continue_and_after_a_kill(
    tmp_path: Path, victim: str
) -> None:
    with Members(tmp_path, 1, clients=False, disk_bytes=512 * MIB, standby_stream_bytes_max=STREAM_BYTES) as members:
        bob = members.cluster.client("bob", proxies=members.routing)
        topic = owned(members, bob)
        primary, other = roles(members)
        relay = members.between[primary.name]
        other.kill()
        count = put_bulk(members, topic, STORE_BYTES)
        puts = Puts(members, topic)
        grown = {process.name: memory(process, "VmRSS") for process in (primary,)}
        other.start()
        other.wait_line("server s1 ready")
        grown[other.name] = memory(other, "VmRSS")
        until(lambda: 20 < (percent(members) or 0) < 90, "some of it is copied", PATIENCE_SECONDS)
        dead = other if victim == "the standby" else primary
        highest = {process.name: memory(process, "VmHWM") for process in (primary, other)}
        before = relay.passed[DOWN]
        dead.kill()
        dead.start()
        until(members.in_sync, "both are in sync again", PATIENCE_SECONDS)
        assert COPIED in other.errors.read_text()
        # What was copied before is not copied again.
        assert relay.passed[DOWN] - before < STORE_BYTES * 0.85
        for process in (primary, other):
            if process is not dead:
                highest[process.name] = memory(process, "VmHWM")
            assert highest[process.name] - grown[process.name] < GROWN_BYTES, process.name
        served = puts.count
        until(lambda: puts.count > served, "puts go on")
        puts.stop()
        got = take(bob, topic, count + puts.count)
        assert [body for body in got if body[:1] != b"x"] == [b"%d" % number for number in range(puts.count)]
        assert compare(members) == []


def percent(members: Members) -> int | None:
    """How much of the store is copied, as the primary says."""
    found: Callable[[str], Any] = members.standby().get
    return found("copied_percent") if found("state") == "copying" else None
