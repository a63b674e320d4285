"""Joining, getting, leaving, closing, ending and renewing: the calls of a group's members."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from pubsub.base.limits import CLAIMED_RECORDS_MAX
from pubsub.client import Client, Message, Transaction
from pubsub.client.core.group_life import LEFT
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_request import Wish
from pubsub.client.core.group_work import GroupCall
from pubsub.client.core.retries import Retries
from pubsub.client.errors import (
    GroupDiffers,
    GroupFull,
)
from pubsub.errors import (
    CallerError,
    InvalidName,
    NotAllowed,
    NotSubscribed,
    Unavailable,
)
from pubsub.protocol import Outcome, Status, Subscribe
from pubsub.protocol.group_bodies import GroupValues, encode_values, part_of
from tests.client.groups.reference import PUBLISHER
from tests.client.groups.service import Service
from tests.client.opened import PATIENCE, create, eventually, kill, record, rows


def held(service: Service) -> int:
    """How many records members have claimed."""
    return int(service.do(lambda group: sum(len(seat.held) for seat in group.rows.seats.values())))


def done(service: Service) -> int:
    return int(service.do(lambda group: len(group.rows.done)))


def until_it_raises(client: Client) -> None:
    while True:
        client.get("t", 0.2, group="g")


# Subscribing


def test_a_subscribe_names_what_the_application_named(service: Service) -> None:
    with service.client("w1") as client:
        client.subscribe(
            "t", group="g", mode="keyed", parts=64, start="earliest", on_lost="redeliver", lost_seconds=60, attempts=9
        )
        client.subscribe("t", group="h")
        client.subscribe("t", group="i", parts=8)
    first, second, third = [message for message in service.seen if isinstance(message, Subscribe)]
    named = first.name, first.group, first.parts, first.start, first.on_lost, first.lost_ms, first.attempts
    assert named == ("g", "keyed", 64, 0, "redeliver", 60_000, 9)  # @0: earliest
    assert (second.group, second.parts, second.start, second.attempts) == ("any", 0, "latest", 0)
    assert (third.group, third.parts) == ("keyed", 8)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"mode": "queue"}, 'mode is "shared" or "keyed"'),
        ({"mode": "shared", "parts": 4}, "a shared group has no parts"),
        ({"parts": 0}, "parts is a number from 1"),
        ({"parts": 5000}, "parts is a number from 1"),
        ({"parts": True}, "parts is a number from 1"),
        ({"attempts": 0}, "attempts is a number from 1"),
        ({"on_lost": "drop"}, 'on_lost is "wait" or "redeliver"'),
        ({"lost_seconds": 0.5}, "lost_seconds is 1 at least"),
        ({"fresh": True}, "end_group ends it"),
    ],
)
def test_values_that_are_none_are_refused_before_anything_is_sent(
    service: Service, named: dict[str, Any], text: str
) -> None:
    with service.client("w1") as client:
        with pytest.raises(CallerError, match=text):
            client.subscribe("t", group="g", **named)
        with pytest.raises(InvalidName):
            client.subscribe("t", group="no name")
    assert not service.seen


@pytest.mark.parametrize(
    ("reason", "argument"),
    [("mode_differs", "mode"), ("onlost_differs", "on_lost"), ("lost_differs", "lost_seconds")],
)
def test_a_group_with_other_values_is_told_in_one_line(service: Service, reason: str, argument: str) -> None:
    def differs(message: Any) -> Status | None:
        if isinstance(message, Subscribe):
            body = encode_values(service.values)
            return Status("s1", Outcome.REFUSED, reason=reason, number=5, body=body)
        return None

    service.refuse = differs
    with (
        service.client("w1") as client,
        pytest.raises(GroupDiffers, match=rf"\({argument} differs; it has mode=shared") as raised,
    ):
        client.subscribe("t", group="g", mode="keyed")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 40


@pytest.mark.parametrize(
    ("outcome", "reason", "error"),
    [
        (Outcome.FULL, "GROUPS_MAX", GroupFull),
        (Outcome.DENIED, "names", NotAllowed),
        (Outcome.UNAVAILABLE, "busy", Unavailable),
        (Outcome.BUSY, "sole_owner", Unavailable),
    ],
)
def test_a_subscribe_that_is_not_confirmed_raises(
    service: Service, outcome: Outcome, reason: str, error: type[Exception]
) -> None:
    service.refuse = lambda message: Status("s1", outcome, reason=reason)
    with service.client("w1") as client, pytest.raises(error):
        client.subscribe("t", group="g", timeout=0.5)


def test_a_group_that_was_ended_is_joined_above_its_number_once(service: Service) -> None:
    numbers: list[int] = []

    def ended(message: Any) -> Status | None:
        if isinstance(message, Subscribe):
            numbers.append(message.number)
            if len(numbers) == 1:
                return Status("s1", Outcome.SUPERSEDED, number=message.number + (1 << 40))
        return None

    service.refuse = ended
    with service.client("w1") as client:
        client.subscribe("t", group="g")
    assert numbers[1] > numbers[0] + (1 << 40)


# Getting


def test_get_takes_each_message_once(service: Service) -> None:
    service.put(*[b""] * 20)
    with service.client("w1") as client:
        with pytest.raises(NotSubscribed):
            client.get("t", group="g")
        client.subscribe("t", group="g")
        first = client.get("t", group="g")
        assert first is not None
        assert first.body == b"1"
        found = [first.body]
        while len(found) < 10:
            found += [message.body for message in client.get_many("t", 3, group="g")]
        found += [message.body for message in client.messages("t", 0.2, group="g")]
        assert sorted(found, key=int) == [b"%d" % number for number in range(1, 21)]
        assert client.get("t", 0.05, group="g") is None
        eventually(lambda: done(service) == 20)


@pytest.mark.parametrize("most", [1, 10])
def test_get_takes_ahead_what_the_application_takes_soon(service: Service, most: int) -> None:
    """Otherwise each call waits for an answer of the service."""
    service.put(*[b""] * 400)
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        taken = 0
        while taken < 400:
            taken += len(client.get_many("t", most, PATIENCE, group="g"))
    assert len(service.works()) < 40 + 400 // most // 4


def test_a_member_asks_for_no_more_than_it_may_hold_with_what_no_fsync_covers() -> None:
    member = GroupMember(1, "w1", "t", "g", "0" * 16, Retries(1, 1, 1.0))
    member.joined(1, "l", GroupValues("shared", 0, "wait", 600_000, 5), Wish())
    member.begin_call(GroupCall(1, 100.0, CLAIMED_RECORDS_MAX, gets=True), 0.0)
    member.holdings.soft.add(("l", None), 1, 9_001)
    work = member.next_work(1.0, lambda: 1, 1)
    assert work is not None
    assert work.records_max == CLAIMED_RECORDS_MAX - 9_000


def test_what_get_has_not_taken_goes_back_soon(service: Service) -> None:
    service.put(*[b""] * 50)
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        for _ in range(10):
            assert client.get("t", group="g") is not None
        eventually(lambda: held(service) == 0)
        assert done(service) == 10


def test_messages_of_get_have_their_part(keyed: Service) -> None:
    keyed.put(b"a", b"b")
    with keyed.client("w1") as client:
        client.subscribe("t", group="g")
        batch = [*client.get_many("t", group="g"), *client.get_many("t", 5, 0.2, group="g")]
    expected = {b"%d" % (place + 1): part_of(key, PUBLISHER, 3) for place, key in enumerate((b"a", b"b"))}
    assert {message.body: message.part for message in batch} == expected


@pytest.mark.parametrize("parts", [0, 3])
def test_messages_of_get_have_the_number_of_their_attempt(service: Service, keyed: Service, parts: int) -> None:
    """A message that was begun at another member, or before a power cut, has a number above 1."""
    used = keyed if parts else service
    used.put(*[b"k"] * 4)
    used.do(lambda group: group.rows.attempts.update({2: 3}))
    found: dict[bytes, int] = {}
    with used.client("w1") as client:
        client.subscribe("t", group="g")
        while len(found) < 4:
            batch = client.get_many("t", 4, group="g")
            assert [batch[place].attempts for place in range(len(batch))] == [message.attempts for message in batch]
            found |= {message.body: message.attempts for message in batch}
    assert found == {b"1": 1, b"2": 4, b"3": 1, b"4": 1}


def test_awaited_calls_take_from_a_group(service: Service) -> None:
    service.put(*[b""] * 6)

    async def main() -> list[bytes]:
        async with service.async_client("w1") as client:
            await client.subscribe("t", group="g")
            first = await client.get("t", group="g")
            assert first is not None
            found = [first.body, *[message.body for message in await client.get_many("t", 2, group="g")]]
            async for message in client.messages("t", 0.2, group="g"):
                found.append(message.body)
            await client.leave("t", group="g")
            return found

    assert sorted(asyncio.run(main())) == [b"%d" % number for number in range(1, 7)]


# Leaving, closing and coming back


def test_a_close_leaves_nothing_claimed_and_tells_what_is_done(service: Service) -> None:
    service.put(*[b""] * 40)
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        create(client, "taken")
        taken = 0
        while taken < 20:
            taken += client.process("t", record, PATIENCE, max=20 - taken, group="g")
        assert held(service) > 0
    assert held(service) == 0
    assert done(service) == 20
    assert service.works()[-1].leave == 1


def test_leaving_gives_all_back_and_a_later_call_joins_again(service: Service) -> None:
    service.put(*[b""] * 30)
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        for _ in range(5):
            assert client.get("t", group="g") is not None
        client.leave("t", group="g")
        assert held(service) == 0
        assert done(service) == 5
        assert client._session.core.members["t", "g"].life == LEFT
        client.leave("t", group="g")
        assert client.get("t", group="g") is not None
        with pytest.raises(NotSubscribed, match=r"no member of group other of t; .* subscribe t --group other"):
            client.leave("t", group="other")


def test_leaving_waits_for_the_handler_that_runs(service: Service) -> None:
    service.put(b"", b"")
    begun, go_on = threading.Event(), threading.Event()

    def handler(message: Message, transaction: Transaction) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        record(message, transaction)

    with service.client("w1") as client:
        client.subscribe("t", group="g")
        create(client, "taken")
        thread = threading.Thread(target=client.process, args=("t", handler, 1.0), kwargs={"group": "g"})
        thread.start()
        assert begun.wait(PATIENCE)
        leaving = threading.Thread(target=client.leave, args=("t",), kwargs={"group": "g"})
        leaving.start()
        go_on.set()
        leaving.join()
        thread.join()
        assert len(rows(client, "select * from taken")) == 1
        assert held(service) == 0


def test_a_killed_member_tells_at_its_next_start_what_it_has_done(service: Service) -> None:
    service.put(*[b""] * 30)
    client = service.client("w1", timeout=PATIENCE)
    client.subscribe("t", group="g")
    create(client, "taken")
    taken = 0
    while taken < 20:
        taken += client.process("t", record, PATIENCE, max=20 - taken, group="g")
    service.silent = True  # Nothing more is heard of it.
    kill(client)
    service.silent = False
    assert done(service) < 20 or held(service)
    with service.client("w1") as again:  # Without a call: what was in doubt is settled.
        eventually(lambda: held(service) == 0 and done(service) == 20)
        while len(rows(again, "select * from taken")) < 30:
            again.process("t", record, PATIENCE, group="g")
    assert done(service) == 30
    assert not service.do(lambda group: group.violations)


def test_a_message_that_was_begun_before_a_kill_says_so(service: Service) -> None:
    service.put(b"")
    client = service.client("w1")
    client.subscribe("t", group="g")
    begun, over = threading.Event(), threading.Event()

    def hanging(message: Message, transaction: Transaction) -> None:
        begun.set()
        assert over.wait(PATIENCE)

    def work() -> None:
        with suppress(CallerError):
            client.process("t", hanging, PATIENCE, group="g", claim="before")

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(PATIENCE)
    kill(client)
    over.set()
    thread.join()
    attempts: list[int] = []
    with service.client("w1") as again:
        while not attempts:
            again.process("t", lambda message, _: attempts.append(message.attempts), PATIENCE, group="g")
    assert attempts == [2]


def test_a_renewed_directory_first_gives_back_under_its_old_name(service: Service) -> None:
    service.put(*[b""] * 30)
    with service.client("w1") as client:
        client.subscribe("t", group="g")
        for _ in range(5):
            assert client.get("t", group="g") is not None
        old = client.publisher_id.split("/")[1]
        client.renew()
        new = client.publisher_id.split("/")[1]
        eventually(lambda: not service.do(lambda group: group.rows.seats["w1", old].held) and done(service) == 5)
        found = [message.body for message in client.messages("t", 0.3, group="g")]
        assert len(found) == 25
        assert service.do(lambda group: ("w1", new) in group.rows.seats)
        assert not client._session.core.former
