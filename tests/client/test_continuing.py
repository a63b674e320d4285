"""A subscription outlives the state directory that made it: a new directory of the client continues it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import apsw
import pytest

from pubsub.client import Client
from pubsub.client.core.changes import Confirmed, Intended, Renewed
from pubsub.client.core.message import Batch
from pubsub.client.core.prefetch import Taking
from pubsub.client.storage.store import Store
from pubsub.client.storage.tables import FORMAT
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, Superseded, Unavailable
from pubsub.protocol import Outcome, Subscribe, parse_position
from pubsub.protocol.names import Start
from tests.client.opened import bodies, eventually, kill, names, nothing
from tests.client.rig import LOG, OTHER, Rig, records, settled, status

# Sent messages


def continues(message: object) -> bool:
    assert isinstance(message, Subscribe)
    return bool(message.continues)


def test_the_mark_of_an_answer_stays_with_its_messages_until_they_are_taken() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    marked = records(1, [1, 2, 3])
    marked.doubtful = 1
    (more,) = rig.answer(get, marked)
    rig.answer(more, records(4, [4]))
    first, rest = rig.take(sub, 2), rig.take(sub, 9)
    assert isinstance(first, Taking)
    assert isinstance(rest, Taking)
    assert [message.doubtful for message in Batch("t", first.pieces)] == [True, True]
    assert [message.doubtful for message in Batch("t", rest.pieces)] == [True, False]


def test_a_start_that_found_fewer_records_than_asked_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    _, out = rig.intend()
    answer = settled(out.message, (LOG, 0))
    answer.reason = "fewer_records_than_asked"
    rig.answer(out, answer)
    assert "client c: t begins at fewer messages than" in caplog.text


def test_messages_given_back_to_the_prefetch_keep_the_mark() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    marked = records(1, [1, 2])
    marked.doubtful = 1
    rig.answer(get, marked)
    taking = sub.take(2)
    assert isinstance(taking, Taking)
    chunk = sub.begin_chunk(taking)
    sub.took(taking)
    next(iter(chunk.claims()))
    chunk.stop()
    sub.taken_returned(chunk, chunk.return_taken(sub.topic))
    again = sub.take(2)
    assert isinstance(again, Taking)
    assert [(message.counter, message.doubtful) for message in Batch("t", again.pieces)] == [(2, True)]


def test_a_lost_position_and_a_renewed_client_begin_at_the_end() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE))
    assert not continues(again.message)
    rig.answer(again, settled(again.message, (OTHER, 0)))
    rig.core.renewed("00000000000000ee", [sub])
    rig.core.settle(sub, rig.now + 9.0)
    assert not any(continues(out.message) for out in rig.turn() if isinstance(out.message, Subscribe))


def test_one_line_explains_doubtful_messages(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    _, out = rig.intend()
    answer = settled(out.message, (LOG, 3))
    answer.doubtful = 1
    with caplog.at_level(logging.WARNING, "pubsub.client"):
        rig.answer(out, answer)
        rig.subscribed()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "continues its subscription to t" in line
    assert "doubtful" in line


def intents(client: Client, topic: str) -> tuple[bool, bool, bool]:
    """Return on, settled and fresh, after checking that memory and store agree."""
    sub = client._session.core.subscriptions[topic]
    (stored,) = [row[1:4] for row in client._session.store.subscriptions() if row[0] == topic]
    assert stored == (sub.intent.on, sub.intent.settled, sub.intent.fresh)
    return stored


def test_only_later_intents_begin_at_the_end(client: Client, topic: str, tmp_path: Path, cluster: Embedded) -> None:
    client.subscribe(topic)
    assert intents(client, topic) == (True, True, False)
    client.unsubscribe(topic)
    client.subscribe(topic)
    assert intents(client, topic) == (True, True, True), "it has unsubscribed"
    client.subscribe(topic)
    assert intents(client, topic) == (True, True, True), "the service knows it, and nothing is made"
    with cluster.client(client.name, directory=tmp_path) as there:
        there.subscribe(topic, fresh=True)
        assert intents(there, topic) == (True, True, True)
    with pytest.raises(Superseded):
        client.get(topic, timeout=5.0)
    client.subscribe(topic)
    assert intents(client, topic) == (True, True, False), "superseded: it goes on"
    client.subscribe(topic, fresh=True)
    assert intents(client, topic) == (True, True, True)


def test_an_unconfirmed_intent_keeps_its_kind_until_the_user_wants_the_end(nowhere: str, tmp_path: Path) -> None:
    with Client("c", proxies=[nowhere], directory=tmp_path) as client:
        for topic, first in (("a", False), ("b", True)):
            with pytest.raises(Unavailable):
                client.subscribe(topic, fresh=first, timeout=0.01)
            with pytest.raises(Unavailable):
                client.subscribe(topic, timeout=0.01)
            assert intents(client, topic) == (True, False, first)
            with pytest.raises(Unavailable):
                client.subscribe(topic, fresh=True, timeout=0.01)
            assert intents(client, topic) == (True, False, True)
        with pytest.raises(Unavailable):
            client.unsubscribe("b", timeout=0.01)
        with pytest.raises(Unavailable):
            client.subscribe("b", timeout=0.01)
        assert intents(client, "b") == (True, False, True), "the unsubscribing was not answered"
    with Client("c", proxies=[nowhere], directory=tmp_path) as client:
        assert intents(client, "b") == (True, False, True)
        with pytest.raises(CallerError):
            client.subscribe("b", fresh=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", ["topic is not known to be whole", "topic has no known sole owner"])
def test_a_waiting_first_subscribe_names_the_causes_and_the_alternative(
    nowhere: str, tmp_path: Path, trouble: str
) -> None:
    with Client("c", proxies=[nowhere], directory=tmp_path) as client:
        client._session.core.subscription("t").trouble = trouble
        with pytest.raises(Unavailable) as told:
            client.subscribe("t", timeout=0.01)
        for fact in (
            "topic has no known sole owner",
            "most proxies",
            "down or have just started",
            "split",
            "fresh=True",
            "--fresh",
        ):
            assert fact in str(told.value)
        with pytest.raises(Unavailable) as told:
            client.subscribe("u", timeout=0.01)
        assert "fresh" not in str(told.value)


def test_messages_left_in_an_iteration_are_not_lost_after_another_directory_took_over(
    client: Client, topic: str, tmp_path: Path, cluster: Embedded
) -> None:
    """Otherwise such a message counts as taken, and is dropped as a duplicate."""
    client.subscribe(topic)
    client.put_many(topic, [b"1", b"2", b"3"])
    flow = client.messages(topic, timeout=60.0)
    assert next(flow).body == b"1"
    with cluster.client(client.name, directory=tmp_path) as there:
        there.subscribe(topic)
    eventually(lambda: superseded(client, topic))
    client.subscribe(topic)
    assert [(body, mark) for body, mark in marks(client, topic, 2)] == [(b"2", True), (b"3", True)]
    flow.close()


def superseded(client: Client, topic: str) -> bool:
    """Return True if a GET without a waiting call reported it."""
    session = client._session
    with session.entered():
        sub = session.core.subscriptions[topic]
        session.core.want(sub, session.now + 1.0, session.now)
        session.turn()
        sub.waiting -= 1
    return isinstance(sub.failure, Superseded)


# The store


def test_a_store_of_the_previous_format_keeps_its_content_and_its_open_intents(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.db")
    store.commit([Intended("t", True), Confirmed("t", 3, (LOG, 8), LOG), Intended("u", True)])
    store.close()
    db = apsw.Connection(str(tmp_path / "c.db"))
    db.execute("alter table pubsub_subscriptions drop column fresh")
    db.execute("pragma user_version = 1")
    db.close()
    store = Store(tmp_path / "c.db")
    assert store.db.pragma("user_version") == FORMAT == 2
    assert [row[:6] for row in store.subscriptions()] == [
        ("t", True, True, True, 3, LOG),
        ("u", True, False, True, 0, ""),
    ]
    store.commit([Intended("u", True), Renewed("00000000000000cc")])
    assert [row[3] for row in store.subscriptions()] == [True, False]
    store.close()


# At a real service


def marks(client: Client, topic: str, expected: int) -> list[tuple[bytes, bool]]:
    found: list[tuple[bytes, bool]] = []
    while len(found) < expected:
        batch = client.get_many(topic, timeout=60.0)
        assert batch, f"only {len(found)} of {expected} came"
        found += [(message.body, message.doubtful) for message in batch]
    return found


def test_a_new_directory_gets_the_waiting_messages(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
    with cluster.client(name, directory=tmp_path / "a") as lost:
        lost.subscribe(topic)
    with cluster.client(f"client{next(names)}") as publisher:
        publisher.put_many(topic, [b"1", b"2", b"3"])
        with cluster.client(name, directory=tmp_path / "b") as found:
            found.subscribe(topic)
            assert marks(found, topic, 3) == [(b"1", False), (b"2", False), (b"3", False)]
            publisher.put(topic, b"4")
        with cluster.client(name, directory=tmp_path / "c") as fresh:
            fresh.subscribe(topic, fresh=True)
            publisher.put(topic, b"5")
            assert bodies(fresh, topic, 1) == [b"5"]
            assert nothing(fresh, topic)


def begin(client: Client, topic: str, start: Start, timeout: float = 30.0) -> None:
    client._run(client._calls.subscribing.intend(topic, True, timeout, start=start, fresh=True))


def test_a_subscriber_that_begins_before_the_end_gets_all_messages_again_once(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"client{next(names)}") as keeper, cluster.client(f"client{next(names)}") as client:
        keeper.subscribe(topic)  # Messages that it has not acknowledged stay on the server.
        client.subscribe(topic)
        for body in (b"1", b"2", b"3"):
            client.put(topic, body)
        found = [message for _ in range(3) if (message := client.get(topic, 30.0)) is not None]
        assert [message.body for message in found] == [b"1", b"2", b"3"]
        begin(client, topic, "earliest")
        assert bodies(client, topic, 3) == [b"1", b"2", b"3"]
        begin(client, topic, parse_position(found[1].id) or "latest")
        client.put(topic, b"4")
        assert bodies(client, topic, 3) == [b"2", b"3", b"4"]
        begin(client, topic, found[2].stamp)
        assert bodies(client, topic, 2) == [b"3", b"4"]
        client.subscribe(topic)
        assert nothing(client, topic)


def test_a_start_is_asked_for_by_the_next_process_too(
    cluster: Embedded, topic: str, nowhere: str, tmp_path: Path
) -> None:
    name, directory = f"client{next(names)}", tmp_path / "c"
    with cluster.client(f"client{next(names)}") as keeper:
        keeper.subscribe(topic)
        with cluster.client(name, directory=directory) as client:
            client.subscribe(topic)
            client.put_many(topic, [b"1", b"2"])
            assert bodies(client, topic, 2) == [b"1", b"2"]
        with Client(name, directory=directory, proxies=(nowhere,)) as alone, pytest.raises(Unavailable):
            begin(alone, topic, "earliest", 0.05)
        with cluster.client(name, directory=directory) as client:
            assert bodies(client, topic, 2) == [b"1", b"2"]
            assert nothing(client, topic)


def test_messages_delivered_to_the_lost_directory_are_doubtful(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
    lost = cluster.client(name, directory=tmp_path / "a")
    lost.subscribe(topic)
    with cluster.client(f"client{next(names)}") as publisher:
        publisher.put_many(topic, [b"1", b"2"])
        assert bodies(lost, topic, 2) == [b"1", b"2"]
        kill(lost)  # Before it has acknowledged them, perhaps.
        with cluster.client(name, directory=tmp_path / "b") as found:
            found.subscribe(topic)
            publisher.put(topic, b"3")
            came: list[tuple[bytes, bool]] = []
            while not came or came[-1][0] != b"3":
                came += marks(found, topic, 1)
            assert came[-1] == (b"3", False)
            assert all(doubtful for _, doubtful in came[:-1])


def test_the_later_of_two_directories_continues_and_the_earlier_may_take_over_again(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(names)}"
    with cluster.client(name, directory=tmp_path / "a") as here, cluster.client(f"client{next(names)}") as publisher:
        here.subscribe(topic)
        publisher.put(topic, b"1")
        with cluster.client(name, directory=tmp_path / "b") as there:
            there.subscribe(topic)
            publisher.put(topic, b"2")
            with pytest.raises(Superseded):
                [here.get(topic, timeout=5.0) for _ in range(3)]
            here.subscribe(topic)
            assert {body for body, _ in marks(here, topic, 2)} == {b"1", b"2"}
            with pytest.raises(Superseded):
                there.get(topic, timeout=5.0)


def test_an_async_client_behaves_the_same(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"

    async def work() -> None:
        async with cluster.async_client(name, directory=tmp_path / "a") as lost:
            await lost.subscribe(topic)
            await lost.put(topic, b"1")
        async with cluster.async_client(name, directory=tmp_path / "b") as found:
            await found.subscribe(topic)
            message = await found.get(topic, timeout=60.0)
            assert message is not None
            assert (message.body, message.doubtful) == (b"1", False)
            await found.subscribe(topic, fresh=True)

    asyncio.run(work())
