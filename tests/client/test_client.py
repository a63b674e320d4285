"""The client against a real proxy and a real server, on threads."""

from __future__ import annotations

import gc
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pubsub import embedded
from pubsub.client import Client, Message, Transaction
from pubsub.client.calls import split
from pubsub.client.subscription import Loss
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import (
    CallerError,
    ConfigurationError,
    DataLoss,
    InDoubt,
    InvalidName,
    NotSubscribed,
    StateCopied,
    StoreFull,
    StoreInUse,
    Superseded,
    TooLarge,
    Unavailable,
)
from pubsub.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.protocol import Outcome, Status

_names = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


@pytest.fixture
def client(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"client{next(_names)}") as opened:
        yield opened


@pytest.fixture
def nowhere() -> str:
    """An address where nobody is."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{sock.getsockname()[1]}"


def kill(client: Client) -> None:
    """What a SIGKILL leaves: nothing is sent and nothing is written any more."""
    session = client._session
    session._messenger.close()
    with session.lock:
        session.closed = True
        session.store.db.close()


def eventually(done: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


def bodies(client: Client, topic: str, expected: int, timeout: float = 5.0) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < expected:
        batch = client.get_many(topic, timeout=timeout)
        assert batch, f"only {len(found)} of {expected} came"
        found += batch.bodies()
    return found


def rows(client: Client, statement: str) -> list[tuple[Any, ...]]:
    with client.transaction() as transaction:
        return list(transaction.execute(statement))


def create(client: Client, *tables: str) -> None:
    with client.transaction() as transaction:
        for table in tables:
            transaction.execute(f"create table {table} (id, body)")


# The example of the documentation


def test_the_example(cluster: Embedded) -> None:
    with cluster.client("billing") as client:
        create(client, "ledger")
        client.subscribe("orders")
        client.put("orders", b"first")
        message = client.get("orders", timeout=1.0)
        assert message is not None
        assert (message.topic, message.body, message.publisher) == ("orders", b"first", client.publisher_id)
        client.subscribe("receipts")
        client.put("orders", b"second")

        def handle(message: Message, transaction: Transaction) -> None:
            transaction.execute("insert into ledger values (?, ?)", (message.id, message.body))
            client.put("receipts", b"done", transaction=transaction)

        assert client.process("orders", handle, timeout=1.0) == 1
        assert [body for _, body in rows(client, "select * from ledger")] == [b"second"]
        receipt = client.get("receipts", timeout=5.0)
        assert receipt is not None
        assert receipt.body == b"done"
        assert client.get("orders", timeout=0.05) is None


# Puts


def test_a_put_says_which_counter_its_subscribers_see(cluster: Embedded, client: Client, topic: str) -> None:
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


def test_put_many_splits_what_is_more_than_a_batch_and_puts_it_in_one_commit() -> None:
    batches = split([b"x"] * (BATCH_RECORDS_MAX + 5))
    assert [len(batch) for batch in batches] == [BATCH_RECORDS_MAX, 5]
    large = bytes(BATCH_BYTES_MAX // 3)
    assert [len(batch) for batch in split([large] * 5)] == [2, 2, 1]
    assert split([]) == []


def test_a_put_that_timed_out_is_in_doubt_kept_and_finished_by_the_next_put_in_order(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
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


def test_flush_finishes_after_a_kill_what_a_put_left(cluster: Embedded, topic: str, nowhere: str) -> None:
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
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
        name = f"client{next(_names)}"
        killed = cluster.client(name)
        killed.put(topic, b"once")
        assert len(list(killed._session.store.rows())) == 1  # Finished, and not out of the outbox yet.
        kill(killed)
        with cluster.client(name) as again:
            assert again.unfinished(topic) == 1
            again.flush()
        assert bodies(reader, topic, 1) == [b"once"]
        assert reader.get(topic, timeout=0.05) is None


def test_discard_gives_up_what_is_unfinished_and_the_next_put_goes_through(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
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


def test_an_outbox_at_its_limit_says_so(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, outbox_bytes_max=1024)
    with Client("c", settings=settings) as client:
        client.put(topic, bytes(900), wait=False)
        with pytest.raises(TooLarge, match="outbox_bytes_max"):
            client.put(topic, bytes(900), wait=False)


def test_puts_that_do_not_wait_are_held_up_where_nobody_takes_them(nowhere: str, tmp_path: Path, topic: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, window=2)
    with Client("c", settings=settings) as client:
        for _ in range(4):
            client.put(topic, b"x", wait=False)
        with pytest.raises(Unavailable, match="unfinished"):
            client.put(topic, b"x", wait=False, timeout=0.1)
        assert client.unfinished(topic) == 4


# Transactions


def test_a_transaction_happens_as_a_whole_or_not_at_all(client: Client, topic: str) -> None:
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


def test_a_put_without_the_transaction_in_its_thread_raises_and_other_threads_wait(client: Client, topic: str) -> None:
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


def test_a_transaction_is_its_own_clients(cluster: Embedded, client: Client, topic: str) -> None:
    with cluster.client("other" + topic) as other:
        transacting = other.transaction()
        transaction = transacting.__enter__()
        with pytest.raises(CallerError, match="another client's"):
            client.put(topic, b"x", transaction=transaction)
        transacting.__exit__(None, None, None)


def test_a_statement_that_ends_the_transaction_is_told_off(client: Client) -> None:
    def commit() -> None:
        with client.transaction() as transaction:
            transaction.execute("commit")

    with pytest.raises(CallerError, match="ended the transaction"):
        commit()
    create(client, "still_works")


# Subscriptions


def test_get_without_a_subscription_says_so_at_once(client: Client, topic: str) -> None:
    started = time.monotonic()
    with pytest.raises(NotSubscribed, match=f"subscribe {topic}"):
        client.get(topic, timeout=20.0)
    assert time.monotonic() - started < 5.0


def test_subscribing_to_what_is_subscribed_keeps_the_position(client: Client, topic: str) -> None:
    client.subscribe(topic)
    number = client._session.core.subscriptions[topic].number
    client.put_many(topic, [b"0", b"1", b"2"])
    client.subscribe(topic)
    assert bodies(client, topic, 1)[:1] == [b"0"]
    client.subscribe(topic)
    assert client._session.core.subscriptions[topic].number == number
    assert client.get(topic, timeout=0.1) is None


def test_subscribing_where_a_get_waits_is_answered_at_once_and_the_get_goes_on(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.get, topic, 30.0)
        eventually(lambda: client._session.core.subscriptions[topic].deadline is not None)
        client.subscribe(topic, timeout=5.0)
        client.put(topic, b"x")
        message = waiting.result(30.0)
    assert message is not None
    assert message.body == b"x"


def test_subscribing_again_says_where_nobody_answers(cluster: Embedded, topic: str, nowhere: str) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
    alone = Client(name, proxies=[nowhere], directory=cluster.directory / "clients")
    with pytest.raises(Unavailable, match="subscribe"):
        alone.subscribe(topic, timeout=0.2)
    assert alone.subscriptions()[topic]["settled"]
    kill(alone)
    with cluster.client(name) as client:
        assert bodies(client, topic, 1) == [b"x"]


def test_unsubscribing_from_what_was_never_subscribed_says_so_and_makes_nothing(client: Client, topic: str) -> None:
    with pytest.raises(NotSubscribed, match="never subscribed"):
        client.unsubscribe(topic)
    assert topic not in client.subscriptions()
    client.subscribe(topic)
    client.unsubscribe(topic)
    client.unsubscribe(topic)


def test_unsubscribing_again_unsubscribes_where_another_host_subscribed_since(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.unsubscribe(topic)
        with cluster.client(name, directory=tmp_path) as other:
            other.subscribe(topic)
            client.unsubscribe(topic)
            with pytest.raises(Superseded):
                other.get(topic, timeout=5.0)


def test_unsubscribed_means_silent_and_subscribing_anew_starts_at_the_end(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"missed")
    client.unsubscribe(topic)
    with pytest.raises(NotSubscribed):
        client.get(topic)
    client.put(topic, b"missed too")
    client.subscribe(topic)
    client.put(topic, b"new")
    assert bodies(client, topic, 1) == [b"new"]
    assert client.subscriptions()[topic]["on"]


def test_an_intent_that_was_not_confirmed_is_asked_for_again_by_the_next_start(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
    alone = Client(name, proxies=[nowhere], directory=folder)
    with pytest.raises(Unavailable, match="subscribe"):
        alone.subscribe(topic, timeout=0.1)
    kill(alone)
    with cluster.client(name) as again:
        eventually(lambda: bool(again.subscriptions()[topic]["settled"]))
        again.put(topic, b"x")
        assert bodies(again, topic, 1) == [b"x"]


def test_an_intent_to_unsubscribe_survives_a_kill_before_it_was_confirmed(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
    with cluster.client(name) as client:
        client.subscribe(topic)
    alone = Client(name, proxies=[nowhere], directory=folder)
    with pytest.raises(Unavailable):
        alone.unsubscribe(topic, timeout=0.1)
    kill(alone)
    with cluster.client(name) as again:
        with pytest.raises(NotSubscribed):
            again.get(topic)
        eventually(lambda: bool(again.subscriptions()[topic]["settled"]))


def test_a_get_asks_first_where_the_subscription_is_not_confirmed(cluster: Embedded, topic: str, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere, *cluster.proxies), directory=cluster.directory / "clients", tries=1)
    with Client(f"client{next(_names)}", settings=settings, context=cluster.context) as client:
        with pytest.raises(Unavailable):
            client.subscribe(topic, timeout=0.02)
        assert client.get(topic, timeout=1.0) is None
        assert client.subscriptions()[topic]["settled"]


# Getting


def test_get_returns_none_where_nothing_comes_and_unavailable_where_nobody_answers(
    cluster: Embedded, client: Client, topic: str, nowhere: str
) -> None:
    client.subscribe(topic)
    assert client.get(topic, timeout=0.05) is None
    assert client.get(topic, timeout=0) is None
    name = client.name
    client.close()
    with Client(name, proxies=[nowhere], directory=cluster.directory / "clients") as alone:
        with pytest.raises(Unavailable, match="get"):
            alone.get(topic, timeout=0.1)
        assert alone.get(topic, timeout=0) is None


def test_a_message_that_was_got_never_comes_again_after_a_kill(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(10)])
    first = client.get(topic, timeout=5.0)
    assert first is not None
    assert first.body == b"0"
    assert client.get_many(topic, 3, timeout=5.0).bodies() == [b"1", b"2", b"3"]
    kill(client)
    with cluster.client(name) as again:
        assert bodies(again, topic, 6) == [b"%d" % number for number in range(4, 10)]


def test_a_waiting_get_returns_as_soon_as_something_comes(cluster: Embedded, client: Client, topic: str) -> None:
    client.subscribe(topic)
    with cluster.client("writer" + topic) as writer:
        thread = threading.Timer(0.05, lambda: writer.put(topic, b"at last"))
        thread.start()
        started = time.monotonic()
        message = client.get(topic, timeout=20.0)
        assert time.monotonic() - started < 5.0
        thread.join()
    assert message is not None
    assert message.body == b"at last"


def test_threads_that_wait_on_one_topic_get_a_message_each(client: Client, topic: str) -> None:
    client.subscribe(topic)
    found: list[bytes] = []

    def work() -> None:
        message = client.get(topic, timeout=20.0)
        assert message is not None
        found.append(message.body)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(6):
        client.put(topic, b"%d" % number)
    for thread in threads:
        thread.join(20.0)
    assert sorted(found) == [b"%d" % number for number in range(6)]


def test_iterating_hands_out_every_message_and_gives_the_rest_back(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"%d" % number for number in range(100)])
        iterator = client.messages(topic, timeout=5.0)
        assert [next(iterator).body for _ in range(3)] == [b"0", b"1", b"2"]
        got = client.get(topic, timeout=5.0)  # Another call within the loop takes what comes next.
        assert got is not None
        assert got.body == b"3"
        assert next(iterator).body == b"4"
        iterator.close()  # type: ignore[attr-defined]
        got = client.get(topic, timeout=5.0)
        assert got is not None
        assert got.body == b"5"
        iterator = client.messages(topic, timeout=5.0)
        assert next(iterator).body == b"6"
    with cluster.client(name) as again:
        found = [message.body for message in again.messages(topic, timeout=0.2)]
        assert found == [b"%d" % number for number in range(7, 100)]


def elsewhere(call: Callable[[], Any]) -> Any:
    """What a call returns on another thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(30.0)
    return found[0]


