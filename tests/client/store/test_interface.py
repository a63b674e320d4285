"""Every store of a client's state keeps the promises of the interface: a SQLite file, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.client.core import changes as c
from pubsub.client.core.calling import DISCARDED, DONE, WAITING
from pubsub.client.core.outbox import Draft
from pubsub.client.storage import call_table
from pubsub.client.storage.call_table import CallTable
from pubsub.client.storage.file_table import forget_file, keep_file
from pubsub.client.storage.interface import ClientStore, ErrorKind
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import StorageError, StoreDamaged, StoreInUse, TooLarge
from tests.client.store.stores import Database, Files, Place, content
from tests.client.test_fields import BASE, CHANGES

LOG = "a" * 16


def row(counter: int, topic: str = "t", body: bytes = b"body") -> c.RowAdded:
    return c.RowAdded(topic, counter, counter - 1, 1, 0, 7, body)


@pytest.fixture
def store(place: Place) -> Iterator[ClientStore]:
    with closing(place.open(place.new())) as opened:
        yield opened


@contextmanager
def transaction(store: ClientStore) -> Iterator[Transaction]:
    """Run a block as one transaction of a handler."""
    store.begin(fsync=True)
    try:
        yield Transaction(store, Draft(None))  # type: ignore[arg-type]
    except BaseException as error:
        store.undo(error)
        raise
    store.end()


# Both stores are alike


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_both_stores_have_the_same_content_after_a_change(
    change: c.Change, tmp_path: Path, shared_database: str
) -> None:
    found = []
    for kept in (Files(tmp_path), Database(shared_database)):
        name = kept.new()
        with closing(kept.open(name)) as store:
            with transaction(store) as opened:
                for call in ("a", "b"):
                    CallTable(store).add(opened, call, "$calls.t", b"", 1.0, None, named=True)
            store.commit([*BASE, change])
            before = content(store) | {"calls": CallTable(store).all()}
        with closing(kept.open(name)) as again:
            assert content(again) | {"calls": CallTable(again).all()} == before
        found.append(before)
    assert found[0] == found[1]


# Commits


def test_a_commit_survives_the_end_of_the_process(place: Place) -> None:
    name = place.new()
    with closing(place.open(name)) as store:
        store.commit([row(5)])
        store.commit([row(9, "u"), c.ChainMoved("t", 4, 0, LOG)])
        store.save_milliseconds(7)
        identity = store.state("store")
    with closing(place.open(name)) as again:
        assert [found[:2] for found in again.rows()] == [(5, "t"), (9, "u")]
        assert again.body(5) == b"body"
        assert list(again.chains()) == [("t", 4, 0, LOG)]
        assert again.known_milliseconds() == [0, 7]
        assert again.state("store") == identity
        assert again.state("cuts") == 0


def test_a_failed_commit_leaves_nothing_and_the_next_one_works(store: ClientStore) -> None:
    store.commit([row(1)])
    with pytest.raises(Exception) as raised:  # noqa: PT011 - SQLite's own error, or ours.
        store.commit([c.ChainMoved("t", 1, 0, LOG), row(1)])
    assert store.kind_of(raised.value) is not None
    assert not list(store.chains())
    assert not store.in_transaction
    store.commit([row(2)])
    assert [found[0] for found in store.rows()] == [1, 2]


def test_a_row_that_is_there_already_is_no_second_one(store: ClientStore) -> None:
    store.commit([row(1, body=b"first")])
    with pytest.raises(Exception) as raised:  # noqa: PT011 - SQLite's own error, or ours.
        store.commit([row(1, body=b"second")])
    assert store.kind_of(raised.value) is not None
    assert store.body(1) == b"first"


def test_a_renewed_store_is_another_publisher(store: ClientStore) -> None:
    store.commit([c.RowAdded("t", 5, 4, 1, 1, 7, b"body"), c.ChainMoved("t", 3, 0, LOG)])
    store.commit([c.Renewed("00000000000000cc")])
    assert store.state("store") == "00000000000000cc"
    assert [found[4] for found in store.rows()] == [0]
    assert not list(store.chains())


def test_rows_that_left_are_gone(store: ClientStore) -> None:
    store.commit([row(counter) for counter in range(1, 6)])
    store.commit([c.RowsRemoved([1, 2, 4])])
    assert [found[0] for found in store.rows()] == [3, 5]
    assert not store.has_row(4)
    assert store.has_row(5)
    with pytest.raises(StoreDamaged, match="outbox row 4 is gone"):
        store.body(4)


@pytest.mark.parametrize("body", [b"", b"\x00\xff", bytes(100_000)], ids=["empty", "bytes", "large"])
def test_a_body_comes_back_as_it_was(store: ClientStore, body: bytes) -> None:
    store.commit([row(1, body=body)])
    store.commit([row(2, body=body), row(3)])
    assert store.body(1) == store.body(2) == body


def test_the_text_of_any_error_can_be_kept(store: ClientStore) -> None:
    store.commit([c.DeadLettered("t", f"{LOG}.1", f"{LOG}.1", "p/1", 1, 5, b"b", "a zero \0 and ü and 😀", 5, 6.0)])
    ((*_, error, _, _, _, _),) = store.dead_letters("t")
    assert error in ("a zero \0 and ü and 😀", "a zero ␀ and ü and 😀")


def test_an_empty_commit_and_a_sync_change_nothing(store: ClientStore) -> None:
    before = content(store)
    store.commit([])
    store.sync()
    assert content(store) == before
    assert not store.failed


# Transactions of the application


def test_a_transaction_has_the_application_s_rows_and_the_changes(store: ClientStore, place: Place) -> None:
    table = f"effects{place.new()}"
    with transaction(store) as opened:
        opened.execute(f"create table {table} (n bigint primary key)")
    with transaction(store) as opened:
        opened.execute(place.text(f"insert into {table} values (?)"), (7,))
        opened.executemany(place.text(f"insert into {table} values (?)"), [(8,), (9,)])
        store.apply([row(1)])

    def fails() -> None:
        with transaction(store) as opened:
            opened.execute(place.text(f"insert into {table} values (?)"), (10,))
            store.apply([row(2)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    with transaction(store) as opened:
        assert [n for (n,) in opened.execute(f"select n from {table} order by n")] == [7, 8, 9]
        opened.connection.execute(f"drop table {table}")
    assert [found[0] for found in store.rows()] == [1]


def test_kinds_of_errors(store: ClientStore, place: Place) -> None:
    table = f"effects{place.new()}"
    with transaction(store) as opened:
        opened.execute(f"create table {table} (n bigint primary key)")
    for statement, kind in (
        (f"insert into {table} values (1), (1)", ErrorKind.CONSTRAINT),
        ("select * from nowhere", ErrorKind.STATEMENT),
    ):
        with pytest.raises(Exception) as raised, transaction(store) as opened:  # noqa: PT011 - the database's own error.
            opened.execute(statement)
        assert store.kind_of(raised.value) is kind
        assert not isinstance(raised.value, StorageError)
    assert store.kind_of(StorageError("path", "reason")) is ErrorKind.DISK
    assert store.kind_of(ValueError()) is None


def test_a_constraint_that_is_checked_at_the_commit_undoes_it_all(store: ClientStore, place: Place) -> None:
    parent, child = f"a{place.new()}", f"b{place.new()}"
    if isinstance(place, Files):
        store.connection.pragma("foreign_keys", 1)
    with transaction(store) as opened:
        opened.execute(f"create table {parent} (n bigint primary key)")
        opened.execute(f"create table {child} (n bigint references {parent} (n) deferrable initially deferred)")

    def breaks() -> None:
        with transaction(store) as opened:
            opened.execute(f"insert into {child} values (1)")
            store.apply([row(1)])

    with pytest.raises(Exception) as raised:  # noqa: PT011 - the database's own error.
        breaks()
    assert store.kind_of(raised.value) is ErrorKind.CONSTRAINT
    assert store.rolled_back
    assert not list(store.rows())
    store.commit([row(2)])


# One process at a time


def test_a_client_that_is_open_here_is_refused(place: Place) -> None:
    name = place.new()
    with closing(place.open(name)), pytest.raises(StoreInUse, match="this very process"):
        place.open(name)
    place.open(name).close()


def test_other_clients_are_apart(place: Place) -> None:
    one, two = place.open(place.new()), place.open(place.new())
    with closing(one), closing(two):
        one.commit([*BASE])
        before = content(two)
        one.commit(
            [c.Renewed("00000000000000cc"), c.RowsRemoved([4, 5, 6]), c.WaitingDropped("t"), c.GroupForgotten(1)]
        )
        assert content(two) == before
        two.commit([*BASE])
        assert [found[0] for found in two.rows()] == [4, 5, 6]
        assert not list(one.rows())


# Calls and files


class Calls:
    def __init__(self, store: ClientStore) -> None:
        self.store, self.table = store, CallTable(store)

    def add(self, *calls: str, named: bool = True) -> None:
        with transaction(self.store) as opened:
            for call in calls:
                self.table.add(opened, call, "$calls.billing", b"told by", 5.0, None, named=named)

    def answer(self, call: str, body: bytes = b"r", *, told: bool = False) -> bool:
        with transaction(self.store) as opened:
            found = self.table.answer(opened, call, DONE, body, 6.0)
            if told:
                self.table.tell(opened, call)
            return found

    def ids(self) -> list[str]:
        return [call.id for call in self.table.all()]


def test_calls_keep_their_replies(store: ClientStore) -> None:
    calls = Calls(store)
    calls.add("b", "a")
    assert calls.ids() == ["b", "a"]
    assert calls.answer("b", b"one")
    assert not calls.answer("b", b"two")
    assert not calls.answer("none")
    found: Any = calls.table.find("b")
    assert (found[0].reply().body, found[1], found[2]) == (b"one", "$calls.billing", b"told by")
    store.commit([c.CallsDiscarded(["a", "b"])])
    assert [one.outcome for one in calls.table.all()] == [DONE, DISCARDED]
    assert calls.answer("a", b"late")
    with transaction(store) as opened:
        assert calls.table.forget(opened, "a")
        assert not calls.table.forget(opened, "a")
    assert calls.ids() == ["b"]


def test_a_full_table_of_calls_forgets_the_oldest_that_were_told(
    store: ClientStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_table, "CALLS_MAX", 2)
    monkeypatch.setattr(call_table, "FORGET_ROWS", 1)
    calls = Calls(store)
    calls.add("named")
    calls.add("random", named=False)
    with pytest.raises(TooLarge, match="CALLS_MAX = 2"):
        calls.add("next")
    for call in ("named", "random"):
        calls.answer(call, told=True)
    calls.add("next", "last")
    assert calls.ids() == ["next", "last"]
    assert calls.table.find_over("named") == ("$calls.billing", b"told by")
    assert calls.table.find_over("random") is None
    assert [one.outcome for one in calls.table.all()] == [WAITING, WAITING]


def test_files_of_get_are_kept_with_names_that_are_no_text(store: ClientStore) -> None:
    assert store.files() == []
    path = Path("/tmp/b\udcff")
    with transaction(store) as opened:
        keep_file(opened, path, Path("/tmp/part"), 5)
        keep_file(opened, path, Path("/tmp/part"), 9)
    ((stored, part, size),) = store.files()
    assert (stored, part, size) == (b"/tmp/b\xff", b"/tmp/part", 9)
    with transaction(store) as opened:
        forget_file(opened, stored)
    assert store.files() == []
