"""Rows as lines of a body, and the digest of a table of rows."""

from __future__ import annotations

import pytest

from pubsub.errors import DecodeError
from pubsub.protocol.deletion_table import Deletion, read_deletion
from pubsub.protocol.rows import Digest, join_rows, split_rows

ROWS = (Deletion("a", 1), Deletion("b.c", 2))


def test_a_body_has_the_rows_that_were_joined() -> None:
    assert split_rows(join_rows(ROWS), read_deletion, 1, "rows") == ROWS
    assert split_rows(join_rows(None), read_deletion, 1, "rows") == ()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"a 1\nb 1\nc 1", "3 rows$"),
        (b"\xff 1", "rows are not ASCII"),
        (b"a 1\n", "not a deletion|number"),
        (b"a", "number"),
    ],
)
def test_other_bodies_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        split_rows(body, read_deletion, 1, "rows")


def test_a_digest_depends_on_the_rows_and_not_on_their_order() -> None:
    one, other = Digest(), Digest()
    empty = str(one)
    for row in ROWS:
        one.toggle(row)
    for row in reversed(ROWS):
        other.toggle(row)
    assert str(one) == str(other) != empty
    for row in ROWS:
        one.toggle(row)
    assert str(one) == empty == "0" * 16