def test_what_an_iteration_has_not_handed_out_is_for_whoever_calls(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"%d" % number for number in range(100)])
        create(client, "taken")
        iterator = client.messages(topic, timeout=5.0)
        assert [next(iterator).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert elsewhere(lambda: client.get(topic, timeout=5.0)).body == b"3"
        assert next(iterator).body == b"4"
        assert elsewhere(lambda: client.get_many(topic, 2, timeout=5.0)).bodies() == [b"5", b"6"]
        assert next(iterator).body == b"7"
        assert elsewhere(lambda: client.process(topic, record, 5.0, 2)) == 2
        assert next(iterator).body == b"10"
        other = client.messages(topic, timeout=5.0)
        assert elsewhere(lambda: next(other)).body == b"11"
        assert next(iterator).body == b"12"
        elsewhere(client.close)
    with cluster.client(name) as again:
        assert [body for _, body in rows(again, "select * from taken")] == [b"8", b"9"]
        found = [message.body for message in again.messages(topic, timeout=0.2)]
        assert found == [b"%d" % number for number in range(13, 100)]


def test_threads_that_iterate_get_and_process_side_by_side_take_every_message_once(client: Client, topic: str) -> None:
    total = 3_000
    client.subscribe(topic)
    create(client, "taken")
    client.put_many(topic, [b"%d" % number for number in range(total)])
    found: list[bytes] = []

    def iterate() -> None:
        found.extend(message.body for message in client.messages(topic, timeout=1.0))

    def get() -> None:
        while (message := client.get(topic, timeout=1.0)) is not None:
            found.append(message.body)

    def get_many() -> None:
        while batch := client.get_many(topic, 7, timeout=1.0):
            found.extend(batch.bodies())

    def process() -> None:
        while client.process(topic, record, 1.0, 5):
            continue

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(take) for take in (iterate, get, get_many, process, iterate, get)]:
            done.result(60.0)
    found += [body for _, body in rows(client, "select * from taken")]
    assert sorted(found, key=int) == [b"%d" % number for number in range(total)]


