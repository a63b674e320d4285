"""The core: every kind of message in every state it can find, with time as an argument."""

import random

import pytest

from pubsub.errors import CallerError, TooLarge
from pubsub.messenger import seen
from pubsub.messenger.core import MessengerCore
from pubsub.messenger.framing import Callback, pack, unpack
from pubsub.messenger.limits import ACK_RANGES_MAX, SEEN_JUMP_MAX, SEEN_SHARE
from tests.messenger.bench import LATE, LIMITS, ROUTING, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Requests of ours


def test_an_answer_goes_to_the_callback_of_its_request_with_its_frames(bench):
    token, _ = bench.ask()
    bench.receive(bench.connection, 1, 0, token, b"answer", [b"body"])
    assert bench.answers == [(bench.server, b"answer", [b"body"])]


def test_a_request_is_repeated_unchanged_until_its_answer_arrives(bench):
    token, head = bench.ask()
    repeats = bench.pass_time(10.0)
    assert len(repeats) >= 3
    prefix = unpack(head)
    assert set(repeats) == {(*prefix[:3], b"question")}
    bench.receive(bench.connection, 1, 0, token, b"answer")
    assert bench.core.counters.retried == len(repeats)
    assert bench.core.pending.count == 0
    assert not [sent for sent in bench.pass_time(50.0) if sent[2] != Callback.ACK]


def test_an_acknowledgement_does_not_retire_a_request(bench):
    _, head = bench.ask()
    message_id = unpack(head).message_id
    bench.receive(bench.connection, 0, 0, Callback.ACK, b"%d" % message_id)
    assert bench.core.pending.count == 1
    assert bench.pass_time(2.0)


def test_a_second_answer_is_dropped_and_counted(bench):
    token, _ = bench.ask()
    for message_id in (1, 1, 2):
        bench.receive(bench.connection, message_id, 0, token, b"answer")
    assert len(bench.answers) == 1
    assert bench.core.counters.unknown_callbacks == 2


def test_an_answer_from_another_peer_is_dropped_and_counted_and_the_right_one_still_taken(bench):
    token, _ = bench.ask()
    bench.receive(bench.ordinary, 1, 0, token, b"forged")
    assert bench.answers == []
    assert bench.core.counters.unknown_callbacks == 1
    assert not bench.pass_time(0.5)
    bench.receive(bench.connection, 1, 0, token, b"answer")
    assert bench.answers[0][1] == b"answer"


def test_an_answer_to_an_unknown_callback_is_dropped_and_counted(bench):
    bench.receive(bench.connection, 1, 0, 4711)
    assert bench.core.counters.unknown_callbacks == 1


@pytest.mark.parametrize("destination", [3, 15])
def test_a_built_in_callback_that_is_not_known_is_dropped_and_counted(bench, destination):
    assert bench.receive(bench.ordinary, 1, 16, destination) is None
    assert bench.core.counters.unknown_callbacks == 1
    assert bench.requests == []


def test_a_forgotten_callback_is_not_called_and_its_request_soon_not_repeated(bench):
    token, _ = bench.ask()
    bench.core.forget(token)
    bench.core.forget(token)
    assert bench.core.counters.forgotten == 1
    assert bench.pass_time(50.0) == []
    assert bench.core.pending.count == 0
    bench.receive(bench.connection, 1, 0, token, b"answer")
    assert bench.answers == []


def test_a_callback_forgotten_before_its_request_was_sent_sends_nothing(bench):
    token = bench.core.register(bench.server, print)
    bench.core.forget(token)
    bench.core.send(bench.server, (b"question",), 0.0, token=token)
    assert bench.sent() == []


def test_a_request_without_retries_is_sent_once_and_stays_valid(bench):
    token, _ = bench.ask(retry=False)
    assert bench.pass_time(LATE) == []
    assert bench.core.pending.count == 0
    bench.receive(bench.connection, 7, 0, token, b"answer")
    assert len(bench.answers) == 1


def test_callbacks_have_a_named_limit(bench):
    for _ in range(LIMITS.callbacks_max):
        bench.core.register(bench.server, print)
    with pytest.raises(TooLarge, match="callbacks_max = 4"):
        bench.core.register(bench.server, print)
    assert bench.core.callbacks == 4


# Acknowledgements of answers


def test_a_repeated_answer_of_an_ordinary_loop_is_acknowledged_again(bench):
    token, _ = bench.ask()
    bench.receive(bench.connection, 5, 0, token)
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"5")]
    bench.receive(bench.connection, 5, 0, token)
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"5")]


