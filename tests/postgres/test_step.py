"""The simulation's model of `pubsub.step` says the same as the function itself, in each case."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from random import Random

import psycopg
import pytest

from tests.postgres.stores import opened
from tests.simulation.database.engine import Database

CASES = list(product(("right", "other", "none"), (True, False), (-1, 0, 1), (True, False)))
"""The mark of the transaction, the life, the number before the commit, and the durability that the session asks for."""


def in_model(mark: str, mine: bool, ahead: int, durable: bool) -> tuple[str, int, bool]:
    database = Database("model", Random(1), lambda: 0.0)
    database.read(
        "insert into pubsub.state (client, life, lives, commits, store, milliseconds, known, cuts, system, timeline,"
        " database) values ('c', 'mine', 1, 7, 's', 0, '', 0, '', '', '')"
    )
    backend = database.connect()
    database.begin(backend, "m" if mark == "right" else "")
    backend.durable = durable
    found = ""
    try:
        database.commit(backend, "c", "mine" if mine else "old", 8 + ahead, "" if mark == "none" else "m")
    except psycopg.Error as error:
        found = error.sqlstate or ""
        database.roll_back(backend)
    return found, database.read("select commits from pubsub.state")[0][0], backend.durable or bool(found)


def in_postgres(url: str, mark: str, mine: bool, ahead: int, durable: bool) -> tuple[str, int, bool]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update pubsub.state set life = 'mine', commits = 7 where client = 'billing'")
        connection.execute("begin")
        if mark == "right":
            connection.execute("select set_config('pubsub.tx', 'm', true)")
        if not durable:
            connection.execute("set local synchronous_commit = off")
        found, kept = "", True
        text = "select pubsub.step('billing', %s, %s, %s), current_setting('synchronous_commit') <> 'off'"
        try:
            row = connection.execute(text, ("mine" if mine else "old", 8 + ahead, "" if mark == "none" else "m"))
            kept = bool((row.fetchone() or (None, None))[1])
            connection.execute("commit")
        except psycopg.Error as error:
            found = error.sqlstate or ""
            connection.execute("rollback")
        commits = connection.execute("select commits from pubsub.state where client = 'billing'").fetchone()
        assert commits is not None
        return found, commits[0], kept


def test_the_model_of_the_simulation_is_the_function(database: str) -> None:
    with closing(opened(database)):
        pass
    for case in CASES:
        assert in_model(*case) == in_postgres(database, *case), case


@pytest.mark.parametrize(("case", "outcome"), [
    (("right", True, 0, True), ("", 8, True)),
    (("right", True, 0, False), ("", 8, True)),
    (("right", False, 0, True), ("PB002", 7, True)),
    (("right", True, 1, True), ("PB002", 7, True)),
    (("other", True, 0, True), ("PB001", 7, True)),
])  # fmt: skip
def test_the_function_refuses_a_commit_for_each_reason(
    database: str, case: tuple[str, bool, int, bool], outcome: tuple[str, int, bool]
) -> None:
    with closing(opened(database)):
        pass
    assert in_postgres(database, *case) == outcome
