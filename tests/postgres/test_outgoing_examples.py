"""The programs of examples/outgoing: order and message are one transaction, with each way to write SQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres.outgoing import Connection, rows_of, shop
from tests.postgres.programs import program
from tests.postgres.server import Postgres

__all__ = ["shop"]

EXAMPLES = Path(__file__).parents[2] / "examples/outgoing"


def run(url: str, example: str, number: int, fruit: str) -> int:
    """Run an example, and return its exit code."""
    words = [sys.executable, str(EXAMPLES / example), url, str(number), fruit]
    if example.endswith(".sql"):
        words = [
            str(program("psql")),
            url,
            "-v",
            f"number={number}",
            "-v",
            f"fruit={fruit}",
            "-f",
            str(EXAMPLES / example),
        ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0 or "durian is not sold" in ended.stderr or "duplicate key" in ended.stderr, (
        ended.stderr
    )
    return ended.returncode


def test_every_example_is_tried_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {
        "with_psycopg.py", "with_sqlalchemy.py", "with_django.py", "with_sql.sql",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("example", ["with_psycopg.py", "with_sqlalchemy.py", "with_django.py", "with_sql.sql"])
def test_an_order_and_its_message_are_one_transaction(example: str, postgres: Postgres, shop: Connection) -> None:
    url = postgres.url(shop.info.dbname)
    assert run(url, example, 17, "pear") == 0
    assert run(url, example, 17 if example.endswith(".sql") else 18, "durian") != 0
    assert shop.execute("select number, fruit from orders").fetchall() == [(17, "pear")]
    ((topic, key, headers, body),) = rows_of(shop)
    assert (topic, key, body) == ("orders", b"17", b"pear")
    assert headers == ({"source": "psql"} if example.endswith(".sql") else None)
