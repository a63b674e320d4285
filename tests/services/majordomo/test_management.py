"""The management answers of a broker (RFC 8)."""

from __future__ import annotations

import json

import pytest

from pubsub.services.core.majordomo.management import SHOWN_MAX
from tests.services.majordomo.brokers import DISCONNECT, FINAL, READY, Peers


def asked(peers: Peers, name: bytes, body: bytes, version: int = 1) -> tuple[bytes, ...]:
    (told,) = peers.call(b"c", name, body, version=version)
    lead = (b"c", b"", b"MDPC01", name) if version == 1 else (b"c", b"MDPC02", b"\x03", name)
    assert told[:4] == lead
    return told[4:]


@pytest.mark.parametrize("version", [1, 2])
def test_a_service_exists_while_it_has_a_worker(version: int) -> None:
    peers = Peers()
    peers.call(b"c", b"echo", b"x")
    assert asked(peers, b"mmi.service", b"echo", version) == (b"404",)
    peers.worker(b"w", READY, b"echo")
    assert asked(peers, b"mmi.service", b"echo", version) == (b"200",)


def test_the_number_of_workers_of_a_service_is_reported() -> None:
    peers = Peers()
    assert asked(peers, b"mmi.workers", b"echo") == (b"200", b"0")
    peers.worker(b"1", READY, b"echo")
    peers.worker(b"2", READY, b"echo")
    assert asked(peers, b"mmi.workers", b"echo") == (b"200", b"2")


def test_an_unknown_management_request_is_not_implemented() -> None:
    peers = Peers()
    assert asked(peers, b"mmi.", b"x") == (b"501",)
    assert asked(peers, b"mmi.other", b"x") == (b"501",)
    assert peers.broker.services == {}


def test_a_report_names_services_workers_and_waiting_requests() -> None:
    peers = Peers()
    peers.worker(b"1", READY, b"busy")
    for _ in range(3):
        peers.call(b"c", b"busy", b"x")
    peers.call(b"c", b"none", b"x")
    peers.now += 4.0
    code, text = asked(peers, b"mmi.report", b"")
    assert code == b"200"
    assert json.loads(text)["services"] == [
        {"name": "busy", "workers": 1, "idle": 0, "waiting": 2, "longest_seconds": 4.0, "answered": 0, "given_up": 0},
        {"name": "none", "workers": 0, "idle": 0, "waiting": 1, "longest_seconds": 0.0, "answered": 0, "given_up": 0},
    ]


def test_a_report_of_many_services_is_bounded_and_says_so() -> None:
    peers = Peers()
    for n in range(SHOWN_MAX + 5):
        peers.call(b"c", b"s%d" % n, b"x")
    report = json.loads(asked(peers, b"mmi.report", b"")[1])
    assert len(report["services"]) == SHOWN_MAX
    assert report["services_in_all"] == SHOWN_MAX + 5


def test_a_client_learns_how_many_of_its_own_requests_are_pending() -> None:
    peers = Peers()
    pending = (b"mmi.pending", b"echo")
    assert asked(peers, *pending) == (b"200", b"0")
    peers.call(b"c", b"echo", b"x")
    assert asked(peers, *pending) == (b"200", b"1")
    peers.worker(b"w", READY, b"echo")
    peers.call(b"c", b"echo", b"x")
    peers.call(b"other", b"echo", b"x")
    assert asked(peers, *pending) == (b"200", b"2")
    assert asked(peers, b"mmi.pending", b"shout") == (b"200", b"0")
    assert peers.call(b"nobody", *pending)[0][4:] == (b"200", b"0")
    peers.worker(b"w", FINAL, b"c", b"", b"done")
    assert asked(peers, *pending) == (b"200", b"1")
    peers.worker(b"w", DISCONNECT)
    assert asked(peers, *pending) == (b"200", b"0")
