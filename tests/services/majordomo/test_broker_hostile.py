"""A broker keeps its limits and its rules for any messages; nothing raises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.services.core.majordomo.backlog import REQUEST_BYTES
from pubsub.services.core.majordomo.broker import PORT
from tests.services.majordomo.brokers import Peers

PEERS = st.sampled_from([b"a", b"b", b"c", b"d"])
FRAME = st.one_of(
    st.sampled_from(
        [b"", b"MDPC01", b"MDPC02", b"MDPW01", b"MDPW02", b"echo", b"mmi.service", b"a", b"b", b"c", b"x" * 300]
        + [bytes([n]) for n in range(8)]
    ),
    st.binary(max_size=8),
)
HEADS = st.sampled_from([(), (b"", b"MDPC01"), (b"MDPC02", b"\x01"), (b"", b"MDPW01"), (b"MDPW02",), (b"", b"MDPW02")])
MESSAGE = st.tuples(HEADS, st.lists(FRAME, max_size=6)).map(lambda parts: [*parts[0], *parts[1]]).filter(bool)
VALID = st.one_of(
    st.tuples(st.sampled_from([[b"", b"MDPW01", b"\x01"], [b"MDPW02", b"\x01"]])).map(lambda lead: [*lead[0], b"echo"]),
    st.just([b"", b"MDPC01", b"echo", b"body"]),
    st.just([b"MDPC02", b"\x01", b"echo", b"body"]),
    PEERS.map(lambda client: [b"", b"MDPW01", b"\x03", client, b"", b"reply"]),
    PEERS.map(lambda client: [b"MDPW02", b"\x04", client, b"", b"reply"]),
    PEERS.map(lambda client: [b"MDPW02", b"\x03", client, b"", b"part"]),
)
STEP = st.one_of(
    st.tuples(st.just("message"), PEERS, st.one_of(MESSAGE, VALID)),
    st.tuples(st.just("time"), st.floats(0.0, 20.0), st.none()),
    st.tuples(st.just("lost"), st.integers(0, 3), st.none()),
)


def check(peers: Peers) -> None:
    """What holds of a broker at any time."""
    broker = peers.broker
    waiting = sum(len(service.requests) for service in broker.services.values())
    size = sum(REQUEST_BYTES + sum(map(len, r.body)) for s in broker.services.values() for r in s.requests)
    assert broker.backlog.bytes == size
    assert all(len(service.requests) <= 5 for service in broker.services.values()), waiting
    for service in broker.services.values():
        own = [worker for worker in broker.workers.values() if worker.service is service]
        assert len(own) == service.workers
        assert set(service.idle) == {worker.peer for worker in own if worker.request is None}
        assert not (service.idle and service.requests)
        assert service.workers or service.requests
    assert (broker.timer() is None) == (not broker.workers and not waiting)


@given(st.lists(STEP, max_size=60))
@settings(max_examples=3 * settings().max_examples)
def test_any_messages_in_any_order_do_no_harm(steps: list[tuple[str, object, object]]) -> None:
    peers = Peers(requests_max=5, services_max=4, workers_max=3, request_seconds=15.0)
    asked: dict[bytes, int] = {}
    answered: dict[bytes, int] = {}
    for what, one, other in steps:
        if what == "message":
            assert isinstance(one, bytes)
            assert isinstance(other, list)
            before = peers.broker.counters["invalid_header"]
            peers.broker.asked(PORT, other)
            told = peers.raw(one, *other)
            asked[one] = asked.get(one, 0) + (peers.broker.counters["invalid_header"] == before)
        elif what == "time":
            assert isinstance(one, float)
            told = peers.pass_time(one)
        elif peers.sent:
            assert isinstance(one, int)
            peers.broker.undelivered(peers.sent[one % len(peers.sent)], peers.now, gone=True)
            told = peers.told()
        else:
            continue
        for message in told:
            if message[1:3] == (b"", b"MDPC01") or message[1:3] == (b"MDPC02", b"\x03") or message[2:3] == (b"MDPC02",):
                answered[message[0]] = answered.get(message[0], 0) + 1
        check(peers)
    assert all(count <= asked[peer] for peer, count in answered.items())
