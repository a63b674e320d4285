"""Rows that proxies and servers tell each other: as lines of a body, and the digest of a table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer


class Row(Protocol):
    def line(self) -> str:
        """Return the row as text."""
        ...


_Row = TypeVar("_Row", bound=Row)


class Digest:
    """A digest that depends on the rows of a table alone, and not on their order; as text 16 hex digits."""

    def __init__(self) -> None:
        self._sum = 0

    def __str__(self) -> str:
        return f"{self._sum:016x}"

    def toggle(self, row: Row) -> None:
        """Count a row that enters the table, or leaves it."""
        from hashlib import blake2b  # noqa: PLC0415  a command of a client needs no digest

        self._sum ^= int.from_bytes(blake2b(row.line().encode("ascii"), digest_size=8).digest(), "big")


def join_rows(rows: Iterable[Row] | None) -> bytes:
    """Return the body that `split_rows` reads."""
    return "\n".join(row.line() for row in rows or ()).encode("ascii")


def split_rows(body: Buffer, read: Callable[[str], _Row], rows_max: int, name: str) -> tuple[_Row, ...]:
    """Return the rows of a body.

    Args:
        read: returns the row of a line.
        rows_max: limit of a table; a body may have twice as many.
        name: of the rows, for an error.

    Raises:
        DecodeError: the body has another form, or more rows than a table may have.
    """
    try:
        lines = bytes(body).decode("ascii").split("\n") if len(body) else []
    except UnicodeDecodeError:
        raise DecodeError(f"{name} are not ASCII") from None
    if len(lines) > 2 * rows_max:
        raise DecodeError(f"{len(lines)} {name}")
    return tuple(map(read, lines))