def test_an_iteration_that_ends_inside_a_transaction_leaves_it_alone(client: Client, topic: str) -> None:
    client.subscribe(topic)
    create(client, "taken")
    client.put_many(topic, [b"0", b"1", b"2"])
    iterator = client.messages(topic, timeout=5.0)
    with client.transaction() as transaction:
        transaction.execute("insert into taken values (?, ?)", ("before", b""))
        with pytest.raises(CallerError):
            next(iterator)
    iterator = client.messages(topic, timeout=5.0)
    assert next(iterator).body == b"0"
    with client.transaction() as transaction:
        transaction.execute("insert into taken values (?, ?)", ("inside", b""))
        iterator.close()  # type: ignore[attr-defined]
    assert [name for name, _ in rows(client, "select * from taken")] == ["before", "inside"]
    assert bodies(client, topic, 2) == [b"1", b"2"]


def test_what_was_taken_is_acknowledged_though_nobody_calls_any_more(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"x")
    assert client.get(topic, timeout=5.0) is not None
    sub = client._session.core.subscriptions[topic]
    eventually(lambda: sub.acknowledged == sub.position)


# Processing


def record(message: Message, transaction: Transaction) -> None:
    transaction.execute("insert into taken values (?, ?)", (message.id, message.body))


def test_process_takes_at_most_a_batch_and_says_how_many(client: Client, topic: str) -> None:
    create(client, "taken")
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(5)])
    assert client.process(topic, record, timeout=5.0, max=3) == 3
    assert client.process(topic, record, timeout=5.0) == 2
    assert client.process(topic, record, timeout=0.05) == 0
    assert [body for _, body in rows(client, "select * from taken")] == [b"%d" % number for number in range(5)]