def test_an_answer_of_an_idempotent_loop_is_not_acknowledged(bench):
    token, _ = bench.ask()
    bench.receive(bench.connection, 0, 0, token)
    assert len(bench.answers) == 1
    assert bench.pass_time(1.0) == []


def test_an_answer_to_a_request_without_retries_is_acknowledged_only_if_repeated(bench):
    token, _ = bench.ask(retry=False)
    bench.receive(bench.connection, 5, 0, token)
    assert bench.pass_time(1.0) == []
    bench.receive(bench.connection, 5, 0, token)
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"5")]


# One-way messages of ours


def test_a_one_way_message_is_repeated_until_it_is_acknowledged(bench):
    bench.core.send(bench.server, (b"news",), 0.0)
    ((message_id, source, destination, _),) = bench.sent()
    assert (source, destination) == (0, 0)
    assert bench.pass_time(3.0)
    bench.receive(bench.connection, 0, 0, Callback.ACK, b"%d" % message_id)
    assert bench.core.pending.count == 0
    assert bench.core.counters.acknowledged == 1
    assert bench.pass_time(50.0) == []


def test_ranges_acknowledge_exactly_their_ids(bench):
    for _ in range(10):
        bench.core.send(bench.server, (b"news",), 0.0)
    ids = [sent[0] for sent in bench.sent()]
    bench.receive(bench.connection, 0, 0, Callback.ACK, b"%d-%d,%d" % (ids[0], ids[3], ids[7]))
    assert sorted(bench.server.pending) == [ids[4], ids[5], ids[6], ids[8], ids[9]]


def test_a_forged_range_over_everything_costs_no_more_than_the_pending_messages(bench):
    bench.core.send(bench.server, (b"news",), 0.0)
    bench.receive(bench.connection, 0, 0, Callback.ACK, b"0-9223372036854775807")
    assert bench.core.pending.count == 0


def test_an_acknowledgement_from_another_peer_retires_nothing(bench):
    bench.core.send(bench.server, (b"news",), 0.0)
    bench.receive(bench.ordinary, 0, 0, Callback.ACK, b"0-9223372036854775807")
    assert bench.core.pending.count == 1


@pytest.mark.parametrize("contents", [b"", b"x", b"1-", b"-1", b"1,,2", b"1-2-3", b"9" * 20, b"1," * 20_000])
def test_an_invalid_acknowledgement_is_counted_and_changes_nothing(bench, contents):
    bench.core.send(bench.server, (b"news",), 0.0)
    bench.receive(bench.connection, 0, 0, Callback.ACK, contents)
    assert bench.core.counters.undecodable == 1
    assert bench.core.pending.count == 1


def test_a_range_that_ends_before_it_begins_acknowledges_nothing(bench):
    bench.core.send(bench.server, (b"news",), 0.0)
    bench.receive(bench.connection, 0, 0, Callback.ACK, b"9223372036854775807-0")
    assert bench.core.pending.count == 1


def test_a_one_way_message_without_retry_is_sent_once_and_wants_no_acknowledgement(bench):
    bench.core.send(bench.server, (b"news",), 0.0, retry=False)
    assert bench.sent() == [(0, 0, 0, b"news")]
    assert bench.pass_time(LATE) == []


# An ordinary server loop


def test_a_request_is_handed_to_the_server_loop_once(bench):
    for _ in range(3):
        bench.receive(bench.ordinary, 1, 16, 0, b"question", [b"body"])
    (request,) = bench.requests
    assert (request.contents, request.frames, request.source, request.wants_answer) == (
        b"question",
        [b"body"],
        16,
        True,
    )
    assert request.peer.routing == ROUTING
    assert bench.core.counters.repeats == 2


def test_a_request_is_not_acknowledged(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    assert bench.pass_time(1.0) == []


def test_an_answer_is_a_one_way_message_to_the_callback_of_the_request(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    bench.requests[0].reply(b"answer")
    ((message_id, source, destination, contents),) = bench.sent()
    assert (source, destination, contents) == (0, 16, b"answer")
    assert bench.pass_time(2.0)[0] == (message_id, 0, 16, b"answer")
    bench.receive(bench.ordinary, 0, 0, Callback.ACK, b"%d" % message_id)
    assert bench.pass_time(50.0) == []


def test_the_same_id_from_two_peers_is_two_messages(bench):
    for routing in (b"\x01a", b"\x01b"):
        bench.receive(bench.ordinary, 1, 16, 0, routing=routing)
    assert len(bench.requests) == 2


def test_a_one_way_message_and_its_repeat_are_acknowledged(bench):
    bench.receive(bench.ordinary, 1, 0, 0, b"news")
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"1")]
    bench.receive(bench.ordinary, 1, 0, 0, b"news")
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"1")]
    assert len(bench.requests) == 1


