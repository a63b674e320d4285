"""A process that is too large, and binding again an address that was just released."""

import os

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger import memory
from pubsub.messenger.memory import LOOK_SECONDS, PAUSE_SECONDS, MemoryGuard, once_free, resident_bytes
from pubsub.messenger.sockets import open_router


class Process:
    """One that is as large as it is said to be, looked at as often as it can be."""

    def __init__(self, limit):
        self.size, self.now = 10, 0.0
        self.guard = MemoryGuard(limit, lambda: self.size)

    def exceeded(self, size, wait=LOOK_SECONDS):
        self.size = size
        self.now += wait
        return self.guard.exceeded(self.now)


def test_an_exceeded_limit_is_reported_once():
    process = Process(100)
    assert not process.exceeded(100)
    assert process.exceeded(101)
    assert not process.exceeded(500)  # It is given time.
    assert not process.exceeded(50, PAUSE_SECONDS)
    assert process.exceeded(101)


def test_memory_that_stays_large_is_ignored_until_it_has_grown():
    process = Process(100)
    assert process.exceeded(200)
    assert not process.exceeded(180, PAUSE_SECONDS)
    assert not any(process.exceeded(220) for _ in range(10))
    assert process.exceeded(230)
    assert not process.exceeded(50, PAUSE_SECONDS)
    assert process.exceeded(101)


def test_memory_that_shrinks_again_has_the_old_limit():
    process = Process(100)
    assert process.exceeded(200)
    assert not process.exceeded(180, PAUSE_SECONDS)
    assert not process.exceeded(100)
    assert not process.exceeded(150), "it has not grown by a quarter"
    assert not process.exceeded(99)
    assert process.exceeded(101)


def test_a_guard_without_a_limit_does_not_look():
    guard = MemoryGuard(0, lambda: 1 << 60)
    assert guard.wait_ms is None
    assert not guard.exceeded(1.0)


def test_a_guard_looks_at_its_interval_only():
    looks = []
    guard = MemoryGuard(100, lambda: looks.append(1) or 1)
    for step in range(1000):
        guard.exceeded(step / 1000)
    assert len(looks) <= 1 / LOOK_SECONDS + 1


def test_this_process_has_a_size():
    assert 1_000_000 < resident_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_an_address_is_bound_as_soon_as_it_is_free(monkeypatch):
    with zmq.Context() as context:
        sock, endpoint = open_router(context, "tcp://127.0.0.1:0")
        sock.close(0)
        again, bound = once_free(lambda: open_router(context, endpoint))
        assert bound == endpoint
        monkeypatch.setattr(memory, "BIND_SECONDS", 0.05)
        with pytest.raises(ConfigurationError, match="in use"):
            once_free(lambda: open_router(context, endpoint))
        again.close(0)
        context.destroy(0)
