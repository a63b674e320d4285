"""The choice of IPv4 or IPv6 for a socket: by the address, or by the addresses of a name."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from pubsub.base import families
from pubsub.base.families import speaks_ipv6


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://[::1]:5601", True),
        ("tcp://[::]:*", True),
        ("tcp://[fe80::1%eth0]:0", True),
        ("tcp://127.0.0.1:5601", False),
        ("tcp://*:5601", False),
        ("tcp://*:*", False),
        ("tcp://localhost:5601", False),
        ("ipc:///run/[::1]:5601", False),
        ("inproc://[::1]:1", False),
        ("tcp://nonsense", False),
    ],
)
def test_the_family_of_a_literal_address_needs_no_lookup(
    endpoint: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)  # Nothing is looked up.
    assert speaks_ipv6(endpoint) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([socket.AF_INET6], True),
        ([socket.AF_INET6, socket.AF_INET], False),
        ([socket.AF_INET], False),
        ([], False),
        (socket.gaierror("no such name"), False),
        (UnicodeError("a label is too long"), False),
    ],
)
def test_a_name_is_reached_by_ipv6_if_it_has_no_other_address(
    found: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, *_: object, **__: object) -> list[tuple[int]]:
        assert host == "proxy.example"
        if isinstance(found, Exception):
            raise found
        return [(family,) for family in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert speaks_ipv6("tcp://proxy.example:5601") is expected
    assert not families._pending


def test_a_slow_look_up_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), threading.Semaphore(0)

    def look_up(*_: object, **__: object) -> list[tuple[int]]:
        asked.release()
        assert answered.wait(120)
        return [(socket.AF_INET6,)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(families, "LOOKUP_SECONDS", 0.01)
    assert not speaks_ipv6("tcp://slow.example:1")
    monkeypatch.setattr(families, "LOOKUP_SECONDS", 60)
    assert not speaks_ipv6("tcp://slow.example:1")  # At once: the first look-up is under way.
    assert asked.acquire(timeout=120)
    assert not asked.acquire(blocking=False)
    answered.set()
    while "slow.example" in families._pending:
        threading.Event().wait(0.001)
    assert speaks_ipv6("tcp://slow.example:1")
