"""A client with a state that is copied, opened twice or set back, at a real proxy and a real server."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pubsub.client import Client
from pubsub.client.core.core import Due
from pubsub.client.core.prefetch import Loss
from pubsub.embedded import Embedded
from pubsub.errors import (
    DataLoss,
    InDoubt,
    StateCopied,
    StoreFull,
    StoreInUse,
    Superseded,
)
from pubsub.protocol import Outcome, Status
from tests.client.opened import bodies, eventually, kill, names, nothing

# Copies, seconds and the fence


def test_a_second_opening_of_a_client_is_refused_with_a_clear_message(cluster: Embedded, client: Client) -> None:
    with pytest.raises(StoreInUse, match="in use by this very process"):
        cluster.client(client.name)


def test_another_host_that_opened_later_supersedes(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
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


def test_subscribing_again_takes_over_from_an_unknown_other_host(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as here:
        here.subscribe(topic)
        with cluster.client(name, directory=tmp_path) as there:
            there.subscribe(topic)
            here.subscribe(topic)
            here.put(topic, b"x")
            assert bodies(here, topic, 1) == [b"x"]
            with pytest.raises(Superseded):
                there.get(topic, timeout=5.0)


def test_a_copied_directory_is_detected_and_renew_repairs_it(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.subscribe(topic)
        client.put(topic, b"zero")
        assert bodies(client, topic, 1) == [b"zero"]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.put_many(topic, [b"one", b"two"])
        assert bodies(client, topic, 2) == [b"one", b"two"]
        sub = client._session.core.subscriptions[topic]
        eventually(lambda: sub.cursor.acknowledged == sub.cursor.position)
    with cluster.client(name, directory=tmp_path / "b") as copy:
        with pytest.raises(StateCopied, match="renew"):
            copy.get(topic, timeout=5.0)
        before = copy.publisher_id
        copy.renew()
        assert copy.publisher_id != before
        copy.subscribe(topic)
        copy.put(topic, b"three")
        assert bodies(copy, topic, 1) == [b"three"]


def lose_place(client: Client, topic: str) -> None:
    """Let the service report that the log with the next messages is gone."""
    session = client._session
    with session.lock:
        session.core.due.append(Due(*session.core.subscriptions[topic].place_lost(Status("s1", Outcome.GONE), 0.0)))
        session.turn()


def test_a_loss_is_reported_after_a_kill_until_the_application_continues(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    lose_place(client, topic)
    kill(client)
    for _ in range(2):  # It was not told, or ended by the error.
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


def test_a_second_loss_is_reported_after_a_kill_too(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    for _ in range(2):
        lose_place(client, topic)
        with pytest.raises(DataLoss):
            client.get(topic, timeout=5.0)
        assert client.get(topic, timeout=0.0) is None, "it goes on, and so was told of it"
    lose_place(client, topic)
    with pytest.raises(DataLoss):
        client.get(topic, timeout=5.0)
    kill(client)
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):  # The process may have ended on the way to its user.
            again.get(topic, timeout=5.0)
        assert again.get(topic, timeout=0.0) is None
        assert len(again.dead_letters(topic)) == 3


@pytest.mark.parametrize("timeout", [5.0, 0.0])
def test_a_put_after_a_reported_loss_arrives(cluster: Embedded, topic: str, timeout: float) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        lose_place(client, topic)

        def told() -> bool:
            try:
                return client.get(topic, timeout=timeout) is not None
            except DataLoss:
                return True

        eventually(told)
        kill(client)
    with cluster.client(f"client{next(names)}") as publisher:
        publisher.put(topic, b"after")
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):  # Once more, for the process did not live to go on.
            again.get(topic, timeout=5.0)
        assert bodies(again, topic, 1) == [b"after"]


def test_a_reported_loss_is_passed_permanently_though_the_process_ends(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    sub = client._session.core.subscriptions[topic]
    assert sub.cursor.position is not None
    log, last = sub.cursor.position
    with cluster.client("putter" + topic) as putter:
        putter.put_many(topic, [b"lost", b"lost too"])
        with client._session.lock:  # The same change that such an answer makes.
            sub.prefetch.lose(Loss((log, last + 1), (log, last + 2)))
        with pytest.raises(DataLoss):
            client.get(topic, timeout=5.0)
        kill(client)
        putter.put(topic, b"behind it")
    with cluster.client(name) as again:
        with pytest.raises(DataLoss):  # The process may have ended on the way to its user.
            again.get(topic, timeout=5.0)
        assert bodies(again, topic, 1) == [b"behind it"]


def test_a_renewal_takes_the_subscriptions_back_from_a_copy(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.subscribe(topic)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with (
        cluster.client(name, directory=tmp_path / "a") as here,
        cluster.client(name, directory=tmp_path / "b") as there,
    ):
        there.subscribe(topic)
        here.renew()
        assert nothing(here, topic)
        here.put(topic, b"x")
        assert bodies(here, topic, 1) == [b"x"]
        with pytest.raises(Superseded):
            there.get(topic, timeout=5.0)


def test_puts_kept_by_a_renewal_are_sent_after_a_kill_as_the_first_of_the_new_publisher(
    cluster: Embedded, client: Client, topic: str, nowhere: str
) -> None:
    client.subscribe(topic)
    name, folder = f"client{next(names)}", cluster.directory / "clients"
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
def test_puts_finished_before_a_renewal_are_not_put_again_under_the_new_name(
    cluster: Embedded, client: Client, topic: str, keep: bool
) -> None:
    client.subscribe(topic)
    name = f"client{next(names)}"
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


def test_a_renewal_that_the_disk_refuses_changes_nothing(
    cluster: Embedded, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(milliseconds: int) -> None:
        raise StoreFull("c.db", "no space, says the test")

    client.subscribe(topic)
    with cluster.client(f"client{next(names)}") as putting:
        putting.put(topic, b"0")
        with monkeypatch.context() as patch:
            patch.setattr(putting._session.core.numbers, "_save", refuse)
            with pytest.raises(StoreFull):
                putting.renew()
        assert putting._session.core.publisher == putting._session.store.state("store")
        putting.put(topic, b"1", timeout=5.0)
        putting.renew()
        putting.put(topic, b"2", timeout=5.0)
    assert bodies(client, topic, 3) == [b"0", b"1", b"2"]


def test_a_copy_with_older_numbers_is_detected_by_its_put(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
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


@pytest.mark.parametrize("cut", [False, True], ids=["in order", "after a power cut"])
def test_a_restarted_copy_is_detected_by_its_unfinished_puts(
    cluster: Embedded, topic: str, tmp_path: Path, cut: bool
) -> None:
    name = f"client{next(names)}"
    with cluster.client(name, directory=tmp_path / "a") as client:
        client.put(topic, b"zero")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Client(name, proxies=["tcp://127.0.0.1:1"], directory=tmp_path / "b") as copy:
        with cluster.client(name, directory=tmp_path / "a") as client:
            client.put(topic, b"later than the copy's numbers")
        with pytest.raises(InDoubt):
            copy.put(topic, b"in doubt", timeout=0.1)
    if cut:  # As it is found when the host was cut off: not closed, and of another boot.
        with closing(sqlite3.connect(tmp_path / "b" / f"{name}.db")) as state, state:
            state.execute(
                "update pubsub_state set value = case key when 'clean' then 0 else 'another' end"
                " where key in ('clean', 'boot')"
            )
    with cluster.client("reader" + topic) as reader, cluster.client(name, directory=tmp_path / "b") as copy:
        reader.subscribe(topic)
        with pytest.raises(StateCopied, match="never made here"):  # Its numbers are above the original's by now.
            copy.flush()
        copy.renew(keep=True)
        copy.flush()
        assert bodies(reader, topic, 1) == [b"in doubt"]


def test_a_client_with_an_emptied_state_is_another_publisher(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    name = f"client{next(names)}"
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


def test_an_ended_call_to_subscribe_does_not_supersede_another_later(
    cluster: Embedded, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as here:
        with monkeypatch.context() as patch:
            patch.setattr(here._session._wire, "send", lambda *message: None)  # The network is down.
            flow = here._calls.subscribing.intend(topic, True, 30.0)
            next(flow)
            flow.close()  # As after a cancellation or Ctrl-C.
        with cluster.client(name, directory=tmp_path) as there:
            there.subscribe(topic)
            there.put(topic, b"x")
            with pytest.raises(Superseded):
                here.get(topic, timeout=10.0)
            assert bodies(there, topic, 1) == [b"x"]


@pytest.mark.parametrize("way", ["put", "put_now", "put_many", "publisher"])
def test_a_client_that_was_found_to_be_a_copy_writes_no_put(client: Client, topic: str, way: str) -> None:
    client.put(topic, b"before")
    session = client._session
    session.core.copied = StateCopied("c", "c.db", "put 7 was never made here")

    def put() -> None:
        if way == "put":
            client.put(topic, b"x")
        elif way == "put_now":
            client.put(topic, b"x", wait=False)
        elif way == "put_many":
            client.put_many(topic, [b"x"], wait=False)
        else:
            with client.publisher(topic) as publisher:
                publisher.put(b"x")

    with pytest.raises(StateCopied):
        put()
    assert not list(session.core.outbox.chains[topic].rows)
