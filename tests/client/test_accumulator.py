"""Puts of many callers of one client at a real proxy and server: shared rows, and a separate result for each caller."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import AsyncClient, Client
from pubsub.client.core import groups
from pubsub.client.core.chain import MESSAGES_MAX
from pubsub.client.core.changes import RowAdded
from pubsub.client.steps import guarded
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt, StoreFull, TooLarge, Unavailable
from tests.client.opened import PATIENCE, bodies, eventually, names


def run(cluster: Embedded, work: Callable[[AsyncClient], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with cluster.async_client(f"client{next(names)}", **options) as client:
            await work(client)

    asyncio.run(main())


def rows_of(client: Client | AsyncClient, monkeypatch: pytest.MonkeyPatch) -> list[RowAdded]:
    """Collect the rows that are written from now on."""
    store, found = client._session.store, list[RowAdded]()
    commit = store.commit

    def noted(changes: Any, **named: Any) -> bool:
        fsynced = commit(changes, **named)
        found.extend(change for change in changes if isinstance(change, RowAdded))
        return fsynced

    monkeypatch.setattr(store, "commit", noted)
    return found


def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop due groups from being written by the thread that drives the sockets, since the machine may be slow."""
    monkeypatch.setattr(groups, "HOLD_SECONDS", 60.0)


def nobody(nowhere: str, tmp_path: Path, **named: Any) -> ClientSettings:
    return ClientSettings(proxies=(nowhere,), directory=tmp_path, **named)


