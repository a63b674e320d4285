"""The Majordomo broker: each state of a worker with each event, and the replies to the clients."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Asked
from tests.services.majordomo.brokers import DISCONNECT, FINAL, HEARTBEAT, LEADS, PARTIAL, READY, Peers

VERSIONS = (1, 2)


def in_state(state: str, version: int) -> Peers:
    """Peers with a worker "w" in this state; one that is busy works for the client "c"."""
    peers = Peers()
    if state != "unknown":
        peers.worker(b"w", READY, b"echo", version=version)
    if state == "busy":
        peers.call(b"c", b"echo", b"hello")
    if state == "disconnected":
        peers.worker(b"w", READY, b"echo", version=version)
    return peers


def state_of(peers: Peers) -> str:
    worker = peers.broker.workers.get(b"w")
    if worker is None:
        return "unknown"
    return "idle" if worker.request is None else "busy"


EVENTS = {
    "READY": (READY, b"echo"),
    "READY for the broker's own": (READY, b"mmi.mine"),
    "READY without a name": (READY,),
    "reply to its client": (FINAL, b"c", b"", b"hello"),
    "reply to another": (FINAL, b"other", b"", b"hello"),
    "reply without a body": (FINAL, b"c", b""),
    "reply without an empty frame": (FINAL, b"c", b"hello"),
    "HEARTBEAT": (HEARTBEAT,),
    "HEARTBEAT with more": (HEARTBEAT, b"more"),
    "DISCONNECT": (DISCONNECT,),
}
D = "DISCONNECT"
TABLE = {
    # event: by state, the state then and what the worker is told
    "READY": {"unknown": ("idle", ""), "idle": ("unknown", D), "busy": ("unknown", D), "disconnected": ("idle", "")},
    "READY for the broker's own": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", D)),
    "READY without a name": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", "")),
    "reply to its client": {
        "unknown": ("unknown", D),
        "idle": ("unknown", D),
        "busy": ("idle", ""),
        "disconnected": ("unknown", ""),
    },
    "reply to another": {
        "unknown": ("unknown", D),
        "idle": ("unknown", D),
        "busy": ("unknown", D),
        "disconnected": ("unknown", ""),
    },
    "reply without a body": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", "")),
    "reply without an empty frame": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", "")),
    "HEARTBEAT": {
        "unknown": ("unknown", D),
        "idle": ("idle", ""),
        "busy": ("busy", ""),
        "disconnected": ("unknown", ""),
    },
    "HEARTBEAT with more": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", "")),
    "DISCONNECT": dict.fromkeys(("unknown", "idle", "busy", "disconnected"), ("unknown", "")),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", ["unknown", "idle", "busy", "disconnected"])
def test_each_message_of_a_worker_is_answered_in_each_of_its_states(state: str, event: str, version: int) -> None:
    peers = in_state(state, version)
    command, *frames = EVENTS[event]
    told = [message for message in peers.worker(b"w", command, *frames, version=version) if message[0] == b"w"]
    assert (state_of(peers), told) == (
        TABLE[event][state][0],
        [peers.bye(b"w", version)] if TABLE[event][state][1] else [],
    )
    forwarded = state == "busy" and event == "reply to its client"
    assert peers.broker.counters["requests_given_up"] == (state == "busy" and event != "HEARTBEAT" and not forwarded)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_command_drops_the_worker_in_silence(version: int) -> None:
    peers = in_state("idle", version)
    assert peers.raw(b"w", *LEADS[version], b"\x09") == []
    assert state_of(peers) == "unknown"
    assert peers.broker.counters["invalid_command"] == 1


def test_a_worker_of_another_version_must_begin_anew() -> None:
    peers = in_state("busy", 1)
    assert peers.worker(b"w", FINAL, b"c", b"", b"x", version=2) == [peers.bye(b"w", 2)]
    assert state_of(peers) == "unknown"


@pytest.mark.parametrize("of_client", VERSIONS)
@pytest.mark.parametrize("of_worker", VERSIONS)
def test_both_versions_share_one_socket(of_client: int, of_worker: int) -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo", version=of_worker)
    assert peers.call(b"c", b"echo", b"one", b"two", version=of_client) == [
        peers.given(b"w", b"c", b"one", b"two", version=of_worker)
    ]
    lead = (b"", b"MDPC01") if of_client == 1 else (b"MDPC02", b"\x03")
    assert peers.worker(b"w", FINAL, b"c", b"", b"1", b"2", version=of_worker) == [(b"c", *lead, b"echo", b"1", b"2")]


def test_a_client_that_knows_parts_gets_them_as_they_come() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo", version=2)
    peers.call(b"c", b"echo", b"x", version=2)
    assert peers.worker(b"w", PARTIAL, b"c", b"", b"1", version=2) == [(b"c", b"MDPC02", b"\x02", b"echo", b"1")]
    assert peers.worker(b"w", FINAL, b"c", b"", b"2", version=2) == [(b"c", b"MDPC02", b"\x03", b"echo", b"2")]


def test_a_client_without_parts_gets_one_reply() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo", version=2)
    peers.call(b"c", b"echo", b"x", version=1)
    assert peers.worker(b"w", PARTIAL, b"c", b"", b"1", version=2) == []
    assert peers.worker(b"w", PARTIAL, b"c", b"", b"2", b"3", version=2) == []
    assert peers.worker(b"w", FINAL, b"c", b"", b"4", version=2) == [
        (b"c", b"", b"MDPC01", b"echo", b"1", b"2", b"3", b"4")
    ]


def test_parts_beyond_the_limit_end_in_no_reply_and_a_worker_that_is_free() -> None:
    peers = Peers(waiting_bytes_max=2_000)
    peers.worker(b"w", READY, b"echo", version=2)
    peers.call(b"c", b"echo", b"x", version=1)
    for _ in range(4):
        assert peers.worker(b"w", PARTIAL, b"c", b"", b"x" * 500, version=2) == []
    assert peers.worker(b"w", FINAL, b"c", b"", b"end", version=2) == []
    assert peers.broker.counters["requests_given_up"] == 1
    assert peers.call(b"d", b"echo", b"y") == [peers.given(b"w", b"d", b"y", version=2)]


def test_the_worker_that_has_been_free_for_longest_is_next() -> None:
    peers = Peers()
    for worker in (b"1", b"2", b"3"):
        peers.worker(worker, READY, b"echo")
    order = [peers.call(b"c", b"echo", b"%d" % n)[0][0] for n in range(3)]
    for worker in (b"2", b"3", b"1"):
        peers.worker(worker, FINAL, b"c", b"", b"x")
    order += [peers.call(b"c", b"echo", b"%d" % n)[0][0] for n in range(3)]
    assert order == [b"1", b"2", b"3", b"2", b"3", b"1"]


def test_requests_wait_in_order_and_a_worker_gets_the_next_before_the_reply_is_sent() -> None:
    peers = Peers()
    for n in range(3):
        assert peers.call(b"c%d" % n, b"echo", b"%d" % n) == []
    assert peers.worker(b"w", READY, b"echo") == [peers.given(b"w", b"c0", b"0")]
    assert peers.worker(b"w", FINAL, b"c0", b"", b"r") == [
        peers.given(b"w", b"c1", b"1"),
        (b"c0", b"", b"MDPC01", b"echo", b"r"),
    ]


def test_a_request_that_no_worker_begins_in_time_is_given_up() -> None:
    peers = Peers(request_seconds=10.0)
    peers.call(b"c", b"echo", b"old")
    peers.pass_time(6.0)
    peers.call(b"c", b"echo", b"young")
    peers.pass_time(5.0)
    assert peers.broker.counters["requests_expired"] == 1
    assert peers.worker(b"w", READY, b"echo") == [peers.given(b"w", b"c", b"young")]


def test_a_service_without_workers_and_requests_is_forgotten() -> None:
    peers = Peers(request_seconds=10.0)
    peers.call(b"c", b"echo", b"x")
    peers.pass_time(11.0)
    peers.worker(b"w", READY, b"other")
    peers.worker(b"w", DISCONNECT)
    assert peers.broker.services == {}
    assert peers.broker.backlog.bytes == 0
    assert peers.broker.timer() is None


def test_waiting_requests_stay_within_the_limit() -> None:
    peers = Peers(requests_max=2)
    for n in range(5):
        peers.call(b"c", b"echo", b"%d" % n)
    assert peers.broker.counters["requests_refused"] == 3
    assert len(peers.broker.services[b"echo"].requests) == 2


def test_waiting_bytes_stay_within_the_limit() -> None:
    peers = Peers(waiting_bytes_max=10_000)
    for _ in range(5):
        peers.call(b"c", b"echo", b"x" * 4_000)
    assert peers.broker.counters["requests_refused"] == 3
    assert peers.broker.backlog.bytes <= 10_000


def test_a_request_too_large_to_wait_leaves_no_service_behind() -> None:
    peers = Peers(waiting_bytes_max=1_000)
    peers.call(b"c", b"echo", b"x" * 4_000)
    assert peers.broker.services == {}


def test_services_and_workers_stay_within_the_limit() -> None:
    peers = Peers(services_max=2, workers_max=2)
    peers.worker(b"1", READY, b"one")
    peers.call(b"c", b"two", b"x")
    assert peers.worker(b"2", READY, b"three") == [peers.bye(b"2")]
    peers.call(b"c", b"three", b"x")
    assert peers.broker.counters["services_refused"] == 2
    peers.worker(b"2", READY, b"one")
    assert peers.worker(b"3", READY, b"one") == [peers.bye(b"3")]
    assert peers.broker.counters["workers_refused"] == 1


def test_an_idle_silent_worker_is_dropped() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo")
    peers.pass_time(8.5)
    assert peers.broker.workers == {}
    assert peers.broker.counters["workers_silent"] == 1
    assert peers.call(b"c", b"echo", b"x") == []


def test_the_request_of_a_dying_worker_goes_to_no_other_worker() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo")
    peers.call(b"c", b"echo", b"x")
    for _ in range(4):
        peers.pass_time(2.4)
        peers.worker(b"other", HEARTBEAT) if b"other" in peers.broker.workers else peers.worker(
            b"other", READY, b"echo"
        )
    assert b"w" not in peers.broker.workers
    assert peers.broker.counters["requests_given_up"] == 1
    assert peers.broker.workers[b"other"].request is None
    assert peers.worker(b"w", FINAL, b"c", b"", b"late") == [peers.bye(b"w")]


def test_a_broker_paused_for_long_hears_its_workers_before_it_drops_them() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo")
    peers.now += 60.0
    peers.broker.tick(peers.now)
    assert b"w" in peers.broker.workers
    peers.worker(b"w", HEARTBEAT)
    peers.pass_time(7.0)
    assert b"w" in peers.broker.workers
    peers.pass_time(2.0)
    assert peers.broker.workers == {}


def test_a_silent_worker_gets_a_heartbeat_each_interval_and_a_busy_one_none() -> None:
    peers = Peers()
    peers.worker(b"idle", READY, b"idle")
    peers.worker(b"busy", READY, b"busy")
    told: list[tuple[bytes, ...]] = []
    for _ in range(50):
        told += peers.call(b"c", b"busy", b"x")
        told += peers.worker(b"busy", FINAL, b"c", b"", b"x")
        peers.worker(b"idle", HEARTBEAT)
        told += peers.pass_time(0.5)
    beats = [message[0] for message in told if message[3:4] == (b"\x04",)]
    assert set(beats) == {b"idle"}
    assert 25 / 2.5 - 1 <= len(beats) <= 25 / (2.5 - 2 * 2.5 / 8)


def test_a_thousand_workers_cost_eight_looks_an_interval_at_most() -> None:
    peers = Peers()
    for n in range(1_000):
        peers.now += 0.0025
        peers.worker(b"%d" % n, READY, b"echo")
    ticks, end = 0, peers.now + 25.0
    while (due := peers.broker.timer()) is not None and due < end:
        peers.now = max(peers.now, due)
        peers.broker.tick(peers.now)
        for message in peers.told():
            peers.worker(message[0], HEARTBEAT)
        ticks += 1
    assert len(peers.broker.workers) == 1_000
    assert ticks <= 85


def test_a_request_that_the_socket_did_not_take_goes_to_the_next_worker() -> None:
    peers = Peers()
    peers.worker(b"gone", READY, b"echo")
    peers.worker(b"here", READY, b"echo")
    peers.call(b"c", b"echo", b"x")
    peers.broker.undelivered(peers.sent[0], peers.now, gone=True)
    assert peers.told() == [peers.given(b"here", b"c", b"x")]
    assert set(peers.broker.workers) == {b"here"}
    assert peers.broker.counters["requests_given_up"] == 0


def test_a_request_that_no_socket_takes_waits_before_the_others() -> None:
    peers = Peers()
    peers.worker(b"gone", READY, b"echo")
    peers.call(b"c", b"echo", b"first")
    sent = peers.sent[0]
    peers.call(b"c", b"echo", b"second")
    peers.broker.undelivered(sent, peers.now, gone=True)
    assert peers.worker(b"w", READY, b"echo") == [peers.given(b"w", b"c", b"first")]


def test_an_undelivered_heartbeat_ends_the_worker_and_an_undelivered_reply_does_not() -> None:
    peers = Peers()
    peers.worker(b"w", READY, b"echo")
    peers.pass_time(2.5)
    peers.broker.undelivered(peers.sent[-1], peers.now, gone=True)
    assert peers.broker.workers == {}
    peers.worker(b"w", READY, b"echo")
    peers.call(b"c", b"echo", b"x")
    peers.worker(b"w", FINAL, b"c", b"", b"x")
    peers.broker.undelivered(peers.sent[-1], peers.now, gone=True)
    assert peers.broker.counters["replies_undelivered"] == 1


def test_a_worker_that_was_disconnected_is_disconnected_again_after_a_while() -> None:
    peers = Peers()
    assert peers.worker(b"w", HEARTBEAT) == [peers.bye(b"w")]
    assert peers.worker(b"w", HEARTBEAT) == []
    peers.worker(b"other", READY, b"echo")
    peers.pass_time(6.0)
    peers.worker(b"other", HEARTBEAT)
    peers.pass_time(6.0)
    assert peers.worker(b"w", HEARTBEAT) == [peers.bye(b"w")]


def test_an_ending_broker_informs_its_workers() -> None:
    peers = Peers()
    peers.worker(b"1", READY, b"echo")
    peers.worker(b"2", READY, b"echo", version=2)
    peers.broker.leave(peers.now)
    assert peers.told() == [peers.bye(b"1"), peers.bye(b"2", 2)]


def test_the_required_right_of_a_message_is_known() -> None:
    asked = Peers().broker.asked
    assert asked("broker", [b"", b"MDPC01", b"echo", b"x"]) == Asked("call", "echo")
    assert asked("broker", [b"MDPC02", b"\x01", b"echo", b"x"]) == Asked("call", "echo")
    assert asked("broker", [b"", b"MDPC01", b"mmi.service", b"x"]) is None
    assert asked("broker", [b"", b"MDPW01", b"\x01", b"echo"]) == Asked("serve", "echo")
    assert asked("broker", [b"MDPW02", b"\x01", b"echo"]) == Asked("serve", "echo")
    assert asked("broker", [b"", b"MDPW01", b"\x04"]) is None
    assert asked("broker", [b"", b"MDPC01"]) == Asked("call", "")
    assert asked("broker", [b"nothing"]) is None
