"""The roster of stores as one word of a header."""

from __future__ import annotations

import pytest

from pubsub.protocol.stores import STORES_MAX, WORD_LENGTH_MAX, Known, format_stores, is_store_directory, parse_stores

A, B = "a" * 16, "b" * 16


@pytest.mark.parametrize(
    "stores",
    [{}, {A: Known("s1", 0)}, {A: Known("s.1-a", 1_764_000_000_000), B: Known("", 7)}],
    ids=["none", "one", "two, one of no known server"],
)
def test_a_written_store_directory_is_read_back(stores: dict[str, Known]) -> None:
    assert parse_stores(format_stores(stores)) == stores


def test_a_too_long_directory_omits_the_servers_names() -> None:
    stores = {f"{number:016x}": Known("s" * 64, 2_000_000_000_000) for number in range(STORES_MAX)}
    word = format_stores(stores)
    assert len(word) <= WORD_LENGTH_MAX
    assert parse_stores(word) == {store: Known("", known.incarnation) for store, known in stores.items()}


@pytest.mark.parametrize(
    "word", ["x", A, f"{A}.", f"{A}.-1.s1", f"{A}.zz.s1", f"{A}.1.s 1", f"{A}.1...", f"{A}.{'f' * 20}.s1", "," * 9000]
)
def test_an_invalid_store_directory_is_refused(word: str) -> None:
    assert not is_store_directory(word)