def test_a_handler_that_raises_undoes_effect_puts_and_position(client: Client, topic: str) -> None:
    create(client, "taken")
    client.subscribe(topic)
    client.subscribe(topic + "out")
    client.put(topic, b"x")

    def fail(message: Message, transaction: Transaction) -> None:
        record(message, transaction)
        client.put(topic + "out", b"never", transaction=transaction)
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        client.process(topic, fail, timeout=5.0)
    assert rows(client, "select * from taken") == []
    assert client.unfinished(topic + "out") == 0
    assert client.process(topic, record, timeout=5.0) == 1
    assert len(rows(client, "select * from taken")) == 1


def test_after_so_many_attempts_a_message_goes_to_the_dead_letters_and_it_goes_on(
    cluster: Embedded, topic: str
) -> None:
    settings = ClientSettings(handler_attempts=3)
    with cluster.client(f"client{next(_names)}", settings=settings) as client:
        create(client, "taken")
        client.subscribe(topic)
        client.put_many(topic, [b"good", b"poison", b"after"])

        def handler(message: Message, transaction: Transaction) -> None:
            if message.body == b"poison":
                raise ValueError("cannot digest")
            record(message, transaction)

        for _ in range(2):
            with pytest.raises(ValueError, match="digest"):
                client.process(topic, handler, timeout=5.0)
        assert client.process(topic, handler, timeout=5.0) == 2
        assert [body for _, body in rows(client, "select * from taken")] == [b"good", b"after"]
        (letter,) = client.dead_letters(topic)
        assert (letter.body, letter.attempts, letter.error) == (b"poison", 3, "ValueError: cannot digest")


