"""The program of examples/databases: a session of SQLAlchemy in the transaction of a handler."""

from __future__ import annotations

import runpy
from contextlib import suppress
from pathlib import Path

from pubsub import embedded
from pubsub.config.settings import ClientSettings
from tests.postgres.outgoing import Connection, shop
from tests.postgres.server import Postgres

__all__ = ["shop"]

EXAMPLES = Path(__file__).parents[2] / "examples/databases"


def test_every_example_is_tried_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.*")} == {"handler_with_sqlalchemy.py"}


def test_rows_of_a_session_and_the_position_are_one_commit(postgres: Postgres, shop: Connection) -> None:
    program = runpy.run_path(str(EXAMPLES / "handler_with_sqlalchemy.py"))
    settings = ClientSettings(handler_attempts=2, retry_first_seconds=0.0, database=postgres.url(shop.info.dbname))
    with embedded() as cluster, cluster.client("payments", settings=settings) as client:
        client.subscribe("orders")
        for number, fruit in enumerate((b"pear", b"durian", b"plum")):
            client.put("orders", fruit, key=b"%d" % number)
        for _ in range(3):  # The failure of each attempt reaches the caller.
            with suppress(ValueError):
                program["work"](client, 0.5)
        found = shop.execute('select "order", fruit from payments order by 1').fetchall()
        assert found == [("0", "pear"), ("2", "plum")]
        (letter,) = client.dead_letters()
        assert (letter.body, letter.attempts) == (b"durian", 2)
        assert "durian is not sold" in letter.error
