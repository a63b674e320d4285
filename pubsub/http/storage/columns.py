"""Converts headers and responses to columns and back."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from pubsub.client.storage.disk_errors import row_errors
from pubsub.client.storage.transaction import Transaction
from pubsub.http.core.answers import Answer

_P = ParamSpec("_P")
_Found = TypeVar("_Found")


def reading(
    read: Callable[Concatenate[Transaction, _P], _Found],
) -> Callable[Concatenate[Transaction, _P], _Found]:
    """Make a function that reads rows raise `StoreDamaged` for a row that could never have been written."""

    @functools.wraps(read)
    def careful(transaction: Transaction, /, *args: _P.args, **more: _P.kwargs) -> _Found:
        with row_errors(transaction.path):
            return read(transaction, *args, **more)

    return careful


def headers_text(headers: Mapping[str, str]) -> str:
    return json.dumps(dict(headers), separators=(",", ":"))


def read_headers(text: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in json.loads(text).items()}


def answer_columns(answer: Answer | None) -> tuple[int | None, str | None, bytes | None]:
    """Return a response as status, headers and body; three times None if there is none."""
    return (None, None, None) if answer is None else (answer.status, headers_text(answer.headers), answer.body)


def read_answer(status: int | None, headers: str | None, body: bytes | None) -> Answer | None:
    return None if status is None else Answer(status, read_headers(headers or "{}"), body or b"")
