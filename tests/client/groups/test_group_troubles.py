"""Ends, losses, denials, silence and damage: what the calls of a group's members say of troubles."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pubsub.client import Client
from pubsub.client.errors import (
    GroupEnded,
    GroupFull,
    GroupInDoubt,
    GroupSuspended,
)
from pubsub.errors import (
    DataLoss,
    NotAllowed,
    NotSubscribed,
    StateCopied,
    StorageError,
    Superseded,
    Unavailable,
)
from pubsub.protocol import Outcome, Status, Subscribe, Unsubscribe
from pubsub.protocol.group_bodies import HELD, LOST, Holding, Range, encode_values, join_holdings
from pubsub.protocol.groups import Work
from tests.client.groups.reference import LOG
from tests.client.groups.service import Service
from tests.client.opened import PATIENCE


def held(service: Service) -> int:
    """How many records members have claimed."""
    return int(service.do(lambda group: sum(len(seat.held) for seat in group.rows.seats.values())))


def done(service: Service) -> int:
    return int(service.do(lambda group: len(group.rows.done)))


def until_it_raises(client: Client) -> None:
    while True:
        client.get("t", 0.2, group="g")


def test_ending_a_group_ends_it_for_all(service: Service) -> None:
    service.put(b"", b"")
    with service.client("w1") as one, service.client("w2") as other:
        for client in (one, other):
            client.subscribe("t", group="g")
        assert other.get("t", group="g") is not None
        one.end_group("t", "g", force=True)
        with pytest.raises(GroupEnded, match="was ended; subscribe to it again"):
            until_it_raises(other)
        with pytest.raises(NotSubscribed):
            one.get("t", group="g")
        service.do(lambda group: group.crash())
        other.subscribe("t", group="g")
        assert other.get("t", 5.0, group="g") is not None
    ended = next(message for message in service.seen if isinstance(message, Unsubscribe))
    assert (ended.group, ended.force, ended.name) == (1, 1, "g")


def test_a_group_with_records_in_doubt_is_not_ended(service: Service) -> None:
    body = b'{"in_doubt":12,"members":[["w2","0000000000000001"]]}'
    refused = Status("s1", Outcome.REFUSED, reason="in_doubt", body=body)
    service.refuse = lambda message: refused if isinstance(message, Unsubscribe) else None
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(GroupInDoubt, match="12 records are in doubt at w2"):
            client.end_group("t", "g")


@pytest.mark.parametrize(("reason", "error"), [("suspended", GroupSuspended), ("dead_letters_full", GroupFull)])
def test_a_group_that_hands_out_nothing_says_why(service: Service, reason: str, error: type[Exception]) -> None:
    def stopped(message: Any) -> Status | None:
        if isinstance(message, Work):
            return Status("s1", Outcome.SUCCESS, number=message.number, log=LOG, reason=reason)
        return None

    service.refuse = stopped
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(error):
            client.get("t", group="g")
        service.refuse = lambda message: None
        service.put(b"")
        assert client.get("t", 5.0, group="g") is not None


def test_lost_records_are_raised_once_and_told_as_done(service: Service) -> None:
    told = threading.Event()

    def lost(message: Any) -> Status | None:
        if not isinstance(message, Work) or told.is_set():
            return None
        if any(one.low <= 3 < one.high for one in message.say.done):
            told.set()
            return None
        lines = [Holding(LOST, Range(LOG, 3, 5), reason="purged")]
        return Status("s1", Outcome.SUCCESS, number=message.number, log=LOG, body=join_holdings(lines))

    service.refuse = lost
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(DataLoss, match=rf"records {LOG}.3 to {LOG}.4 are lost .an operator purged them"):
            client.get("t", group="g")
        assert told.wait(PATIENCE)
        service.put(b"")
        found = client.get("t", 5.0, group="g")
        assert found is not None
        assert len(client.dead_letters()) == 1


def test_a_copied_directory_is_noticed(service: Service) -> None:
    def later(message: Any) -> Status | None:
        if isinstance(message, Work):
            reason = "a_later_message_came"
            return Status("s1", Outcome.SUPERSEDED, reason=reason, number=message.number + (1 << 50), log=LOG)
        return None

    service.refuse = later
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(StateCopied, match="pubsub client w1 renew"):
            client.get("t", group="g")
        with pytest.raises(StateCopied):
            client.subscribe("t", group="g")


def test_a_client_that_was_opened_elsewhere_stops(service: Service) -> None:
    def elsewhere(message: Any) -> Status | None:
        if isinstance(message, Work):
            return Status("s1", Outcome.SUPERSEDED, reason="opened_again", number=message.number, log=LOG)
        return None

    service.refuse = elsewhere
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(Superseded):
            client.get("t", group="g")
        service.refuse = lambda message: None
        service.put(b"")
        client.subscribe("t", group="g")
        assert client.get("t", 5.0, group="g") is not None


@pytest.mark.parametrize(("reason", "ahead"), [("a_later_message_came", 1 << 50), ("opened_again", 0)])
def test_a_sign_of_a_copy_is_none_while_the_life_of_the_state_is_not_certain(
    service: Service, reason: str, ahead: int
) -> None:
    def sign(message: Any) -> Status | None:
        if isinstance(message, Work):
            return Status("s1", Outcome.SUPERSEDED, reason=reason, number=message.number + ahead, log=LOG)
        return None

    def over() -> None:
        raise StorageError("state", "another process has it")

    with service.client("w1") as client:
        client.subscribe("t", group="g")
        client._session.core.check_life = over
        service.refuse = sign
        assert client.get("t", 1.0, group="g") is None


def test_a_denied_member_may_ask_again(service: Service) -> None:
    denied = Status("s1", Outcome.DENIED, reason="get")
    service.refuse = lambda message: denied if isinstance(message, Work) else None
    service.put(b"")
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        with pytest.raises(NotAllowed):
            client.get("t", group="g")
        service.refuse = lambda message: None
        assert client.get("t", 5.0, group="g") is not None


def test_a_group_that_no_holder_knows_is_made_again_with_the_same_values(service: Service) -> None:
    """Its messages may be gone, for example with their topic: one call of each member raises that."""
    service.put(b"")
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        service.number = 0
        unknown = Status("s1", Outcome.UNKNOWN, reason="group", log=LOG)
        service.refuse = lambda message: unknown if isinstance(message, Work) and not service.number else None
        with pytest.raises(DataLoss, match="no server knows group g"):
            client.get("t", 10.0, group="g")
        assert client.get("t", 10.0, group="g") is not None
    first, second = [message for message in service.seen if isinstance(message, Subscribe)]
    assert (first.group, first.attempts) == ("any", 0)
    assert (second.group, second.attempts, second.on_lost) == ("shared", 5, "wait")  # What the service has told.


def test_a_member_takes_a_group_as_it_is_that_another_one_made_again(service: Service) -> None:
    """Its values were changed meanwhile, so the former ones are refused."""
    body = encode_values(service.values._replace(attempts=7))

    def refuse(message: Any) -> Status | None:
        if isinstance(message, Work) and not service.number:
            return Status("s1", Outcome.UNKNOWN, reason="group", log=LOG)
        if isinstance(message, Subscribe) and message.attempts:
            return Status("s1", Outcome.REFUSED, reason="attempts_differs", number=1, body=body)
        return None

    service.put(b"")
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        service.number = 0
        service.refuse = refuse
        with pytest.raises(DataLoss):
            client.get("t", 10.0, group="g")
        assert client.get("t", 10.0, group="g") is not None


def test_a_group_that_was_given_up_with_its_log_is_told_as_a_loss(service: Service) -> None:
    gone = Status("s1", Outcome.GONE)
    with service.client("w1") as client:
        client.subscribe("t", group="g", start="earliest")
        service.refuse = lambda message: gone if isinstance(message, Work) else None
        with pytest.raises(DataLoss):
            client.get("t", group="g")
        service.refuse = lambda message: None
        service.put(b"")
        assert client.get("t", 5.0, group="g") is not None
    assert [message.start for message in service.seen if isinstance(message, Subscribe)][:2] == [0, "latest"]


def test_silence_is_told_after_the_time_limit_of_the_client(service: Service) -> None:
    with service.client("w1", timeout=0.5) as client:
        client.subscribe("t", group="g")
        service.silent = True
        with pytest.raises(Unavailable):
            until_it_raises(client)
        service.silent = False


def test_a_damaged_answer_is_asked_for_again(service: Service) -> None:
    service.put(b"")
    spoilt: list[int] = []

    def spoil(message: Any) -> Status | None:
        if isinstance(message, Work) and len(spoilt) < 2:
            spoilt.append(message.number)
            return Status("s1", Outcome.SUCCESS, number=message.number, log=LOG, records=1, checksum=1, body=b"held x")
        return None

    service.refuse = spoil
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        found = client.get("t", 10.0, group="g")
        assert found is not None
    assert spoilt[0] == spoilt[1]  # The same message again: whichever copy came first counts.


def test_a_group_is_no_subscription(service: Service) -> None:
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        assert client.subscriptions() == {}
        with pytest.raises(NotSubscribed):
            client.get("t", 0.1)


def test_an_answer_for_a_group_of_another_mode_is_no_answer(service: Service) -> None:
    """Its ranges have parts, so the records of a shared group would be in none, and count as done."""
    body = join_holdings([Holding(HELD, Range(LOG, 1, 3, 1))])
    wrong: list[int] = []

    def refuse(message: Any) -> Status | None:
        if not isinstance(message, Work) or len(wrong) > 1:
            return None
        wrong.append(message.number)
        return Status("s1", Outcome.SUCCESS, number=message.number, log=LOG, body=body)

    service.refuse = refuse
    service.put(b"", b"")
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        found = [client.get("t", PATIENCE, group="g") for _ in range(2)]
    assert [message.position for message in found if message is not None] == [(LOG, 1), (LOG, 2)]
    assert len(wrong) == 2
    assert not any(one.part for work in service.works() for one in work.say.done)