def test_acknowledgements_are_gathered_into_ranges(bench):
    for message_id in (3, 1, 2, 7, 9, 8):
        bench.receive(bench.ordinary, message_id, 0, 0)
    assert bench.sent() == []
    assert bench.pass_time(LIMITS.ack_seconds) == [(0, 0, Callback.ACK, b"1-3,7-9")]


def test_many_ranges_do_not_wait(bench):
    for message_id in range(0, 2 * ACK_RANGES_MAX, 2):
        bench.receive(bench.ordinary, message_id + 1, 0, 0)
    ((_, _, destination, contents),) = bench.sent()
    assert destination == Callback.ACK
    assert contents.count(b",") == ACK_RANGES_MAX - 1


def test_an_answer_to_a_one_way_message_is_an_error(bench):
    bench.receive(bench.ordinary, 1, 0, 0, b"news")
    assert not bench.requests[0].wants_answer
    with pytest.raises(CallerError, match="one-way"):
        bench.requests[0].reply(b"answer")


def test_an_id_that_jumps_too_far_is_refused_counted_and_not_acknowledged(bench):
    bench.receive(bench.ordinary, 1, 0, 0)
    bench.pass_time(1.0)
    bench.receive(bench.ordinary, 2 + SEEN_JUMP_MAX, 0, 0)
    assert len(bench.requests) == 1
    assert bench.core.counters.refused == 1
    assert bench.pass_time(1.0) == []


# An idempotent server loop


def test_an_idempotent_loop_gets_repeats(bench):
    for _ in range(3):
        bench.receive(bench.idempotent, 1, 16, 0)
    assert len(bench.requests) == 3
    assert bench.core.counters.repeats == 0


def test_an_idempotent_loops_answer_is_neither_kept_nor_acknowledged(bench):
    bench.receive(bench.idempotent, 1, 16, 0)
    bench.requests[0].reply(b"answer")
    assert bench.sent() == [(0, 0, 16, b"answer")]
    assert bench.core.pending.count == 0
    assert bench.pass_time(50.0) == []


def test_an_idempotent_loop_refuses_no_jump(bench):
    for message_id in (1, 10 + SEEN_JUMP_MAX, 5):
        bench.receive(bench.idempotent, message_id, 16, 0)
    assert len(bench.requests) == 3


def test_a_kept_one_way_message_to_an_idempotent_loop_is_acknowledged(bench):
    bench.receive(bench.idempotent, 4, 0, 0)
    assert bench.pass_time(1.0) == [(0, 0, Callback.ACK, b"4")]


# ECHO, links without a loop, bytes that are no message


def test_an_echo_sends_the_contents_back_to_the_callback(bench):
    bench.receive(bench.ordinary, 1, 16, Callback.ECHO, b"hello", [b"body"])
    ((_, head, frames),) = bench.core.take()
    assert (head, frames) == (pack(0, 0, 16) + b"hello", (b"body",))
    assert bench.requests == []


def test_an_echo_without_a_callback_is_dropped_to_prevent_endless_echoes(bench):
    bench.receive(bench.ordinary, 1, 0, Callback.ECHO, b"hello")
    assert bench.sent() == []
    assert bench.core.counters.unknown_callbacks == 1


def test_a_message_for_a_missing_loop_is_dropped_and_counted(bench):
    assert bench.receive(bench.connection, 1, 16, 0) is None
    assert bench.core.counters.unwanted == 1


@pytest.mark.parametrize("head", [b"", b"hello", b"1-2-", b"9999999999999999999-0-0-", b"\xff" * 100])
def test_bytes_that_are_no_message_are_counted_and_cost_no_peer(bench, head):
    assert bench.core.receive(bench.ordinary, ROUTING, head, [], 0.0) is None
    assert bench.core.counters.undecodable == 1
    assert bench.core.peers == 0


# Peers


def test_new_peers_beyond_the_limit_are_refused_and_counted(bench):
    for number in range(5):
        bench.receive(bench.ordinary, 1, 16, 0, routing=b"\x01%d" % number)
    assert bench.core.peers == LIMITS.peers_max == len(bench.requests)
    assert bench.core.counters.refused == 2


