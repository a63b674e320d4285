"""A worker's connections: kept between tasks, and closed when they are idle, forked, or of another key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pubsub.client.requests import Proxies
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair
from pubsub.spark import connections
from pubsub.spark.connections import KEPT_MAX, Connections
from pubsub.spark.identity import NOBODY, Identity
from tests.faults.cluster import until
from tests.spark.broker import Broker
from tests.spark.test_source import batch, numbers, values
from tests.spark.test_triggers import Clock

NOWHERE = ("tcp://127.0.0.1:9",)


def closed(link: Proxies) -> bool:
    return link._messenger.closed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> Iterator[Connections]:
    made = Connections(3600.0, clock)
    yield made
    clock.now += 3600.0
    made.close_idle()
    assert made.kept == 0


def test_the_next_task_has_the_same_connection(kept: Connections) -> None:
    with kept.lend(NOBODY, NOWHERE, 1.0) as first:
        assert kept.kept == 0
        with kept.lend(NOBODY, NOWHERE, 1.0) as other:
            assert other is not first, "two tasks at a time never share one"
    with kept.lend(NOBODY, NOWHERE, 1.0) as again:
        assert again in (first, other)
    assert kept.kept == 2


def test_other_proxies_another_client_or_time_out_have_their_own(kept: Connections) -> None:
    with kept.lend(NOBODY, NOWHERE, 1.0) as first:
        pass
    others = [(NOBODY, ("tcp://127.0.0.1:10",), 1.0), (NOBODY, NOWHERE, 2.0), (Identity(client="etl"), NOWHERE, 1.0)]
    for given in others:
        with kept.lend(*given) as other:
            assert other is not first
    assert kept.kept == 4


def test_a_task_that_fails_or_is_given_up_closes_its_connection(kept: Connections) -> None:
    with pytest.raises(KeyError), kept.lend(NOBODY, NOWHERE, 1.0) as failed:
        raise KeyError

    def rows() -> Iterator[Proxies]:
        with kept.lend(NOBODY, NOWHERE, 1.0) as link:
            yield link
            yield link

    task = rows()
    given_up = next(task)
    task.close()  # type: ignore[attr-defined]
    assert closed(failed)
    assert closed(given_up)
    assert kept.kept == 0


def test_an_idle_connection_is_closed_and_a_used_one_is_not(kept: Connections, clock: Clock) -> None:
    with kept.lend(NOBODY, NOWHERE, 1.0) as first:
        pass
    clock.now += 1800.0
    with kept.lend(NOBODY, NOWHERE, 2.0) as second:
        pass
    clock.now += 1800.0
    kept.close_idle()
    assert (closed(first), closed(second), kept.kept) == (True, False, 1)


def test_a_timer_closes_what_is_idle() -> None:
    made = Connections(0.01)
    with made.lend(NOBODY, NOWHERE, 1.0) as link:
        pass
    until(lambda: made.kept == 0 and closed(link), "the connection is closed")


def test_a_process_keeps_few_unused_connections(kept: Connections) -> None:
    links = []
    for number in range(KEPT_MAX + 2):
        with kept.lend(NOBODY, NOWHERE, 1.0 + number) as link:
            links.append(link)
    assert [closed(link) for link in links] == [True] * 2 + [False] * KEPT_MAX


def test_a_replaced_key_file_has_a_connection_of_its_own(kept: Connections, tmp_path: Path) -> None:
    make_key_file(tmp_path / "key", new_pair().secret)
    proxy = format_public(new_pair().public)
    own = Identity(client="etl", key_file=str(tmp_path / "key"), proxy_keys=(proxy,))
    with kept.lend(own, NOWHERE, 1.0) as first:
        pass
    with kept.lend(own, NOWHERE, 1.0) as same:
        assert same is first
    (tmp_path / "key").unlink()
    make_key_file(tmp_path / "key", new_pair().secret)
    with kept.lend(own, NOWHERE, 1.0) as other:
        assert other is not first


def test_a_forked_worker_begins_with_no_connection(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    reader = batch(broker)
    parts = reader.partitions()
    assert values(reader, parts) == numbers(0, 10)
    assert connections._connections.kept > 0
    child = os.fork()
    if not child:  # The child reads over a connection of its own, and leaves the parent's alone.
        with suppress(BaseException):
            os._exit(0 if values(reader, parts) == numbers(0, 10) and connections._connections.kept == 1 else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert values(reader, parts) == numbers(0, 10)


def test_the_tasks_of_one_process_share_a_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.put("t", numbers(0, 640))
    reader = batch(broker, minPartitions="64", timeout="9.5")
    parts = reader.partitions()
    assert len(parts) == 64
    made, connect = [], Identity.connect
    monkeypatch.setattr(Identity, "connect", lambda *given: made.append(connect(*given)) or made[-1])
    assert values(reader, parts) == numbers(0, 640)
    assert len(made) == 1
