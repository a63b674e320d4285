"""Handlers of a group's members: effects, claims, failures, and several handlers side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import Client, Later, Message, Reject, Transaction
from pubsub.client.core.group_in_hand import ASKING
from pubsub.client.core.group_work import GroupCall
from pubsub.client.flows.group_processing import GroupProcessing
from pubsub.client.flows.group_waits import GroupWaits
from pubsub.client.running_commands import Commands
from pubsub.errors import CallerError, NotSubscribed
from pubsub.protocol import Outcome, Status
from pubsub.protocol.groups import Work
from tests.client.groups.service import Service
from tests.client.opened import PATIENCE, create, eventually, record, rows


def join(client: Client) -> Client:
    client.subscribe("t", group="g")
    create(client, "taken")
    return client


def work(client: Client, number: int, handler: Any = record, **options: Any) -> int:
    """Handle so many messages."""
    taken = 0
    while taken < number:
        found = client.process("t", handler, timeout=PATIENCE, group="g", **options)
        assert found
        taken += found
    return taken


def bodies(client: Client) -> list[bytes]:
    return sorted([body for _, body in rows(client, "select * from taken")], key=int)


def test_a_member_handles_each_message_once(service: Service) -> None:
    service.put(*[b""] * 300)
    with service.client("w1") as client:
        join(client)
        work(client, 300)
        assert bodies(client) == [b"%d" % number for number in range(1, 301)]
        eventually(lambda: service.do(lambda group: len(group.rows.done)) == 300)
    assert not service.do(lambda group: group.violations)


def test_a_fast_handler_takes_its_messages_claimed_and_ahead(service: Service) -> None:
    service.put(*[b""] * 1000)
    with service.client("w1") as client:
        join(client)
        work(client, 1000)
    wanted = [message.records_max for message in service.works() if message.claim]
    assert max(wanted) > 10
    assert len(service.works()) < 300


def test_two_members_share_the_messages(service: Service) -> None:
    service.put(*[b""] * 60)
    with service.client("w1") as one, service.client("w2") as other:
        both = threading.Barrier(2)

        def handler(message: Message, transaction: Transaction) -> None:
            if message.body in {b"1", b"2"}:
                both.wait(PATIENCE)
            record(message, transaction)

        for client in (one, other):
            join(client)
        threads = [
            threading.Thread(target=client.process, args=("t", handler, 1.0), kwargs={"group": "g"})
            for client in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while len(bodies(one)) + len(bodies(other)) < 60:
            one.process("t", handler, 0.2, group="g")
            other.process("t", handler, 0.2, group="g")
        assert sorted(bodies(one) + bodies(other), key=int) == [b"%d" % number for number in range(1, 61)]
        assert bodies(one)
        assert bodies(other)


def test_a_handler_runs_unclaimed_until_it_writes(service: Service) -> None:
    service.put(b"")
    claimed: list[bool] = []

    def handler(message: Message, transaction: Transaction) -> None:
        claimed.append(bool(service.do(lambda group: group.rows.seats["w1", store].held)))
        record(message, transaction)
        claimed.append(bool(service.do(lambda group: group.rows.seats["w1", store].held)))

    with service.client("w1") as client:
        join(client)
        store = client.publisher_id.split("/")[1]
        work(client, 1, handler)
        assert client.process("t", handler, 0.05, group="g") == 0
    assert claimed == [False, True]


def test_claimed_before_the_handler_begins_on_request(service: Service) -> None:
    service.put(b"", b"")
    claimed: list[bool] = []

    def handler(message: Message, transaction: Transaction) -> None:
        claimed.append(bool(service.do(lambda group: group.rows.seats["w1", store].held)))

    with service.client("w1") as client:
        join(client)
        store = client.publisher_id.split("/")[1]
        work(client, 2, handler, claim="before")
    assert claimed == [True, True]


@pytest.mark.parametrize(("claim", "expected"), [("before", [1, 2]), ("auto", [1, 1])])
def test_an_attempt_that_is_cut_off_counts_where_handlers_act_outside(
    service: Service, claim: str, expected: list[int]
) -> None:
    """With claim "before" a first attempt is the first one of all (GR23); otherwise the handler is not at fault."""
    service.put(b"")
    attempts: list[int] = []

    def handler(message: Message, transaction: Transaction) -> None:
        attempts.append(message.attempts)
        if len(attempts) == 1:
            raise KeyboardInterrupt
        record(message, transaction)

    with service.client("w1") as client:
        join(client)
        with pytest.raises(KeyboardInterrupt):
            client.process("t", handler, timeout=PATIENCE, group="g", claim=claim)
        work(client, 1, handler, claim=claim)
    assert attempts == expected


def test_a_command_that_cannot_be_run_counts_no_attempt(service: Service, tmp_path: Path) -> None:
    """A worker with a broken program, started again and again, makes no dead letters."""
    service.put(b"")
    program, attempts = tmp_path / "bill", []
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    broken = Commands([str(program)], None, 60.0, "g")

    def handler(message: Message, transaction: Transaction) -> None:
        attempts.append(message.attempts)

    with service.client("w1") as client:
        join(client)
        with pytest.raises(CallerError, match="cannot be run"):
            client.process("t", broken.handle, timeout=PATIENCE, group="g", claim="before")
        work(client, 1, handler, claim="before")
    assert attempts == [1]


def test_a_failed_message_comes_again_and_counts_its_attempts(service: Service) -> None:
    service.put(b"", b"")
    attempts: dict[bytes, list[int]] = {b"1": [], b"2": []}

    def handler(message: Message, transaction: Transaction) -> None:
        attempts[message.body].append(message.attempts)
        record(message, transaction)
        if message.body == b"1" and message.attempts < 3:
            raise ZeroDivisionError("on purpose")

    with service.client("w1") as client:
        join(client)
        failures = 0
        while len(rows(client, "select * from taken")) < 2:
            try:
                client.process("t", handler, PATIENCE, group="g")
            except ZeroDivisionError:
                failures += 1
        assert failures == 2
        assert bodies(client) == [b"1", b"2"]
    assert attempts == {b"1": [1, 2, 3], b"2": [1]}
    told = {one for message in service.works() for one in message.say.tried}
    assert {(one.attempts, one.error) for one in told} == {
        (number, "ZeroDivisionError%3A%20on%20purpose") for number in (1, 2)
    }


def test_later_and_reject_are_told_to_the_group(service: Service) -> None:
    service.put(b"", b"")

    def handler(message: Message, transaction: Transaction) -> None:
        if message.body == b"1" and message.attempts == 1:
            raise Later(0.01)
        if message.body == b"2":
            raise Reject("not for us")
        record(message, transaction)

    with service.client("w1") as client:
        join(client)
        assert work(client, 3, handler) == 3
        assert bodies(client) == [b"1"]
    assert service.do(lambda group: group.rows.dead) == {2: "not%20for%20us"}


def test_handlers_run_side_by_side(service: Service) -> None:
    service.put(*[b""] * 4)
    barrier = threading.Barrier(4)

    def handler(message: Message, transaction: Transaction) -> None:
        barrier.wait(PATIENCE)
        record(message, transaction)

    with service.client("w1") as client:
        join(client)
        work(client, 4, handler, concurrency=4)
        assert bodies(client) == [b"1", b"2", b"3", b"4"]


def test_a_part_is_in_one_handler_at_a_time_and_in_order(keyed: Service) -> None:
    keyed.put(*[b"a", b"b", b"c", b"d"] * 10)
    lock, running, seen = threading.Lock(), set[int | None](), dict[int | None, list[int]]()

    def handler(message: Message, transaction: Transaction) -> None:
        with lock:
            assert message.part not in running
            running.add(message.part)
        record(message, transaction)
        with lock:
            running.discard(message.part)
            seen.setdefault(message.part, []).append(int(message.body))

    with keyed.client("w1") as client:
        join(client)
        work(client, 40, handler, concurrency=3)
        assert len(bodies(client)) == 40
    assert len(seen) > 1
    assert all(part is not None and order == sorted(order) for part, order in seen.items())


def test_tasks_run_side_by_side(service: Service) -> None:
    service.put(*[b""] * 4)

    async def main() -> int:
        async with service.async_client("w1") as client:
            await client.subscribe("t", group="g")
            with client.transaction() as transaction:
                transaction.execute("create table taken (id, body)")
            here, all_here = 0, asyncio.Event()

            async def handler(message: Message, transaction: Transaction) -> None:
                nonlocal here
                here += 1
                if here == 4:
                    all_here.set()
                await asyncio.wait_for(all_here.wait(), PATIENCE)
                record(message, transaction)

            taken = 0
            while taken < 4:
                taken += await client.process("t", handler, PATIENCE, group="g", concurrency=4)
            with client.transaction() as transaction:
                return len(list(transaction.execute("select * from taken")))

    assert asyncio.run(main()) == 4


def test_a_claim_without_an_answer_blocks_no_other_task(service: Service) -> None:
    """While no claim is granted, another task runs, and lets the service grant it."""
    service.put(b"")
    asked = threading.Event()

    def refuse(message: Any) -> Status | None:
        if not isinstance(message, Work) or not message.say.claim:
            return None
        asked.set()
        return Status("s1", Outcome.UNAVAILABLE)

    async def main() -> None:
        async with service.async_client("w1") as client:
            await client.subscribe("t", group="g")
            with client.transaction() as transaction:
                transaction.execute("create table taken (id, body)")
            service.refuse = refuse
            taken = asyncio.create_task(client.process("t", record, PATIENCE, group="g"))
            while not asked.is_set():
                assert not taken.done()
                await asyncio.sleep(0)
            (hand,) = client._session.core.members["t", "g"].holdings.hands.values()
            assert hand.state == ASKING
            service.refuse = lambda message: None
            assert await taken == 1
            with client.transaction() as transaction:
                assert len(list(transaction.execute("select * from taken"))) == 1

    asyncio.run(main())
    assert not service.do(lambda group: group.violations)


def test_a_handler_of_a_task_does_not_begin_without_its_claim(service: Service) -> None:
    """The attempt does not count, and the message goes on at another member."""
    service.put(b"")
    begun: list[int] = []

    async def handler(message: Message, transaction: Transaction) -> None:
        begun.append(message.attempts)
        record(message, transaction)

    async def main() -> None:
        async with service.async_client("w1", timeout=0.3) as client:
            await client.subscribe("t", group="g")
            service.refuse = lambda message: (
                Status("s1", Outcome.UNAVAILABLE) if isinstance(message, Work) and message.say.claim else None
            )
            assert await client.process("t", handler, 0.1, group="g") == 0
            service.refuse = lambda message: None

    asyncio.run(main())
    assert begun == []
    with service.client("w2") as other:
        join(other)
        assert work(other, 1) == 1
        assert bodies(other) == [b"1"]


def test_the_wait_for_a_claim_is_no_part_of_the_pace(service: Service) -> None:
    service.put(b"", b"")
    with service.client("w1") as client:
        join(client)
        session = client._session
        waits = GroupWaits(session)
        member = waits.joined("t", "g")
        call = GroupCall(2, session.until(PATIENCE), 2)
        assert session.wait(*next(_waits(waits, member, call, session.until(PATIENCE))))
        with session.entered():
            hands = [member.begin(entry, 100.0) for _ in range(2) if (entry := member.front(claimed=False))]
        run = GroupProcessing(waits, member, 2, 2, "auto")
        run._not_handling(hands[0], 5.0)
        assert [hand.began for hand in hands] == [105.0, 100.0]


def _waits(waits: GroupWaits, member: Any, call: GroupCall, until: float) -> Iterator[tuple[Callable[[], bool], float]]:
    """The first wait of a call for records, as arguments of `Session.wait`; it takes both records."""
    wait = next(waits.available(member, call, 0.0, until))
    yield lambda: member.holdings.queue.records == 2, wait.deadline


def test_a_claim_that_is_given_up_rolls_back_and_is_counted(service: Service) -> None:
    service.put(b"")
    begun, go_on = threading.Event(), threading.Event()

    def handler(message: Message, transaction: Transaction) -> None:
        if message.attempts == 1:
            begun.set()
            assert go_on.wait(PATIENCE)
        record(message, transaction)

    with service.client("w1") as client:
        join(client)
        thread = threading.Thread(target=work, args=(client, 1, handler), kwargs={"claim": "before"})
        thread.start()
        assert begun.wait(PATIENCE)
        key = "w1", client.publisher_id.split("/")[1]
        service.do(lambda group: group.release(key))
        member = client._session.core.members["t", "g"]
        eventually(lambda: not member.holdings.kept)
        go_on.set()
        thread.join()
        assert client._session.counters["claims_lost"] == 1
        assert bodies(client) == [b"1"]


def test_a_member_that_holds_something_shows_signs_of_life(service: Service) -> None:
    service.put(b"")
    begun, go_on = threading.Event(), threading.Event()

    def handler(message: Message, transaction: Transaction) -> None:
        record(message, transaction)  # Its transaction is open, and has the client's lock.
        begun.set()
        assert go_on.wait(PATIENCE)

    with service.client("w1") as client:
        join(client)
        thread = threading.Thread(target=work, args=(client, 1, handler))
        thread.start()
        assert begun.wait(PATIENCE)
        before = len(service.works())
        eventually(lambda: len(service.works()) >= before + 3)
        go_on.set()
        thread.join()
        assert bodies(client) == [b"1"]


def test_without_a_membership_nothing_is_handled(service: Service) -> None:
    with service.client("w1") as client:
        with pytest.raises(NotSubscribed):
            client.process("t", record, group="g")
        with pytest.raises(CallerError, match='claim is "auto" or "before"'):
            client.process("t", record, group="g", claim="after")  # type: ignore[arg-type]
        with pytest.raises(CallerError, match="a consumer group is of one topic"):
            client.process(["t", "u"], record, group="g")
        for call in (lambda: client.process("t.*", record, group="g"), lambda: client.subscribe("t.*", group="g")):
            with pytest.raises(CallerError, match="is a pattern of topics, and a consumer group is of one topic"):
                call()
        with pytest.raises(CallerError, match="mode belongs to a consumer group"):
            client.subscribe("t", mode="keyed")