def test_an_idle_peer_is_forgotten_with_its_pending_messages(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    bench.requests[0].reply(b"answer")
    bench.sent()
    bench.pass_time(LIMITS.idle_seconds * 1.5)
    assert bench.core.peers == 0
    assert bench.core.counters.peers_forgotten == 1
    assert bench.core.counters.abandoned == 1
    assert bench.core.deadline() is None


def test_an_active_peer_is_not_forgotten_and_its_repeats_stay_known(bench):
    for _ in range(20):
        bench.receive(bench.ordinary, 1, 16, 0)
        bench.pass_time(LIMITS.idle_seconds / 2)
    assert len(bench.requests) == 1


def test_nothing_is_sent_to_a_peer_that_was_forgotten(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    bench.pass_time(LIMITS.idle_seconds * 2)
    bench.requests[0].reply(b"answer")
    assert bench.sent() == []
    assert bench.core.pending.count == 0


@pytest.mark.parametrize("retry", [True, False])
def test_a_request_to_a_gone_peer_keeps_no_callback(bench, retry):
    bench.core.closed(bench.connection)
    for _ in range(2 * LIMITS.callbacks_max):
        token = bench.core.register(bench.server, print, retry=retry)
        bench.core.send(bench.server, (b"question",), bench.now, token=token, retry=retry)
    assert bench.core.callbacks == 0
    assert bench.core.counters.abandoned == 2 * LIMITS.callbacks_max


def test_a_forgotten_peer_is_accepted_again_with_any_id(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    bench.pass_time(LIMITS.idle_seconds * 2)
    bench.receive(bench.ordinary, 10 * SEEN_JUMP_MAX, 16, 0)
    assert len(bench.requests) == 2


def test_gaps_of_peers_that_were_forgotten_take_no_room_of_others(bench, monkeypatch):
    monkeypatch.setattr(seen, "SEEN_TOTAL_MAX", 2 * SEEN_SHARE)
    for ids in [range(1, 4 * SEEN_SHARE, 2)] * 4 + [range(1, 3 * SEEN_SHARE, 2)]:
        bench.pass_time(LIMITS.idle_seconds * 2)
        for message_id in ids:
            bench.receive(bench.ordinary, message_id, 16, 0)
    before = len(bench.requests)
    bench.receive(bench.ordinary, 2, 16, 0)
    assert len(bench.requests) == before + 1, "what comes late is not known any more"


def test_a_connection_is_never_forgotten_for_being_idle(bench):
    token, _ = bench.ask()
    bench.pass_time(LIMITS.idle_seconds * 3)
    bench.receive(bench.connection, 1, 0, token, b"late")
    assert len(bench.answers) == 1


def test_a_closed_link_abandons_its_pending_messages(bench):
    token, _ = bench.ask()
    bench.core.closed(bench.connection)
    assert bench.core.pending.count == bench.core.callbacks == 0
    bench.receive(bench.connection, 1, 0, token)
    assert bench.answers == []
    bench.receive(bench.ordinary, 1, 16, 0)
    bench.core.closed(bench.ordinary)
    assert bench.core.peers == 0


def test_ids_to_one_peer_are_consecutive(bench):
    bench.receive(bench.ordinary, 1, 16, 0)
    ids = []
    for _ in range(50):
        bench.core.send(bench.server, (b"a",), 0.0)
        bench.core.send(bench.requests[0].peer, (b"b",), 0.0)
        ids.append([sent[0] for sent in bench.sent()])
    for column in zip(*ids, strict=True):
        assert list(column) == list(range(column[0], column[0] + 50))


def test_two_messengers_never_use_the_same_ids():
    first_ids = []
    for instance in (1, 2, 2**31 - 1):
        core = MessengerCore(instance, random.Random(1), lambda *_: None, LIMITS)
        core.send(core.connected("inproc://a").peer, (b"",), 0.0)
        first_ids.append(unpack(core.take()[0][1]).message_id)
    assert len(set(first_ids)) == 3
    assert max(first_ids) < 2**63


# Time


def test_a_core_at_rest_has_no_deadline(bench):
    assert bench.core.deadline() is None
    bench.core.tick(LATE)
    assert bench.sent() == []


def test_the_deadline_is_that_of_the_next_thing_due(bench):
    bench.core.send(bench.server, (b"news",), 0.0)
    assert 0.75 <= bench.core.deadline() <= 1.25
    bench.receive(bench.ordinary, 1, 0, 0)
    assert bench.core.deadline() == LIMITS.ack_seconds
