"""Puts and transactions of a client at a real proxy and a real server."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.client import Client
from pubsub.client.batch_contents import BatchContents, split
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import (
    CallerError,
    InDoubt,
    InvalidName,
    StateCopied,
    StorageError,
    StoreFull,
    TooLarge,
    Unavailable,
)
from tests.client.opened import PATIENCE, bodies, create, eventually, kill, names, nothing, rows

# Puts


def test_a_put_returns_the_counter_that_subscribers_see(cluster: Embedded, client: Client, topic: str) -> None:
    client.subscribe(topic)
    ticket = client.put(topic, b"one")
    assert ticket.done
    counters = client.put_many(topic, [b"two", b"three"])
    seen = [message.counter for _, message in zip(range(3), client.messages(topic, timeout=5.0), strict=False)]
    assert seen == [ticket.counter, *counters]


def test_puts_that_do_not_wait_arrive_in_order(client: Client, topic: str) -> None:
    client.subscribe(topic)
    for number in range(300):
        client.put(topic, b"%d" % number, wait=False)
    client.flush()
    assert client.unfinished(topic) == 0
    assert bodies(client, topic, 300) == [b"%d" % number for number in range(300)]


def test_a_ticket_shows_the_state_of_its_message(client: Client, topic: str) -> None:
    ticket = client.put(topic, b"shown")
    assert repr(ticket) == f"<Ticket {ticket.counter}, done>"


@pytest.mark.parametrize("many", [False, True])
def test_a_thread_that_puts_without_waiting_takes_the_answers_itself(cluster: Embedded, topic: str, many: bool) -> None:
    """After another thread drove the sockets, the Messenger's thread leaves them alone; here for the whole test."""
    with cluster.client(f"going{topic}") as client:
        client.put(topic, b"first")
        turn = client._session._messenger._loop.turn
        turn._grace = 3600.0
        client.put(topic, b"second")
        chain = client._session.core.outbox.chains[topic]
        before, end = chain.finished, time.monotonic() + PATIENCE
        while chain.finished == before:
            assert not chain.crowded  # Or it would wait, and drive the sockets by that.
            if many:
                client.put_many(topic, [b"x"], wait=False)
            else:
                client.put(topic, b"x", wait=False)
            assert time.monotonic() < end
            time.sleep(0.01 * chain.is_busy)  # Some time for the service.


def test_a_put_that_does_not_wait_writes_nothing_where_the_state_is_a_copy(client: Client, topic: str) -> None:
    client.put(topic, b"first")
    session = client._session
    session.core.copied = StateCopied(client.name, "state", "seen elsewhere")
    with pytest.raises(StateCopied, match="seen elsewhere"):
        client.put(topic, b"x", wait=False)
    session.core.copied = None
    assert not session.core.outbox.chains[topic].rows


