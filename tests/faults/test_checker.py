"""The checker by itself: it accepts every allowed event, and finds each violation."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.checker import check
from tests.faults.history import TABLES


class Book:
    """Writes histories: times are given, names are letters."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _database(self, name: str) -> Path:
        path = self.directory / f"{name}.db"
        with closing(sqlite3.connect(path)) as database:
            for table in TABLES:
                database.execute(table)
        return path

    def publisher(self, *puts: tuple[str, float, float | None, int | None]) -> Path:
        """Puts on `t`: body, when it began, when it was acknowledged, its lot."""
        path = self._database("p")
        with closing(sqlite3.connect(path)) as database, database:
            database.executemany(
                "insert into history_puts values (?, 't', ?, ?, ?, ?, 0)",
                [(n, body, lot, began, done) for n, (body, began, done, lot) in enumerate(puts, 1)],
            )
        return path

    def subscriber(self, seen: Sequence[tuple[str, float]], intents: Sequence[tuple[int, float, float | None]]) -> Path:
        """What came on `t` and when; intents: wanted, when it began, when it was settled."""
        path = self._database(f"s{len(list(self.directory.iterdir()))}")
        with closing(sqlite3.connect(path)) as database, database:
            database.executemany("insert into history_seen (topic, body, at) values ('t', ?, ?)", seen)
            database.executemany(
                "insert into history_intents (topic, wanted, began, settled) values ('t', ?, ?, ?)", intents
            )
        return path


ON = [(1, 0.0, 1.0)]
PUT = [("x", 2.0, 3.0, None), ("y", 4.0, 5.0, None)]
AWAY = [(1, 0.0, 1.0), (0, 1.5, 1.6), (1, 6.0, 6.1)]
LOT = [("x", 2.0, None, 1), ("y", 2.0, None, 1)]


@pytest.mark.parametrize(
    ("puts", "seen", "intents", "objections"),
    [
        (PUT, [("x", 6.0), ("y", 7.0)], ON, []),
        (PUT, [("y", 7.0)], ON, ["lost"]),
        (PUT, [("x", 6.0), ("y", 7.0), ("x", 8.0)], ON, ["repeated", "order"]),
        (PUT, [("y", 6.0), ("x", 7.0)], ON, ["order"]),
        (PUT, [("x", 6.0), ("y", 7.0), ("z", 8.0)], ON, ["foreign"]),
        (PUT, [], AWAY, []),
        (PUT, [("x", 7.0)], AWAY, ["silence"]),
        (PUT, [("x", 3.0)], [(1, 0.0, 1.0), (0, 2.5, 2.6)], ["silence"]),
        (PUT, [("x", 2.5)], [(1, 0.0, 1.0), (0, 2.5, 2.6)], []),
        (PUT, [], [(1, 0.0, 4.5)], []),
        (PUT, [("y", 6.0)], [(1, 0.0, 2.5)], []),
        (PUT, [], [(1, 0.0, None)], []),
        ([("x", 2.0, None, None)], [], ON, []),
        ([("x", 2.0, None, None)], [("x", 3.0)], ON, []),
        (LOT, [], ON, []),
        (LOT, [("x", 3.0), ("y", 3.0)], ON, []),
        (LOT, [("x", 3.0)], ON, ["halves"]),
    ],
)
def test_the_checker_judges_one_subscriber(tmp_path: Path, puts, seen, intents, objections) -> None:
    book = Book(tmp_path)
    found = check([book.publisher(*puts)], [book.subscriber(seen, intents)])
    assert [objection.kind for objection in found] == objections


@pytest.mark.parametrize(("skew", "objections"), [(0.0, ["silence"]), (0.4, ["silence"]), (0.6, [])])
def test_a_put_within_the_skew_before_a_subscription_may_arrive(tmp_path: Path, skew, objections) -> None:
    book = Book(tmp_path)
    found = check([book.publisher(*PUT[:1])], [book.subscriber([("x", 6.0)], [(1, 3.5, 4.0)])], skew)
    assert [objection.kind for objection in found] == objections


def test_the_checker_judges_a_put_in_doubt_that_one_of_two_subscribers_got(tmp_path: Path) -> None:
    book = Book(tmp_path)
    publisher = book.publisher(("x", 2.0, None, None))
    got, missed = book.subscriber([("x", 3.0)], ON), book.subscriber([], ON)
    later = book.subscriber([], [(1, 2.5, 2.6)])
    assert [objection.kind for objection in check([publisher], [got, missed])] == ["halves"]
    assert check([publisher], [got, later]) == []


def test_the_checker_knows_a_subscriber_with_a_new_directory(tmp_path: Path) -> None:
    book = Book(tmp_path)
    publisher = book.publisher(*PUT)
    before, after = book.subscriber([("x", 6.0)], ON), book.subscriber([("x", 9.0)], [])
    assert [objection.kind for objection in check([publisher], [[before, after]])] == ["repeated", "lost"]