def test_concurrent_puts_of_tasks_share_a_row_and_have_separate_tickets(
    cluster: Embedded, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(monkeypatch)
    client.subscribe(topic)

    async def work(putter: AsyncClient) -> None:
        rows = rows_of(putter, monkeypatch)
        puts = [
            putter.put(topic, b"%d" % n, key=b"k%d" % n if n % 2 else b"", headers={"n": b"%d" % n} if n > 7 else None)
            for n in range(10)
        ]
        tickets = await asyncio.gather(*puts)
        assert [row.count for row in rows] == [1, 9], "the plain ones are apart from those with a key"
        assert all(ticket.done for ticket in tickets)
        got = [message for _, message in zip(range(10), client.messages(topic, timeout=PATIENCE), strict=False)]
        assert [message.counter for message in got] == [ticket.counter for ticket in tickets]
        for n, message in enumerate(got):
            assert message.body == b"%d" % n
            assert message.key == (b"k%d" % n if n % 2 else b"")
            assert message.headers == ({"n": b"%d" % n} if n > 7 else {})

    run(cluster, work)


def until_closed(client: Client, topic: str, body: bytes) -> None:
    """Put a message that gets no answer."""
    with pytest.raises(CallerError, match="closed"):
        client.put(topic, body, timeout=2 * PATIENCE)


def fill(client: Client, topic: str) -> list[threading.Thread]:
    """Fill the limit of messages in flight."""
    threads: list[threading.Thread] = []
    while len(threads) < MESSAGES_MAX:
        threads.append(threading.Thread(target=until_closed, args=(client, topic, b"flies")))
        threads[-1].start()
        eventually(lambda: len(client._session.core.outbox.chain(topic).messages) == len(threads))
    return threads


def test_a_put_without_concurrent_puts_opens_no_group_and_waits_for_no_row(
    nowhere: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One try that is never over: with the next one all is sent anew.
    with Client("c", settings=nobody(nowhere, tmp_path, try_seconds=60.0)) as client:
        session = client._session
        monkeypatch.setattr(session.core.groups, "join", None)
        # The thread that drives the sockets may have the lock at that moment, and then he would not wait for it.
        monkeypatch.setattr(session, "enter_if_free", lambda: session.enter() is None)  # type: ignore[func-returns-value]
        threads = fill(client, topic)
    for thread in threads:
        thread.join()


PUTS: dict[str, Callable[[Client, str], object]] = {
    "put": lambda client, topic: client.put(topic, b"x"),
    "put_many": lambda client, topic: client.put_many(topic, [b"x"]),
}


@pytest.mark.parametrize("call", PUTS)
def test_a_put_inside_another_waiting_call_is_refused_and_not_written(client: Client, topic: str, call: str) -> None:
    """A signal handler does this: its thread drives the sockets, and cannot wait for an answer."""
    session, refused = client._session, list[CallerError]()

    def put() -> bool:
        if session._messenger.driven_here and not refused:
            with pytest.raises(CallerError, match="inside another call") as raised:
                PUTS[call](client, topic)
            refused.append(raised.value)
        return bool(refused)

    assert guarded(session, session.wait, put, session.now + PATIENCE), "as every call of a client does"
    assert client.unfinished(topic) == 0
    PUTS[call](client, topic)


def test_threads_share_rows_and_each_keeps_its_order(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.subscribe(topic)
    rows = rows_of(client, monkeypatch)
    tickets: dict[bytes, int] = {}

    def work(name: int) -> None:
        for number in range(50):
            body = b"%d %d" % (name, number)
            tickets[body] = client.put(topic, body).counter

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) < sum(row.count for row in rows) == 400
    got = [message for _, message in zip(range(400), client.messages(topic, timeout=PATIENCE), strict=False)]
    assert {message.body: message.counter for message in got} == tickets
    for name in range(8):
        own = [message.body for message in got if message.body.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(50)]


def test_a_put_while_others_are_in_flight_is_kept_without_an_answer(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = nobody(nowhere, tmp_path, try_seconds=60.0)
    with Client("c", settings=settings) as client:
        threads = fill(client, topic)
        with pytest.raises(InDoubt):
            client.put(topic, b"at its end", timeout=0.0)
        threads.append(threading.Thread(target=until_closed, args=(client, topic, b"held")))
        threads[-1].start()
        # Neither an answer nor its time-out has it written.
        eventually(lambda: len(client._session.core.outbox.chain(topic).rows) == MESSAGES_MAX + 2)
    for thread in threads:
        thread.join()
    with Client("c", settings=settings) as client:
        assert client.unfinished(topic) == MESSAGES_MAX + 2


def test_a_task_cancelled_before_its_group_is_written_has_not_put(
    nowhere: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(monkeypatch)

    async def work() -> None:
        # One try that is never over: between two of them nothing is in flight for a moment, and no group is held.
        settings = nobody(nowhere, tmp_path, try_seconds=60.0)
        async with AsyncClient("c", settings=settings) as putter:
            rows = rows_of(putter, monkeypatch)
            before = []
            for number in range(MESSAGES_MAX):
                before.append(asyncio.create_task(putter.put(topic, b"before")))
                while putter._session.core.outbox.chain(topic).sent <= number:
                    await asyncio.sleep(0)
            puts = [asyncio.create_task(putter.put(topic, b"%d" % n)) for n in range(3)]
            await asyncio.sleep(0)
            puts[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await puts[1]
            assert [row.count for row in rows] == [1] * MESSAGES_MAX, "the group is held"
            assert putter.unfinished(topic) == MESSAGES_MAX + 2
            assert [row.count for row in rows] == [1] * MESSAGES_MAX + [2]
            for put in (*before, puts[0], puts[2]):
                put.cancel()

    asyncio.run(work())


def test_a_task_that_is_cancelled_later_is_in_doubt_and_the_others_are_not(
    nowhere: str, tmp_path: Path, topic: str
) -> None:
    async def work() -> None:
        async with AsyncClient("c", settings=nobody(nowhere, tmp_path)) as putter:
            seconds = [0.3, PATIENCE, 0.3]
            puts = [asyncio.create_task(putter.put(topic, b"x", timeout=timeout)) for timeout in seconds]
            while not putter._session.core.outbox.chain(topic).rows:
                await asyncio.sleep(0)
            puts[1].cancel()
            answers = await asyncio.gather(*puts, return_exceptions=True)
            assert [type(answer).__name__ for answer in answers] == ["InDoubt", "CancelledError", "InDoubt"]
            assert putter.unfinished(topic) == 3

    asyncio.run(work())


def test_each_caller_has_its_own_timeout(nowhere: str, tmp_path: Path, topic: str) -> None:
    async def work() -> None:
        async with AsyncClient("c", settings=nobody(nowhere, tmp_path)) as putter:

            async def put(seconds: float) -> None:
                with pytest.raises(InDoubt) as told:
                    await putter.put(topic, b"x", timeout=seconds)
                assert told.value.seconds == pytest.approx(seconds, abs=PATIENCE / 4)

            first = asyncio.create_task(putter.put(topic, b"x", timeout=PATIENCE))
            await asyncio.gather(put(0.2), put(0.0), put(0.1))
            assert not first.done(), "it has more time than the others in its group"
            first.cancel()

    asyncio.run(work())


@pytest.mark.parametrize("way", ["put_many", "nowait", "publisher", "transaction"])
def test_another_kind_of_put_comes_after_the_open_group(
    cluster: Embedded, client: Client, topic: str, way: str
) -> None:
    client.subscribe(topic)

    async def otherwise(putter: AsyncClient) -> None:
        if way == "put_many":
            await putter.put_many(topic, [b"1"])
        elif way == "nowait":
            await putter.put(topic, b"1", wait=False)
        elif way == "publisher":
            async with putter.publisher(topic, records=2) as publisher:
                await publisher.put(b"1")
        else:
            with putter.transaction() as transaction:
                await putter.put(topic, b"1", transaction=transaction)

    async def work(putter: AsyncClient) -> None:
        await putter.put(topic, b"first")
        await asyncio.gather(putter.put(topic, b"0"), otherwise(putter))
        await putter.flush()
        assert bodies(client, topic, 3) == [b"first", b"0", b"1"]

    run(cluster, work)


@pytest.mark.parametrize("way", ["put_many", "nowait"])
@pytest.mark.parametrize("size", [1, 70_000])
def test_a_put_that_closes_the_open_batch_shares_its_commit_but_not_its_error(
    nowhere: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch, size: int, way: str
) -> None:
    hold(monkeypatch)

    async def closing(putter: AsyncClient) -> int:
        if way == "put_many":
            (counter,) = await putter.put_many(topic, [bytes(size)], wait=False)
            return counter
        return (await putter.put(topic, bytes(size), wait=False)).counter

    async def work() -> None:
        settings = nobody(nowhere, tmp_path, outbox_bytes_max="64 KiB", timeout_seconds=0.1)
        async with AsyncClient("c", settings=settings) as putter:
            await asyncio.gather(putter.put(topic, b"first"), return_exceptions=True)
            commits, rows = putter._session.store.commits, rows_of(putter, monkeypatch)
            putter._breathed = float("inf")  # All are begun in one turn of the event loop.
            waiting = [asyncio.create_task(putter.put(topic, b"%d" % n)) for n in range(3)]
            (own,) = await asyncio.gather(closing(putter), return_exceptions=True)
            fits = size == 1
            assert [row.count for row in rows] == ([3, 1] if fits else [3])
            assert putter._session.store.commits == commits + 1
            assert own == rows[1].counter if fits else isinstance(own, TooLarge)
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(answer) for answer in answers] == [InDoubt] * 3

    asyncio.run(work())


def test_one_callers_too_large_message_fails_no_other(nowhere: str, tmp_path: Path, topic: str) -> None:
    async def work() -> None:
        settings = nobody(nowhere, tmp_path, outbox_bytes_max="64 KiB")
        async with AsyncClient("c", settings=settings) as putter:
            sizes = [10, 70_000, 20]
            puts = [putter.put(topic, bytes(size), timeout=0.1) for size in sizes]
            answers = await asyncio.gather(*puts, return_exceptions=True)
            assert [type(answer) for answer in answers] == [InDoubt, TooLarge, InDoubt]
            assert putter.unfinished(topic) == 2

    asyncio.run(work())


def test_a_full_disk_refuses_a_part_of_a_group(cluster: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(putter: AsyncClient) -> None:
        store = putter._session.store
        commit = store.commit

        def full(changes: Any, **named: Any) -> bool:
            if any(isinstance(change, RowAdded) and len(change.body) > 1_000 for change in changes):
                raise StoreFull(store.path, "no space is left")
            return commit(changes, **named)

        monkeypatch.setattr(store, "commit", full)
        puts = [putter.put(topic, bytes(size)) for size in (10, 2_000, 20)]
        answers = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["Ticket", "StoreFull", "Ticket"]

    run(cluster, work)


def test_an_invalid_argument_fails_only_its_own_call(cluster: Embedded, topic: str) -> None:
    async def work(putter: AsyncClient) -> None:
        puts = [putter.put(topic, body) for body in (b"good", "bad", b"good")]  # type: ignore[arg-type]
        answers = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["Ticket", "CallerError", "Ticket"]

    run(cluster, work)


def test_a_close_keeps_waiting_puts_and_informs_their_callers(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = nobody(nowhere, tmp_path)
    told: Counter[type] = Counter()
    with Client("c", settings=settings) as client:

        def put() -> None:
            with pytest.raises(CallerError) as raised:
                client.put(topic, b"x", timeout=2 * PATIENCE)
            told[type(raised.value)] += 1

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: sum(row.count for row in tuple(client._session.core.outbox.chain(topic).rows)) == 4)
    for thread in threads:
        thread.join()
    assert told == {CallerError: 4}
    with Client("c", settings=settings) as client:
        assert client.unfinished(topic) == 4


def test_a_discard_includes_puts_that_wait_in_a_group(
    nowhere: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(monkeypatch)

    async def work() -> None:
        async with AsyncClient("c", settings=nobody(nowhere, tmp_path)) as putter:
            puts = [asyncio.create_task(putter.put(topic, b"x")) for _ in range(3)]
            await asyncio.sleep(0)  # All three have joined, and the event loop has not turned since.
            assert putter._session.core.groups.topics == [topic]
            assert putter.discard(topic) == 3
            for put in puts:
                with pytest.raises(CallerError, match="discarded"):
                    await put

    asyncio.run(work())


def test_a_put_that_does_not_wait_is_in_the_outbox_when_it_returns(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = nobody(nowhere, tmp_path, window=2)
    with Client("c", settings=settings) as client:
        tickets = [client.put(topic, b"%d" % n, wait=False) for n in range(2)]
        tickets.append(client.put(topic, b"2", wait=False, key=b"k"))
        tickets.append(client.put(topic, b"3", wait=False, headers={"h": b"v"}))
        assert client.unfinished(topic) == 4
        assert len({ticket.counter for ticket in tickets}) == 4
        with pytest.raises(Unavailable, match="4 batches before it are unfinished"):
            client.put(topic, b"one too many", wait=False, timeout=0.05)
        with pytest.raises(CallerError, match="body is bytes"):
            client.put(topic, "text", wait=False)  # type: ignore[arg-type]
        assert client.unfinished(topic) == 4
    with Client("c", settings=settings) as client:
        assert client.unfinished(topic) == 4


def test_puts_that_do_not_wait_go_out_beyond_the_window_in_order(cluster: Embedded, client: Client, topic: str) -> None:
    client.subscribe(topic)
    with cluster.client(f"client{next(names)}") as putter:
        tickets = [putter.put(topic, b"%d" % n, wait=False) for n in range(600)]
        putter.flush()
        assert all(ticket.done for ticket in tickets)
    got = [message for _, message in zip(range(600), client.messages(topic, timeout=PATIENCE), strict=False)]
    assert [message.body for message in got] == [b"%d" % n for n in range(600)]
    assert [message.counter for message in got] == [ticket.counter for ticket in tickets]