def test_an_attempt_that_kills_the_process_counts(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    settings = ClientSettings(handler_attempts=3)
    seen = []
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"poison", b"after"])
    for _ in range(3):
        client = cluster.client(name, settings=settings)

        def die(message: Message, transaction: Transaction, client: Client = client) -> None:
            seen.append(message.body)
            client._session.store.db.execute("rollback")
            kill(client)
            raise KeyboardInterrupt

        with pytest.raises(BaseException):  # noqa: B017, PT011
            client.process(topic, die, timeout=5.0)
    assert seen == [b"poison"] * 3
    with cluster.client(name, settings=settings) as client:
        taken: list[bytes] = []
        assert client.process(topic, lambda message, transaction: taken.append(message.body), timeout=5.0) == 2
        assert taken == [b"after"]
        assert [letter.body for letter in client.dead_letters()] == [b"poison"]


def test_a_handlers_puts_are_fsynced_before_they_are_sent(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    events: list[str] = []
    store, messenger = client._session.store, client._session._messenger
    begin, send = store.begin, messenger.send

    def beginning(*, fsync: bool) -> None:
        events.append("fsynced" if fsync else "commit")
        begin(fsync=fsync)

    def sending(peer: Any, contents: Any, *args: Any, **kwargs: Any) -> int:
        head = contents if isinstance(contents, bytes) else contents[0]
        if head.startswith(b"PUT"):
            events.append("put")
        return send(peer, contents, *args, **kwargs)

    store.begin, messenger.send = beginning, sending  # type: ignore[method-assign]

    def forward(message: Message, transaction: Transaction) -> None:
        client.put(topic + "out", message.body, transaction=transaction)

    assert client.process(topic, forward, timeout=5.0) == 3
    client.flush()
    first = events.index("put")
    assert "fsynced" in events[:first]
    assert events[:first].index("fsynced") > max(
        index for index, event in enumerate(events[:first]) if event == "commit"
    )


# Copies, seconds and the fence


def test_a_second_opening_of_a_client_is_refused_with_a_clear_message(cluster: Embedded, client: Client) -> None:
    with pytest.raises(StoreInUse, match="in use by this very process"):
        cluster.client(client.name)


def test_another_host_that_opened_later_supersedes(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as here:
        here.subscribe(topic)
        with cluster.client(name, directory=tmp_path) as there:
            there.subscribe(topic)
            there.put(topic, b"x")
            with pytest.raises(Superseded):
                [here.get(topic, timeout=1.0) for _ in range(3)]
            assert bodies(there, topic, 1) == [b"x"]
        here.subscribe(topic)
        here.put(topic, b"y")
        assert bodies(here, topic, 1) == [b"y"]


def test_subscribing_again_takes_over_from_another_host_that_nobody_has_heard_of_here(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as here:
        here.subscribe(topic)
        with cluster.client(name, directory=tmp_path) as there:
            there.subscribe(topic)
            here.subscribe(topic)
            here.put(topic, b"x")
            assert bodies(here, topic, 1) == [b"x"]
            with pytest.raises(Superseded):
                there.get(topic, timeout=5.0)


def test_a_copied_directory_is_found_out_and_renew_mends_it(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.subscribe(topic)
        client.put(topic, b"zero")
        assert bodies(client, topic, 1) == [b"zero"]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.put_many(topic, [b"one", b"two"])
        assert bodies(client, topic, 2) == [b"one", b"two"]
        sub = client._session.core.subscriptions[topic]
        eventually(lambda: sub.acknowledged == sub.position)
    with cluster.client(name, directory=tmp_path / "b") as copy:
        with pytest.raises(StateCopied, match="renew"):
            copy.get(topic, timeout=5.0)
        before = copy.publisher_id
        copy.renew()
        assert copy.publisher_id != before
        copy.subscribe(topic)
        copy.put(topic, b"three")
        assert bodies(copy, topic, 1) == [b"three"]


def test_a_loss_is_told_after_a_kill_until_the_application_has_gone_on(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    session = client._session
    with session.lock:  # What the answer does that says so.
        session.core._place_lost(session.core.subscriptions[topic], Status("s1", Outcome.GONE))
        session.turn()
    kill(client)
    for _ in range(2):  # It was not told, or died of what it was told.
        client = cluster.client(name)
        with pytest.raises(DataLoss, match="given up"):
            client.get(topic, timeout=5.0)
        kill(client)
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):
            again.get_many(topic, timeout=5.0)
        again.put(topic, b"x")
        assert bodies(again, topic, 1) == [b"x"]
        kill(again)
    with cluster.client(name) as again:
        assert again.get(topic, timeout=0.0) is None
        assert [letter.body for letter in again.dead_letters(topic)] == [None]


@pytest.mark.parametrize("timeout", [5.0, 0.0])
def test_what_is_put_after_a_loss_was_told_arrives(cluster: Embedded, topic: str, timeout: float) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        session = client._session
        with session.lock:  # What the answer does that says so.
            session.core._place_lost(session.core.subscriptions[topic], Status("s1", Outcome.GONE))
            session.turn()

        def told() -> bool:
            try:
                return client.get(topic, timeout=timeout) is not None
            except DataLoss:
                return True

        eventually(told)
        kill(client)
    with cluster.client(f"client{next(_names)}") as publisher:
        publisher.put(topic, b"after")
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):  # Once more, for the process did not live to go on.
            again.get(topic, timeout=5.0)
        assert bodies(again, topic, 1) == [b"after"]


def test_what_was_told_as_lost_is_passed_for_good_though_the_process_ends(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    sub = client._session.core.subscriptions[topic]
    assert sub.position is not None
    log, last = sub.position
    with cluster.client("putter" + topic) as putter:
        putter.put_many(topic, [b"lost", b"lost too"])
        with client._session.lock:  # What the answer does that says so.
            sub._items.append(Loss((log, last + 1), (log, last + 2)))
        with pytest.raises(DataLoss):
            client.get(topic, timeout=5.0)
        kill(client)
        putter.put(topic, b"behind it")
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):  # The process may have ended on the way to its user.
            again.get(topic, timeout=5.0)
        assert bodies(again, topic, 1) == [b"behind it"]


def test_a_renewal_takes_the_subscriptions_back_from_a_copy(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.subscribe(topic)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with (
        cluster.client(name, directory=tmp_path / "a") as here,
        cluster.client(name, directory=tmp_path / "b") as there,
    ):
        there.subscribe(topic)
        here.renew()
        assert here.get(topic, timeout=0.2) is None
        here.put(topic, b"x")
        assert bodies(here, topic, 1) == [b"x"]
        with pytest.raises(Superseded):
            there.get(topic, timeout=5.0)


def test_what_a_renewal_kept_goes_out_after_a_kill_as_the_new_publishers_first(
    cluster: Embedded, client: Client, topic: str, nowhere: str
) -> None:
    client.subscribe(topic)
    name, folder = f"client{next(_names)}", cluster.directory / "clients"
    with cluster.client(name) as putting:
        putting.put(topic, b"0")
    alone = Client(name, proxies=[nowhere], directory=folder)
    for number in (1, 2):
        alone.put(topic, b"%d" % number, wait=False)
    alone.renew(keep=True)
    kill(alone)
    with cluster.client(name) as again:
        again.flush(timeout=5.0)
    assert bodies(client, topic, 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("keep", [True, False])
def test_what_was_finished_before_a_renewal_is_not_put_again_under_the_new_name(
    cluster: Embedded, client: Client, topic: str, keep: bool
) -> None:
    client.subscribe(topic)
    name = f"client{next(_names)}"
    putting = cluster.client(name)
    for number in range(3):  # Finished rows leave the store many at a time.
        putting.put(topic, b"%d" % number)
    assert putting._session.core.outbox.finished_rows
    putting.renew(keep=keep)
    kill(putting)
    with cluster.client(name) as again:
        again.flush()
        again.put(topic, b"3")
    assert bodies(client, topic, 4) == [b"%d" % number for number in range(4)]


def test_a_copy_whose_numbers_fell_behind_is_found_out_by_its_put(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.put(topic, b"zero")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with cluster.client(name, directory=tmp_path / "b") as copy:
        with cluster.client(name, directory=tmp_path / "a") as client:
            client.put(topic, b"later than the copy's numbers")
        with pytest.raises(StateCopied, match="never made here"):
            copy.put(topic, b"not taken")
        with pytest.raises(StateCopied):
            copy.flush()
        copy.renew(keep=True)
        copy.flush()


def test_a_copy_that_is_started_again_is_found_out_by_what_it_had_left_to_put(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.put(topic, b"zero")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Client(name, proxies=["tcp://127.0.0.1:1"], directory=tmp_path / "b") as copy:
        with cluster.client(name, directory=tmp_path / "a") as client:
            client.put(topic, b"later than the copy's numbers")
        with pytest.raises(InDoubt):
            copy.put(topic, b"in doubt", timeout=0.1)
    with cluster.client("reader" + topic) as reader, cluster.client(name, directory=tmp_path / "b") as copy:
        reader.subscribe(topic)
        with pytest.raises(StateCopied, match="never made here"):  # Its numbers are above the original's by now.
            copy.flush()
        copy.renew(keep=True)
        copy.flush()
        assert bodies(reader, topic, 1) == [b"in doubt"]


def test_a_client_whose_state_was_emptied_is_another_publisher(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(_names)}"
    with cluster.client("reader" + topic) as reader:
        reader.subscribe(topic)
        with cluster.client(name, directory=tmp_path / "a") as client:
            client.put(topic, b"one")
            first = client.publisher_id
        shutil.rmtree(tmp_path / "a")
        with cluster.client(name, directory=tmp_path / "a") as client:
            client.put(topic, b"two")
            assert client.publisher_id != first
        assert bodies(reader, topic, 2) == [b"one", b"two"]


# The disk


def test_a_client_whose_disk_is_full_makes_no_request(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"before")
    db = client._session.store.db
    db.pragma("max_page_count", db.pragma("page_count"))
    sent = client._session.core._token
    with pytest.raises(StoreFull):
        client.put(topic, bytes(1 << 20))
    assert client._session.core._token == sent
    assert client.unfinished(topic) == 0
    db.pragma("max_page_count", 1 << 30)
    client.put(topic, b"after")
    assert bodies(client, topic, 2) == [b"before", b"after"]


def test_power_safe_fsyncs_every_commit(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"client{next(_names)}", power_safe=True) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client._session.store.db.pragma("synchronous") == 2
        assert bodies(client, topic, 1) == [b"x"]
        sub = client._session.core.subscriptions[topic]
        assert sub.safe == sub.position


# Opening and closing


def test_a_closed_client_says_so(client: Client, topic: str) -> None:
    client.close()
    client.close()
    with pytest.raises(CallerError, match="closed"):
        client.put(topic, b"x")
    with pytest.raises(CallerError, match="closed"):
        client.get(topic)


def test_closing_ends_the_calls_that_wait(client: Client, topic: str) -> None:
    client.subscribe(topic)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            client.get(topic, timeout=30.0)
        except CallerError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    sub = client._session.core.subscriptions[topic]
    eventually(lambda: sub.waiting > 0)
    client.close()
    thread.join(5.0)
    assert not thread.is_alive()
    assert "closed" in str(caught[0])


def test_a_client_without_proxies_or_with_a_bad_address_is_a_bad_configuration(tmp_path: Path) -> None:
    for proxies in ([], ["nonsense"]):
        with pytest.raises(ConfigurationError):
            Client("c", proxies=proxies, directory=tmp_path)
    Client("c", proxies="tcp://127.0.0.1:1", directory=tmp_path).close()


def test_a_proxy_that_is_dead_is_passed_over(cluster: Embedded, topic: str, nowhere: str) -> None:
    with cluster.client(f"client{next(_names)}", proxies=(nowhere, *cluster.proxies)) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client._session.core.proxy == 1
        assert bodies(client, topic, 1) == [b"x"]


def test_the_state_is_exported_as_the_papers_tree(client: Client, topic: str, tmp_path: Path) -> None:
    client.subscribe(topic + "/a")
    ticket = client.put(topic + "/a", b"x")
    message = client.get(topic + "/a", timeout=5.0)
    assert message is not None
    root = client.export(tmp_path)
    assert root.name == f"client_{client.name}"
    folder = root / f"{topic}%2Fa"
    assert (folder / "last_get_id").read_text().strip() == message.id
    assert (folder / "last_put_counter").read_text().strip() == str(ticket.counter)


def test_an_embedded_cluster_keeps_its_directory(tmp_path: Path, topic: str) -> None:
    with embedded(tmp_path) as first, first.client("c") as client:
        client.subscribe(topic)
        client.put(topic, b"kept")
    with embedded(tmp_path) as second, second.client("c") as client:
        assert bodies(client, topic, 1, timeout=20.0) == [b"kept"]
