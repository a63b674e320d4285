from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pubsub.client.storage.store import Store
from pubsub.client.storage.transaction import Transaction
from pubsub.gateway import idempotency
from pubsub.gateway.problems import Problem


@pytest.fixture
def transaction(tmp_path: Path) -> Iterator[Transaction]:
    with closing(Store(tmp_path / "p.db")) as store, store.transaction(fsync=False):
        for statement in idempotency.TABLES:
            store.execute(statement)
        yield Transaction(store, None)  # type: ignore[arg-type]


def test_a_kept_result_is_found_by_its_key_and_topic(transaction: Transaction) -> None:
    assert idempotency.find(transaction, "t", "k", b"p") is None
    idempotency.keep(transaction, "t", "k", b"p", "c/s", [(5, 2), (9, 1)])
    assert idempotency.find(transaction, "t", "k", b"p") == ("c/s", [(5, 2), (9, 1)])
    assert idempotency.find(transaction, "u", "k", b"p") is None


def test_another_request_under_the_same_key_is_refused(transaction: Transaction) -> None:
    idempotency.keep(transaction, "t", "k", b"p", "c/s", [(5, 2)])
    with pytest.raises(Problem) as raised:
        idempotency.find(transaction, "t", "k", b"q")
    assert raised.value.status == 422


def test_one_message_and_lines_and_other_keys_and_headers_are_other_requests() -> None:
    kinds = [("one", b"x"), ("lines", b"x"), ("messages", b"x"), ("one", b"", b"x"), ("one", b"", b"", b"x"),
             ("one", b"x", b"x"), ("one", b"", b"x", b"x"), ("lines", b"x", b"x")]  # fmt: skip
    assert len({idempotency.fingerprint(*one) for one in kinds}) == len(kinds)
