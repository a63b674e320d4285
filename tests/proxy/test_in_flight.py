"""Bytes on their way to a server: counted, marked, confirmed, bounded for each client and in all."""

from __future__ import annotations

from pubsub.messenger.framing import unpack
from pubsub.protocol import Heartbeat, Outcome, Status, decode
from pubsub.protocol import messages as m
from pubsub.proxy.in_flight import CLIENT_BYTES_MAX, FLIGHT_BYTES_MAX, MARK_BYTES, InFlight
from tests.proxy.stage import Stage

MIB = 1024 * 1024


def fill(flight: InFlight, client: bytes, size: int = MIB) -> int:
    sent = 0
    while flight.has_room(client, size):
        flight.add(client, size)
        sent += size
    return sent


def test_a_client_gets_its_share_and_all_together_stay_within_the_limit() -> None:
    flight = InFlight()
    shares = [fill(flight, b"%d" % number) for number in range(6)]
    assert shares[:4] == [CLIENT_BYTES_MAX] * 4
    assert sum(shares) == len(flight) == FLIGHT_BYTES_MAX


def test_bytes_taken_by_the_server_make_room_for_their_client() -> None:
    flight = InFlight()
    fill(flight, b"a")
    mark = flight.mark()
    fill(flight, b"b")
    assert not flight.has_room(b"a", MIB)
    flight.confirm(mark)
    assert len(flight) == CLIENT_BYTES_MAX
    assert flight.has_room(b"a", MIB)
    assert not flight.has_room(b"b", MIB)
    flight.confirm(flight.mark())
    assert not flight
    assert flight.has_room(b"b", CLIENT_BYTES_MAX)


def test_a_mark_is_due_after_some_bytes_and_not_on_an_idle_link() -> None:
    flight = InFlight()
    assert flight.mark() == 0
    assert not flight.add(b"a", MARK_BYTES - 1)
    assert flight.add(b"a", 1)
    assert flight.mark() == MARK_BYTES
    assert not flight.add(b"a", 1)
    flight.confirm(MARK_BYTES)
    assert len(flight) == 1


def test_a_lost_mark_is_replaced_by_the_next_one() -> None:
    flight = InFlight()
    flight.add(b"a", 5)
    lost = flight.mark()
    flight.add(b"b", 5)
    flight.confirm(flight.mark())
    assert not flight
    flight.confirm(lost)
    assert not flight


def test_a_forged_mark_frees_only_marked_bytes_and_a_new_link_is_empty() -> None:
    flight = InFlight()
    flight.add(b"a", 5)
    flight.confirm(2**63 - 1)
    assert len(flight) == 5  # It was not marked yet.
    flight.mark()
    flight.restart()
    assert not flight
    assert flight.has_room(b"a", CLIENT_BYTES_MAX)


def test_a_mark_of_an_ended_link_does_not_count_for_the_next_one() -> None:
    flight = InFlight()
    flight.add(b"a", 5)
    lost = flight.mark()
    flight.restart()
    flight.add(b"b", 3)
    flight.confirm(lost)
    assert len(flight) == 3
    flight.confirm(flight.mark())
    assert not flight


def test_one_body_of_any_size_fits() -> None:
    assert InFlight().has_room(b"a", CLIENT_BYTES_MAX + 1)


def large(counter: int) -> m.Put:
    return m.Put("ann", "kept", counter, "0" * 16, 1, counter - 1, 0, body=bytes(MIB))


def test_a_proxy_marks_forwarded_bytes_and_answers_busy_until_the_server_has_them() -> None:
    stage = Stage()
    stage.announce("s1", {"kept": "x"})
    server = stage.core.table.single["kept"]
    for number in range(1, CLIENT_BYTES_MAX // MIB + 1):
        stage.core.replies.forward(server, b"C", (b"1-40-0-PUT", large(number).body), stage.now)
    sends = stage.core.replies.take()
    marks = [unpack(bytes(send.frames[1])).source for send in sends if not send.frames[0]]
    assert marks == list(range(MARK_BYTES, CLIENT_BYTES_MAX + 1, MARK_BYTES))
    head = bytes(sends[MARK_BYTES // MIB].frames[1])
    assert isinstance(decode(head[unpack(head).length :]), Heartbeat)
    stage.core.replies.forward(server, b"C", (b"1-40-0-PUT", large(99).body), stage.now)
    (send,) = stage.core.replies.take()
    head = bytes(send.frames[0])
    said = decode(head[unpack(head).length :])
    assert isinstance(said, Status)
    assert said.outcome is Outcome.BUSY
    assert stage.core.counters["busy_too_many_bytes_under_way"] == 1
    header = b"1-0-%d-STATUS s1 success !v=1\r\n\r\n" % marks[0]
    assert server.link is not None
    stage.core.server_message(server.link, (b"", header), stage.now)
    assert len(server.in_flight) == CLIENT_BYTES_MAX - MARK_BYTES
    stage.core.replies.forward(server, b"C", (b"1-40-0-PUT", large(99).body), stage.now)
    assert stage.core.replies.take()[0].to_server


def test_a_mark_is_repeated_while_bytes_are_in_flight() -> None:
    stage = Stage()
    stage.announce("s1", {"kept": "x"})
    server = stage.core.table.single["kept"]
    stage.core.replies.forward(server, b"C", (b"1-40-0-PUT", bytes(MIB)), stage.now)
    stage.core.replies.take()
    stage.now = stage.core.deadline
    stage.core.tick(stage.now)
    marks = [unpack(bytes(send.frames[1])).source for send in stage.core.replies.take()]
    assert marks == [MIB]