def test_a_put_that_does_not_wait_and_is_cut_off_leaves_a_client_that_goes_on(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.subscribe(topic)
    ticket = client.put(topic, b"first", wait=False)

    def was_interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(client._session, "commit", was_interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.put(topic, b"x", wait=False)
    assert client.put(topic, b"y").done
    assert ticket.done
    assert bodies(client, topic, 2) == [b"first", b"y"]


def test_threads_may_put_at_once_each_in_its_own_order(client: Client, topic: str) -> None:
    client.subscribe(topic)

    def work(name: int) -> None:
        for number in range(50):
            client.put(topic, b"%d %d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = bodies(client, topic, 200)
    for name in range(4):
        assert [body for body in found if body.startswith(b"%d " % name)] == [
            b"%d %d" % (name, number) for number in range(50)
        ]


def test_a_put_larger_than_a_batch_is_refused_before_anything_is_written(client: Client, topic: str) -> None:
    before = client._session.core.numbers.highest
    with pytest.raises(TooLarge, match="RECORD_BYTES_MAX"):
        client.put(topic, bytes(BATCH_BYTES_MAX))
    assert client._session.core.numbers.highest == before
    assert client.unfinished(topic) == 0


@pytest.mark.parametrize("name", ["../x", "..", "", "a b", "a\r\nb", "a\0b", "x" * 65, "ä"])
def test_a_client_name_that_may_not_travel_is_refused_before_anything_is_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        Client(name, directory=tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["", "a b", "a\r\nb", "a\0b", "x" * 10_000, "ä"])
def test_a_topic_that_may_not_travel_is_refused_before_anything_is_written(client: Client, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.put(name, b"x"),
        lambda: client.subscribe(name),
        lambda: client.unsubscribe(name),
        lambda: client.get(name, timeout=0),
        lambda: client.discard(name),
        lambda: client.publisher(name),
    ]
    for call in calls:
        with pytest.raises(InvalidName):
            call()
    assert name not in client.subscriptions()


def test_a_body_that_is_not_bytes_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(CallerError, match="bytes"):
        client.put(topic, "text")  # type: ignore[arg-type]


def test_put_many_splits_large_puts_into_batches() -> None:
    batches = split(BatchContents([b"x"] * (BATCH_RECORDS_MAX + 5)))
    assert [len(batch.bodies) for batch in batches] == [BATCH_RECORDS_MAX, 5]
    large = bytes(BATCH_BYTES_MAX // 3)
    assert [len(batch.bodies) for batch in split(BatchContents([large] * 5))] == [2, 2, 1]
    assert split(BatchContents([])) == []


def test_a_put_that_timed_out_is_in_doubt_kept_and_finished_by_the_next_put_in_order(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(names)}", cluster.directory / "clients"
    with cluster.client("reader" + topic) as reader:
        reader.subscribe(topic)
        with Client(name, proxies=[nowhere], directory=folder, timeout=0.15) as alone:
            with pytest.raises(InDoubt, match="flush") as caught:
                alone.put(topic, b"first")
            assert (caught.value.topic, caught.value.unfinished, caught.value.exit_code) == (topic, 1, 5)
            with pytest.raises(InDoubt):
                alone.flush(0.05)
            assert alone.unfinished(topic) == 1
        with cluster.client(name) as again:
            assert again.unfinished(topic) == 1
            again.put(topic, b"second")
        assert bodies(reader, topic, 2) == [b"first", b"second"]


def test_flush_finishes_unfinished_puts_after_a_kill(cluster: Embedded, topic: str, nowhere: str) -> None:
    name, folder = f"client{next(names)}", cluster.directory / "clients"
    with cluster.client("reader" + topic) as reader:
        reader.subscribe(topic)
        killed = Client(name, proxies=[nowhere], directory=folder)
        for number in range(5):
            killed.put_many(topic, [b"%d" % number] * 2, wait=False)
        kill(killed)
        with cluster.client(name) as again:
            again.flush()
            again.flush()
        assert bodies(reader, topic, 10) == [b"%d" % (number // 2) for number in range(10)]
        assert not reader.get_many(topic, timeout=0.05)


def test_a_put_whose_answer_was_lost_in_a_kill_arrives_once(cluster: Embedded, topic: str) -> None:
    with cluster.client("reader" + topic) as reader:
        reader.subscribe(topic)
        name = f"client{next(names)}"
        killed = cluster.client(name)
        killed.put(topic, b"once")
        assert len(list(killed._session.store.rows())) == 1  # Finished, and not out of the outbox yet.
        kill(killed)
        with cluster.client(name) as again:
            assert again.unfinished(topic) == 1
            again.flush()
        assert bodies(reader, topic, 1) == [b"once"]
        assert nothing(reader, topic)


def test_discard_drops_unfinished_puts_and_the_next_put_succeeds(cluster: Embedded, topic: str, nowhere: str) -> None:
    name, folder = f"client{next(names)}", cluster.directory / "clients"
    with cluster.client("reader" + topic) as reader:
        reader.subscribe(topic)
        with Client(name, proxies=[nowhere], directory=folder) as alone:
            ticket = alone.put(topic, b"dropped", wait=False)
            alone.put_many(topic, [b"dropped"] * 3, wait=False)
            assert alone.discard(topic) == 4
            assert alone.discard(topic) == 0
            assert ticket.discarded
            assert not ticket.done
        with cluster.client(name) as again:
            again.put(topic, b"kept")
        assert bodies(reader, topic, 1) == [b"kept"]


def test_a_discard_is_fsynced_as_no_put_is(nowhere: str, tmp_path: Path, topic: str) -> None:
    with Client("c", proxies=[nowhere], directory=tmp_path) as client:
        client.put(topic, b"dropped", wait=False)
        assert client._session.store.db.pragma("synchronous") == 1
        client.discard(topic)
        assert client._session.store.db.pragma("synchronous") == 2


def test_an_outbox_at_its_limit_refuses_a_put_with_a_remedy(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, outbox_bytes_max=1024)
    with Client("c", settings=settings) as client:
        client.put(topic, bytes(900), wait=False)
        with pytest.raises(TooLarge, match="outbox_bytes_max"):
            client.put(topic, bytes(900), wait=False)


def test_puts_that_do_not_wait_block_when_no_server_takes_them(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, window=2)
    with Client("c", settings=settings) as client:
        for _ in range(4):
            client.put(topic, b"x", wait=False)
        with pytest.raises(Unavailable, match="unfinished"):
            client.put(topic, b"x", wait=False, timeout=0.1)
        assert client.unfinished(topic) == 4


# Transactions


def test_a_transaction_happens_completely_or_not_at_all(client: Client, topic: str) -> None:
    create(client, "mine")
    client.subscribe(topic)
    client.subscribe(topic + "b")
    with client.transaction() as transaction:
        transaction.execute("insert into mine values (1, 'yes')")
        ticket = client.put(topic, b"a", transaction=transaction)
        assert not ticket.done
        counters = client.put_many(topic + "b", [b"b", b"c"], transaction=transaction)
        assert len(counters) == 2
    client.flush()
    assert ticket.done

    class StopError(Exception):
        pass

    def fail() -> None:
        with client.transaction() as transaction:
            transaction.execute("insert into mine values (2, 'no')")
            client.put(topic, b"never", transaction=transaction)
            raise StopError

    with pytest.raises(StopError):
        fail()
    client.put(topic, b"after")
    assert rows(client, "select id from mine") == [(1,)]
    assert bodies(client, topic, 2) == [b"a", b"after"]
    assert bodies(client, topic + "b", 2) == [b"b", b"c"]


def test_a_transactions_puts_are_fsynced_before_they_are_sent(client: Client, topic: str) -> None:
    events: list[str] = []
    store, messenger = client._session.store, client._session._messenger
    begins, send = store.begin, messenger.send

    def begin(*, fsync: bool) -> None:
        events.append("fsynced commit" if fsync else "commit")
        begins(fsync=fsync)

    def sending(*args: Any, **kwargs: Any) -> int:
        events.append("send")
        return send(*args, **kwargs)

    store.begin, messenger.send = begin, sending  # type: ignore[method-assign]
    with client.transaction() as opened:
        client.put(topic, b"x", transaction=opened)
        assert events == ["fsynced commit"]
    assert events[:2] == ["fsynced commit", "send"]


def test_a_put_outside_the_transaction_raises_in_its_thread_and_waits_in_others(client: Client, topic: str) -> None:
    done = threading.Event()

    def other() -> None:
        client.put(topic, b"other")
        done.set()

    thread = threading.Thread(target=other)
    with client.transaction() as transaction:
        with pytest.raises(CallerError, match="transaction="):
            client.put(topic, b"x")
        with pytest.raises(CallerError):
            client.get(topic)
        thread.start()
        client.put(topic, b"inside", transaction=transaction)
        assert not done.wait(0.02)
    thread.join()
    assert done.is_set()


def test_a_transaction_that_is_over_takes_no_put(client: Client, topic: str) -> None:
    with client.transaction() as transaction:
        pass
    with pytest.raises(CallerError, match="over"):
        client.put(topic, b"x", transaction=transaction)


def test_a_transaction_that_could_not_begin_is_collected_without_harm(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StoreFull("store", "no space")

    block = client.transaction()
    with monkeypatch.context() as patched:
        patched.setattr(client._session, "check_disk", full)
        with pytest.raises(StoreFull):
            block.__enter__()
    with client._session.entered():  # The collector may come in the midst of any later step of the thread.
        del block
        gc.collect()
    client.put(topic, b"1")
    with client.transaction() as transaction:
        client.put(topic, b"2", transaction=transaction)


def test_a_transaction_belongs_to_its_own_client(cluster: Embedded, client: Client, topic: str) -> None:
    with cluster.client("other" + topic) as other:
        transacting = other.transaction()
        transaction = transacting.__enter__()
        with pytest.raises(CallerError, match="another client's"):
            client.put(topic, b"x", transaction=transaction)
        transacting.__exit__(None, None, None)


def test_a_statement_that_ends_the_transaction_is_refused(client: Client) -> None:
    def commit() -> None:
        with client.transaction() as transaction:
            transaction.execute("commit")

    with pytest.raises(CallerError, match="ended the transaction"):
        commit()
    create(client, "still_works")


def test_a_put_that_could_not_be_sent_is_sent_later_without_a_further_call(
    cluster: Embedded, topic: str, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"client{next(names)}"
    with Client(name, proxies=[nowhere], directory=cluster.directory / "clients") as alone:
        alone.put(topic, b"first", wait=False)

    def refuse(counter: int) -> bytes:
        raise StorageError("c.db", "cannot be read, says the test")

    with cluster.client(name) as client:
        time.sleep(0.2)  # The thread that drives the sockets sleeps, for long.
        with monkeypatch.context() as patch:
            patch.setattr(client._session.store, "body", refuse)
            ticket = client.put(topic, b"second", wait=False)
        eventually(lambda: ticket.done)


def test_the_error_for_a_full_window_names_the_time_of_that_call(tmp_path: Path, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, window=1)
    with Client("c", settings=settings) as client:
        client.put("t", b"0", wait=False)
        client.put("t", b"1", wait=False)
        with pytest.raises(Unavailable) as found:
            client.put("t", b"2", wait=False, timeout=0.05)
        assert found.value.seconds == pytest.approx(0.05, abs=5.0)


def test_puts_of_an_event_loop_leave_the_sockets_to_the_messengers_thread(
    cluster: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another thread drove the sockets, the Messenger's thread would not take answers for a while."""

    async def work() -> None:
        async with cluster.async_client(f"loop{topic}") as client:
            await client.put(topic, b"first")
            driven: list[bool] = []
            monkeypatch.setattr(client._session, "drive_once", lambda: driven.append(True))
            chain, seen = client._session.core.outbox.chains[topic], False
            while not seen:
                await client.put_many(topic, [b"x"], wait=False)
                seen = chain.is_busy
            await client.put(topic, b"x", wait=False)
            assert not driven
            await client.flush()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))
