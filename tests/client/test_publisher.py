"""Puts one at a time, sent in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from pubsub.base.limits import BATCH_BYTES_MAX
from pubsub.client import Client
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt, StoreFull, TooLarge, Unavailable
from tests.client.opened import bodies, nothing

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


@pytest.fixture
def client(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"client{next(_names)}") as opened:
        yield opened


def is_free(lock: threading.RLock) -> bool:
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free


def eventually(done: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.002)


def batches(client: Client, topic: str, expected: int) -> list[int]:
    """Return the number of records in each put batch."""
    sizes: list[int] = []
    while sum(sizes) < expected:
        batch = client.get_many(topic, timeout=5.0)
        assert batch
        sizes += [piece.stop - piece.start for piece in batch.pieces]
    return sizes


def test_messages_are_sent_in_batches_of_the_given_number_of_records(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with client.publisher(topic, records=10, linger=60.0) as publisher:
        tickets = [publisher.put(b"%d" % number) for number in range(35)]
        assert tickets[29].counter is not None
        assert tickets[30].counter is None
    assert all(ticket.done for ticket in tickets)
    assert batches(client, topic, 35) == [10, 10, 10, 5]


def test_messages_are_sent_in_batches_of_the_given_number_of_bytes(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with client.publisher(topic, size=100, linger=60.0) as publisher:
        for _ in range(6):
            publisher.put(bytes(50))
    assert batches(client, topic, 6) == [2, 2, 2]


def test_an_open_batch_is_sent_after_its_linger_time(client: Client, topic: str) -> None:
    publisher = client.publisher(topic, linger=0.01)
    ticket = publisher.put(b"x")
    eventually(lambda: ticket.done)
    publisher.close()


def test_a_tickets_counter_is_the_one_that_the_subscriber_sees(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with client.publisher(topic, records=3) as publisher:
        tickets = [publisher.put(b"x") for _ in range(7)]
    seen = [message.counter for _, message in zip(range(7), client.messages(topic, timeout=5.0), strict=False)]
    assert seen == [ticket.counter for ticket in tickets]


def test_threads_share_a_publisher(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with client.publisher(topic, records=7, linger=0.002) as publisher:

        def work(name: int) -> None:
            for number in range(200):
                publisher.put(b"%d %d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: list[bytes] = []
    while len(found) < 600:
        found += client.get_many(topic, timeout=5.0).bodies()
    for name in range(3):
        assert [body for body in found if body.startswith(b"%d " % name)] == [
            b"%d %d" % (name, number) for number in range(200)
        ]


def test_a_body_beyond_a_batch_is_refused_and_the_others_go_on(client: Client, topic: str) -> None:
    with client.publisher(topic) as publisher:
        ticket = publisher.put(b"x")
        with pytest.raises(TooLarge):
            publisher.put(bytes(BATCH_BYTES_MAX))
    assert ticket.done


def test_large_bodies_that_do_not_fit_together_go_in_separate_batches(client: Client, topic: str) -> None:
    client.subscribe(topic)
    large = bytes(BATCH_BYTES_MAX // 2 - 100)
    with client.publisher(topic, size=BATCH_BYTES_MAX, linger=60.0) as publisher:
        tickets = [publisher.put(large) for _ in range(3)]
    assert all(ticket.done for ticket in tickets)


def test_a_closed_publisher_takes_nothing(client: Client, topic: str) -> None:
    publisher = client.publisher(topic)
    publisher.close()
    with pytest.raises(CallerError, match="closed"):
        publisher.put(b"x")


@pytest.mark.parametrize("options", [{"records": 0}, {"size": 0}, {"linger": -1.0}])
def test_an_impossible_batch_is_refused(client: Client, topic: str, options: dict[str, float]) -> None:
    with pytest.raises(CallerError):
        client.publisher(topic, **options)  # type: ignore[arg-type]


def test_an_unanswered_publisher_waits_at_its_window_and_is_in_doubt_at_its_end(cluster: Embedded, topic: str) -> None:
    name = f"client{next(_names)}"
    with cluster.client(name, proxies=["tcp://127.0.0.1:1"], timeout=0.1) as alone:
        publisher = alone.publisher(topic, records=1)
        most = 2 * alone.settings.window
        for _ in range(most):
            publisher.put(b"x")
        for _ in range(2):  # As a caller that repeats a rejected put.
            with pytest.raises(Unavailable) as none:
                publisher.put(b"y")
            assert type(none.value) is Unavailable
        with pytest.raises(TooLarge):
            publisher.put(bytes(BATCH_BYTES_MAX + 1))
        assert alone.unfinished(topic) == most
        with pytest.raises(InDoubt):
            publisher.close()
        with pytest.raises(CallerError, match="closed"):
            publisher.put(b"y")
        assert alone.unfinished(topic) == most
    with cluster.client(name) as again:
        again.flush()


def test_a_full_disk_keeps_the_open_batch_until_there_is_room(client: Client, topic: str) -> None:
    db = client._session.store.db
    publisher = client.publisher(topic, records=2, linger=60.0)
    client.subscribe(topic)
    db.pragma("max_page_count", db.pragma("page_count"))
    ticket = publisher.put(bytes(1 << 19))
    with pytest.raises(StoreFull):
        publisher.flush()
    with pytest.raises(StoreFull):
        publisher.put(b"not put")
    assert ticket.counter is None
    db.pragma("max_page_count", 1 << 30)
    publisher.close()
    assert ticket.done
    assert batches(client, topic, 1) == [1]
    assert nothing(client, topic)


def test_an_open_batch_kept_by_a_full_disk_is_sent_once_there_is_room(client: Client, topic: str) -> None:
    db = client._session.store.db
    client.subscribe(topic)
    with client.publisher(topic, linger=0.01) as publisher:
        commits = client._session.store.commits
        db.pragma("max_page_count", db.pragma("page_count"))
        ticket = publisher.put(bytes(1 << 19))
        eventually(lambda: client._session.store.failed)
        assert (ticket.counter, client._session.store.commits) == (None, commits)
        db.pragma("max_page_count", 1 << 30)
        eventually(lambda: ticket.done)


def test_a_block_that_raises_still_sends_its_puts(client: Client, topic: str) -> None:
    tickets = []

    def fail() -> None:
        with client.publisher(topic, linger=60.0) as publisher:
            tickets.append(publisher.put(b"x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    eventually(lambda: tickets[0].done)


def test_a_publisher_inside_a_transaction_is_refused_and_no_call_waits_permanently(client: Client, topic: str) -> None:
    with client.publisher(topic, linger=0.001) as publisher:
        publisher.put(b"one")
        with client.transaction() as transaction:
            transaction.execute("select 1")
            # The driving thread wants to send the batch by now: it has the publisher's lock, and waits for ours.
            eventually(lambda: not is_free(publisher._lock))
            for call in (lambda: publisher.put(b"two"), publisher.flush, publisher.close):
                with pytest.raises(CallerError, match="inside a transaction"):
                    call()
        publisher.put(b"three")
    assert client.unfinished(topic) == 0
    client.flush()


@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_whose_sending_is_interrupted_is_put_once(
    cluster: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    with cluster.client(f"reader{topic}") as reader:
        reader.subscribe(topic)
        client = cluster.client(f"writer{topic}")
        session = client._session
        put = session.accumulator.put

        def interrupted(*arguments: object) -> None:
            monkeypatch.undo()
            if committed:
                put(*arguments)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"one")
        publisher.put(b"two")
        monkeypatch.setattr(*(session.accumulator, "put") if committed else (session, "commit"), interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.flush()
        ticket = publisher.put(b"three")
        publisher.flush()
        assert ticket.done
        publisher.close()
        client.close()
        assert bodies(reader, topic, 3) == [b"one", b"two", b"three"]
        assert nothing(reader, topic)


@pytest.mark.parametrize("key", ["", 0, None, []])
def test_a_key_that_is_no_bytes_is_refused_in_the_midst_of_a_batch_too(
    cluster: Embedded, topic: str, key: object
) -> None:
    with cluster.client(f"keys{topic}") as client, client.publisher(topic) as publisher:
        publisher.put(b"first")
        with pytest.raises(CallerError, match="key is bytes"):
            publisher.put(b"second", key=key)  # type: ignore[arg-type]
        assert publisher.put(b"third").counter is None
