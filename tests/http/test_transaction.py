"""A handler's transaction: it begins with its first use, on one thread, and ends with the receipt or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import CallerError, HandlerMisused
from pubsub.http.storage.handling import HandlerTransaction
from pubsub.http.storage.journal import Journal, OwnFile


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(OwnFile(tmp_path, ""))
    with made.transaction() as transaction:
        transaction.execute("create table mine (x)")
    yield made
    made.close()


def rows(journal: Journal) -> list[Any]:
    with journal.transaction() as transaction:
        return [x for (x,) in transaction.execute("select x from mine")]


def test_a_transaction_blocks_nobody_before_its_first_use(journal: Journal) -> None:
    transaction = HandlerTransaction(journal)
    assert rows(journal) == []
    assert not transaction.begun
    transaction.execute("insert into mine values (1)")
    assert transaction.begun
    transaction.commit(lambda inner: inner.executemany("insert into mine values (?)", [(2,)]) and None)
    assert rows(journal) == [1, 2]
    with pytest.raises(CallerError, match="is over"):
        transaction.execute("select 1")


def test_a_transaction_is_rolled_back_completely(journal: Journal) -> None:
    transaction = HandlerTransaction(journal)
    transaction.executemany("insert into mine values (?)", [(1,), (2,)])
    transaction.roll_back("it took too long")
    with pytest.raises(HandlerMisused, match="it took too long"):
        transaction.execute("select 1")
    HandlerTransaction(journal).roll_back()
    assert rows(journal) == []


def test_a_failed_commit_leaves_nothing_behind(journal: Journal) -> None:
    transaction = HandlerTransaction(journal)
    transaction.execute("insert into mine values (1)")

    def finish(_: Any) -> None:
        raise ValueError("no receipt")

    with pytest.raises(ValueError, match="no receipt"):
        transaction.commit(finish)
    ended = HandlerTransaction(journal)
    ended.execute("insert into mine values (2)")
    with pytest.raises(CallerError, match="ended the transaction"):
        ended.commit(lambda inner: inner.execute("rollback") and None)
    assert rows(journal) == []


def test_a_transaction_works_on_its_own_thread_only(journal: Journal) -> None:
    transaction, said = HandlerTransaction(journal), []

    def use() -> None:
        try:
            transaction.execute("select 1")
        except HandlerMisused as error:
            said.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "thread" in said[0]


def test_no_topic_is_put_to_in_a_file_without_a_client(journal: Journal) -> None:
    transaction = HandlerTransaction(journal)
    assert transaction.draft.rows == []
    with pytest.raises(AttributeError):
        _ = transaction.nothing
    transaction.roll_back()
