"""The statements of durable changes: each store can run them, because they keep to one subset of SQL."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from pubsub.client.core import changes as c
from pubsub.client.storage.applying import APPLY
from tests.client.test_fields import BASE, CHANGES

EVERY = [*BASE, *CHANGES]
FORBIDDEN = re.compile(r"insert or |\browid\b|pragma|x'|\?\d|\bor\b|ifnull|iif|select \*|sqlite", re.IGNORECASE)


@pytest.mark.parametrize("change", EVERY, ids=lambda change: type(change).__name__)
def test_a_change_gives_statements_of_the_common_subset(change: c.Change) -> None:
    for statement, parameters in APPLY[type(change)](change):
        assert not FORBIDDEN.search(statement), statement
        assert ";" not in statement
        if statement.startswith("insert"):
            assert re.match(r"insert into pubsub_\w+ \([\w\", ]+\) (values|select) ", statement), statement
        for values in parameters if isinstance(parameters, list) else [parameters]:
            assert statement.count("?") == len(values), statement
            assert all(type(value) in (int, float, str, bytes, type(None)) for value in values), values


def test_every_kind_of_change_is_applied() -> None:
    assert set(APPLY) == set(get_args(c.Change))
