"""The checker of the demo finds every way in which the outcome can be wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from demo_check import POSITION, SEEN, Verdict, check, digest
from demo_input import Item

ITEMS = [Item("ab"[number % 2], b"%d\trecord" % number) for number in range(10)]

Row = tuple[str, int, str]


def right_rows() -> list[Row]:
    return [(item.topic, item.number, digest(item.body)) for item in ITEMS]


def verdict(tmp_path: Path, rows: list[Row], put: int = len(ITEMS)) -> Verdict:
    with closing(sqlite3.connect(tmp_path / "publisher")) as database, database:
        database.execute(POSITION)
        database.execute("insert into demo_position values (1, ?)", (put,))
    for name, recorded in (("first", rows), ("second", right_rows())):
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            database.execute(SEEN)
            database.executemany("insert into demo_seen values (?, ?, ?)", recorded)
    return check(ITEMS, tmp_path / "publisher", {name: tmp_path / name for name in ("first", "second")})


def test_each_record_once_and_in_order_is_right(tmp_path: Path) -> None:
    found = verdict(tmp_path, right_rows())
    assert found.right
    assert (found.put, found.expected, found.total("delivered")) == (10, 10, 20)


def test_topics_may_come_in_any_order_among_each_other(tmp_path: Path) -> None:
    assert verdict(tmp_path, sorted(right_rows())).right


def lose(rows: list[Row]) -> None:
    rows.pop(3)


def double(rows: list[Row]) -> None:
    rows.insert(4, rows[3])


def swap(rows: list[Row]) -> None:
    rows[2], rows[4] = rows[4], rows[2]


def forge(rows: list[Row]) -> None:
    rows.append(("a", 99, "x"))


def damage(rows: list[Row]) -> None:
    rows[5] = (rows[5][0], rows[5][1], "other bytes")


def elsewhere(rows: list[Row]) -> None:
    rows[5] = ("c", *rows[5][1:])


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        (lose, {"lost": 1}),
        (double, {"duplicated": 1, "misordered": 0}),
        (swap, {"misordered": 1}),
        (forge, {"foreign": 1}),
        (damage, {"lost": 1, "foreign": 1}),
        (elsewhere, {"lost": 1, "foreign": 1}),
    ],
)
def test_the_check_finds_each_fault(fault: Callable[[list[Row]], None], counts: dict[str, int], tmp_path: Path) -> None:
    rows = right_rows()
    fault(rows)
    found = verdict(tmp_path, rows)
    assert not found.right
    assert {what: found.total(what) for what in counts} == counts


def test_a_loss_and_a_double_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    rows = right_rows()
    rows[4] = rows[2]
    found = verdict(tmp_path, rows)
    assert found.total("delivered") == 20
    assert (found.total("lost"), found.total("duplicated")) == (1, 1)
    assert not found.right


def test_the_check_finds_an_incomplete_publication(tmp_path: Path) -> None:
    assert not verdict(tmp_path, right_rows(), put=9).right


def test_the_check_finds_that_nothing_was_delivered(tmp_path: Path) -> None:
    found = verdict(tmp_path, [])
    assert not found.right
    assert found.total("lost") == 10
