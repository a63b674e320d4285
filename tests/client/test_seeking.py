"""Starts of subscriptions, and seeks by a client, at a real proxy and server (docs/explanation/looking-back.md)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pubsub import embedded
from pubsub.client import Client, Later, Message, Transaction
from pubsub.client.core import changes as c
from pubsub.client.core.subscription import Subscription
from pubsub.client.errors import StartGone
from pubsub.client.look_back_calls import LookBackCalls
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, NotSubscribed, Unavailable
from tests.client.opened import PATIENCE, bodies, kill, names, nothing

COUNT = 50
OLD = [b"%d" % number for number in range(COUNT)]


@pytest.fixture
def kept(client: Client, topic: str) -> str:
    """A topic that keeps all of COUNT old messages."""
    client.configure(topic, keep="ever")
    client.put_many(topic, OLD)
    return topic


@pytest.fixture
def reader(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"reader{next(names)}") as opened:
        yield opened


def moment(message: Message) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=message.stamp)


# Subscribing


def test_a_new_subscription_begins_at_its_start(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    found = reader.get_many(kept, timeout=PATIENCE)
    assert found.bodies() == OLD
    assert {message.replay for message in found} == {0}
    reader.put(kept, b"new")
    assert bodies(reader, kept, 1) == [b"new"]


def test_the_default_start_is_the_end(reader: Client, kept: str) -> None:
    reader.subscribe(kept)
    assert nothing(reader, kept)


def test_a_program_that_names_a_start_each_time_replays_nothing(cluster: Embedded, kept: str) -> None:
    name = f"reader{next(names)}"
    with cluster.client(name) as first:
        first.subscribe(kept, start="earliest")
        assert first.get(kept, timeout=PATIENCE).body == OLD[0]  # type: ignore[union-attr]
        first.subscribe(kept, start="earliest")
        assert first.get(kept, timeout=PATIENCE).body == OLD[1]  # type: ignore[union-attr]
    with cluster.client(name) as second:
        second.subscribe(kept, start="earliest")
        assert bodies(second, kept, COUNT - 2) == OLD[2:]
        assert nothing(second, kept)


def test_a_start_does_not_move_the_subscription_of_a_lost_directory(
    cluster: Embedded, kept: str, tmp_path: Path
) -> None:
    name = f"reader{next(names)}"
    with cluster.client(name) as first:
        first.subscribe(kept, start="earliest")
        assert bodies(first, kept, COUNT) == OLD
    with cluster.client(name, directory=tmp_path / "other") as second:
        second.subscribe(kept, start="earliest")
        assert nothing(second, kept)


def test_fresh_drops_the_backlog_and_begins_at_the_start(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    assert reader.get(kept, timeout=PATIENCE).body == OLD[0]  # type: ignore[union-attr]
    reader.subscribe(kept, start="earliest", fresh=True)
    assert bodies(reader, kept, COUNT) == OLD
    reader.put(kept, b"dropped")
    reader.subscribe(kept, fresh=True)
    assert nothing(reader, kept)


def test_a_subscription_after_an_unsubscribe_begins_at_its_start(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    assert bodies(reader, kept, COUNT) == OLD
    reader.unsubscribe(kept)
    reader.subscribe(kept, start="earliest")
    found = reader.get_many(kept, timeout=PATIENCE)
    assert found.bodies() == OLD
    assert {message.replay for message in found} == {1}, "the directory had them before"


# Seeking


def test_a_seek_brings_every_message_again_once(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    for number in range(3):
        found = []
        while len(found) < COUNT:
            found += list(reader.get_many(kept, 7, timeout=PATIENCE))
        assert [message.body for message in found] == OLD
        assert {message.replay for message in found} == {number}
        assert nothing(reader, kept)
        assert reader.seek(kept, "earliest") == number + 1


def test_a_replay_without_emptied_counters_delivers_nothing(
    reader: Client, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.subscribe(kept, start="earliest")
    assert bodies(reader, kept, COUNT) == OLD
    intended = Subscription.intended

    def with_counters(self: Subscription, *args: Any, **named: Any) -> None:
        taken = self.cursor.taken
        intended(self, *args, **named)
        self.cursor.taken.update(taken)

    with monkeypatch.context() as patched:
        patched.setattr(Subscription, "intended", with_counters)
        reader.seek(kept, "earliest")
    assert nothing(reader, kept)
    reader.seek(kept, "earliest")
    assert bodies(reader, kept, COUNT) == OLD


@pytest.mark.parametrize("place", [0, 1, 17, COUNT - 1])
def test_a_seek_to_a_position_begins_with_that_message(reader: Client, kept: str, place: int) -> None:
    reader.subscribe(kept, start="earliest")
    found = list(reader.get_many(kept, timeout=PATIENCE))
    reader.seek(kept, found[place].position)
    assert bodies(reader, kept, COUNT - place) == OLD[place:]
    reader.seek(kept, found[place].id)
    assert bodies(reader, kept, COUNT - place) == OLD[place:]


def test_a_seek_to_a_time_begins_with_the_first_message_of_that_time(reader: Client, kept: str) -> None:
    later = [b"%d later" % number for number in range(3)]
    for body in later:
        reader.put(kept, body)
    reader.subscribe(kept, start="earliest")
    found = list(reader.get_many(kept, timeout=PATIENCE))
    if len(found) < COUNT + 3:
        found += list(reader.get_many(kept, timeout=PATIENCE))
    place = next(place for place, message in enumerate(found) if message.stamp >= found[COUNT + 1].stamp)
    for zone in (UTC, timezone(timedelta(hours=5, minutes=30))):
        reader.seek(kept, moment(found[place]).astimezone(zone))
        assert bodies(reader, kept, len(found) - place) == [message.body for message in found[place:]]
        assert nothing(reader, kept)


def test_a_seek_into_the_future_is_refused_and_changes_nothing(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    mistyped = datetime.now(UTC) + timedelta(days=365)
    with pytest.raises(CallerError, match="lies in the future"):
        reader.seek(kept, mistyped)
    with pytest.raises(CallerError, match="lies in the future"):
        reader.subscribe(kept, start=mistyped, fresh=True)
    assert bodies(reader, kept, COUNT) == OLD
    reader.seek(kept, datetime.now(UTC) + timedelta(seconds=1))
    assert nothing(reader, kept)


def test_a_seek_to_the_end_passes_over_the_backlog(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    assert reader.get(kept, timeout=PATIENCE).body == OLD[0]  # type: ignore[union-attr]
    assert reader.seek(kept, "latest") == 1
    reader.put(kept, b"new")
    (message,) = reader.get_many(kept, timeout=PATIENCE)
    assert (message.body, message.replay) == (b"new", 1)


def test_the_number_of_a_replay_outlives_the_process(cluster: Embedded, kept: str) -> None:
    name = f"reader{next(names)}"
    with cluster.client(name) as first:
        first.subscribe(kept)
        assert first.seek(kept, "earliest") == 1
        kill(first)
    with cluster.client(name) as second:
        found = second.get_many(kept, timeout=PATIENCE)
        assert found.bodies() == OLD
        assert {message.replay for message in found} == {1}
        assert second.seek(kept, "earliest") == 2


def test_a_client_killed_between_the_seek_and_its_answer_goes_on_with_that_seek(tmp_path: Path, nowhere: str) -> None:
    name, topic = f"reader{next(names)}", "t"
    with embedded(tmp_path / "cluster") as cluster:
        with cluster.client("shop") as shop:
            shop.configure(topic, keep="ever")
            shop.put_many(topic, OLD)
        directory = tmp_path / "clients"
        reader = cluster.client(name, directory=directory)
        reader.subscribe(topic, start="earliest")
        found = list(reader.get_many(topic, timeout=PATIENCE))
        assert len(found) == COUNT
        reader.close()
        silent = Client(name, proxies=[nowhere], directory=directory)
        for _ in range(2):
            with pytest.raises(Unavailable):
                silent.seek(topic, "last:30", timeout=0.01)
        with pytest.raises(Unavailable):
            silent.get(topic, timeout=0.01)
        kill(silent)
        with cluster.client(name, directory=directory) as again:
            again.subscribe(topic, start="earliest")
            came = list(again.get_many(topic, timeout=PATIENCE))
            assert [message.body for message in came] == OLD[20:]
            assert {message.replay for message in came} == {1}


def test_a_seek_is_one_fsynced_commit(reader: Client, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.subscribe(kept, start="earliest")
    store, commits = reader._session.store, []
    commit = store.commit

    def noted(changes: Any, *, fsync: bool = False) -> bool:
        fsynced = commit(changes, fsync=fsync)
        commits.append(([change for change in changes if isinstance(change, c.Intended)], fsynced))
        return fsynced

    monkeypatch.setattr(store, "commit", noted)
    reader.seek(kept, "earliest")
    assert [(found, True) for found, fsynced in commits if found and fsynced] == [
        ([c.Intended(kept, True, fresh=True, start=0, replay=1)], True)
    ]


# Beside a seek


def test_messages_received_before_a_seek_are_gone(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    first = reader.get(kept, timeout=PATIENCE)
    assert first is not None
    assert reader._session.core.subscriptions[kept].available, "the rest was received"
    reader.seek(kept, first.position)
    assert bodies(reader, kept, COUNT) == OLD


def test_an_open_iteration_continues_after_the_start(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")
    seen: list[tuple[bytes, int]] = []
    for message in reader.messages(kept, timeout=1.0):
        seen.append((message.body, message.replay))
        if len(seen) == 5:
            seeking = threading.Thread(target=reader.seek, args=(kept, "earliest"))
            seeking.start()
            seeking.join()
    assert seen == [(body, 0) for body in OLD[:5]] + [(body, 1) for body in OLD]


def test_a_handler_that_runs_during_a_seek_is_rolled_back(reader: Client, kept: str) -> None:
    with reader.transaction() as transaction:
        transaction.execute("create table effects (body, replay)")
    reader.subscribe(kept, start="earliest")
    sought: list[int] = []

    def handle(message: Message, transaction: Transaction) -> None:
        if not sought and message.body == OLD[3]:
            seeking = threading.Thread(target=lambda: sought.append(reader.seek(kept, "earliest")))
            seeking.start()
            seeking.join()
        transaction.execute("insert into effects values (?, ?)", (message.body, message.replay))

    taken = 0
    while taken < 3 + COUNT:
        taken += reader.process(kept, handle, timeout=PATIENCE)
    with reader.transaction() as transaction:
        found = list(transaction.execute("select body, replay from effects order by rowid"))
    assert found == [(body, 0) for body in OLD[:3]] + [(body, 1) for body in OLD]
    assert sought == [1]


def test_a_handler_cannot_seek(reader: Client, kept: str) -> None:
    reader.subscribe(kept, start="earliest")

    def handle(message: Message, transaction: Transaction) -> None:
        with pytest.raises(CallerError):
            reader.seek(kept, "earliest")

    assert reader.process(kept, handle, timeout=PATIENCE, max=1) == 1
    with reader.transaction(), pytest.raises(CallerError):
        reader.seek(kept, "earliest")


def test_dead_letters_stay_and_attempts_begin_anew(cluster: Embedded, kept: str) -> None:
    def fail(message: Message, transaction: Transaction) -> None:
        raise ValueError(message.body.decode())

    soon = ClientSettings(retry_first_seconds=0.0)
    with cluster.client(f"reader{next(names)}", settings=soon) as reader:
        reader.subscribe(kept, start="earliest")
        most = reader.settings.handler_attempts

        def attempts(number: int) -> None:
            for _ in range(number):
                with pytest.raises(ValueError, match=r"^0$"):
                    reader.process(kept, fail, timeout=PATIENCE, max=1)

        attempts(most - 1)
        reader.seek(kept, "earliest")
        attempts(most - 1)
        assert reader.process(kept, fail, timeout=PATIENCE, max=1) == 1
        reader.seek(kept, "earliest")
        assert [letter.body for letter in reader.dead_letters(kept)] == [OLD[0]]
        attempts(most - 1)
        assert reader.process(kept, fail, timeout=PATIENCE, max=1) == 1
        assert [letter.body for letter in reader.dead_letters(kept)] == [OLD[0], OLD[0]]


# Refusals


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (1_700_000_000, "a bare number may be seconds"),
        (1.5, "a bare number may be seconds"),
        ("1700000000", "a bare number may be seconds"),
        (True, "not bool"),
        (datetime(2026, 11, 1), "without a time zone"),
        ("beginning", "'beginning'"),
        ("last:0", "last:N"),
        ("last:10001", "last:N"),
        ("@17", "'@17'"),
        (("x", 1), "no position"),
        (("00000000000000aa", 1, 2), "no position"),
        (None, "not NoneType"),
    ],
)
def test_a_start_that_is_not_allowed_changes_nothing(reader: Client, kept: str, start: Any, text: str) -> None:
    reader.subscribe(kept, start="earliest")
    with pytest.raises(CallerError, match=text) as error:
        reader.seek(kept, start)
    assert "\n" not in str(error.value)
    if start is not None:
        with pytest.raises(CallerError, match=text):
            reader.subscribe(kept, start=start)
    assert bodies(reader, kept, COUNT) == OLD


def test_a_seek_needs_a_subscription(reader: Client, kept: str) -> None:
    with pytest.raises(NotSubscribed):
        reader.seek(kept, "earliest")
    reader.subscribe(kept)
    reader.unsubscribe(kept)
    with pytest.raises(NotSubscribed):
        reader.seek(kept, "earliest")


def test_a_position_that_no_server_holds_is_reported_until_another_start_is_named(
    reader: Client, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "00000000000000aa", 5
    with pytest.raises(StartGone) as error:
        reader.subscribe(kept, start=gone)
    assert f"the oldest one is {error.value.oldest}" in str(error.value)
    with pytest.raises(StartGone):
        reader.get(kept, timeout=PATIENCE)
    with pytest.raises(StartGone):
        reader.subscribe(kept)
    reader.subscribe(kept, start=error.value.oldest)
    assert bodies(reader, kept, COUNT) == OLD
    reader.put(kept, b"new")
    with pytest.raises(StartGone):
        reader.seek(kept, gone)
    assert bodies(reader, kept, 1) == [b"new"], "nothing was changed"
    monkeypatch.setattr(LookBackCalls, "check_held", lambda self, topic, start: None)
    with pytest.raises(StartGone):  # As if it was let go just then.
        reader.seek(kept, gone)
    with pytest.raises(StartGone):
        reader.get(kept, timeout=PATIENCE)
    assert reader.seek(kept, "earliest") == 2
    assert bodies(reader, kept, COUNT + 1) == [*OLD, b"new"]


# asyncio


def test_an_async_client_starts_and_seeks(cluster: Embedded, kept: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster.async_client(f"reader{next(names)}", directory=tmp_path) as reader:
            await reader.subscribe(kept, start="earliest")
            assert (await reader.get_many(kept, timeout=PATIENCE)).bodies() == OLD
            assert await reader.seek(kept, "earliest") == 1
            found = await reader.get_many(kept, timeout=PATIENCE)
            assert [(message.body, message.replay) for message in found] == [(body, 1) for body in OLD]
            with pytest.raises(CallerError):
                await reader.seek(kept, 17)  # type: ignore[arg-type]

    asyncio.run(run())


def test_messages_that_wait_for_a_later_attempt_are_given_up_by_a_seek(reader: Client, kept: str) -> None:
    seen: list[tuple[bytes, int, int]] = []

    def handle(message: Message, transaction: Transaction) -> None:
        if message.body == OLD[0] and not message.replay:
            raise Later(3600)
        seen.append((message.body, message.replay, message.attempts))

    reader.subscribe(kept, start="earliest")
    while len(seen) < COUNT - 1:
        reader.process(kept, handle, timeout=PATIENCE, hold="none")
    reader.seek(kept, "earliest")
    while len(seen) < 2 * COUNT - 1:
        reader.process(kept, handle, timeout=PATIENCE, hold="none")
    assert seen == [(body, 0, 1) for body in OLD[1:]] + [(body, 1, 1) for body in OLD]
    assert not reader._session.core.waiting.dropping(kept)
    assert nothing(reader, kept)


def test_a_waiting_message_has_the_number_of_its_replay(reader: Client, kept: str) -> None:
    seen: list[tuple[int, int]] = []

    def handle(message: Message, transaction: Transaction) -> None:
        if message.body == OLD[0]:
            seen.append((message.replay, message.attempts))
            if message.attempts == 1:
                raise Later(0)

    reader.subscribe(kept)
    reader.seek(kept, "earliest")
    while len(seen) < 2:
        reader.process(kept, handle, timeout=PATIENCE, hold="none")
    assert seen == [(1, 1), (1, 2)]
