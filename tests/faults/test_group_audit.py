"""The auditor of consumer groups objects to each broken promise, and to nothing else."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.group_audit import audit

Row = tuple[int, int, int, int]
"""Of an effect: the number, the mark, the attempt and the time."""

CLEAN: list[Row] = [(1, 0, 1, 10), (2, 0, 1, 20), (3, 0, 1, 30)]


def write(
    directory: Path,
    members: dict[str, Iterable[Row]],
    *,
    strict: bool = True,
    keyed: bool = False,
    before: bool = False,
    redriven: bool = False,
    begun: str = "",
) -> None:
    """Three messages of one key, and what members have in their databases."""
    facts = {"strict": strict, "keyed": keyed, "before": before, "redriven": redriven}
    (directory / "groups.json").write_text(json.dumps([{"topic": "t", "group": "g", **facts}]))
    rows = [{"topic": "t", "number": number, "key": "k"} for number in (1, 2, 3)]
    (directory / "puts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "begun").mkdir()
    (directory / "begun" / "m.log").write_text(begun)
    for name, effects in members.items():
        place = directory / f"{name}.db"
        place.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(place)) as db, db:
            db.execute("create table effects (n integer primary key, name text, number, doubtful, attempt, at)")
            statement = "insert into effects (name, number, doubtful, attempt, at) values ('g', ?, ?, ?, ?)"
            db.executemany(statement, effects)


def kinds(directory: Path) -> list[str]:
    return [one.kind for one in audit(directory).objections]


def test_effects_of_several_members_and_of_a_lost_directory_are_joined(tmp_path: Path) -> None:
    write(tmp_path, {"clients/a": CLEAN[:1], "clients/b": CLEAN[1:2], "lost/c-1/c": CLEAN[2:]}, keyed=True)
    found = audit(tmp_path)
    assert found.objections == []
    assert found.figures["g"]["effects"] == found.figures["g"]["puts"] == 3


@pytest.mark.parametrize(
    ("strict", "more", "expected"),
    [
        (True, (2, 0, 1, 40), ["doubled"]),
        (True, (2, 1, 2, 40), ["doubled", "marked"]),
        (False, (2, 0, 2, 40), ["untold"]),
        (False, (2, 1, 2, 40), []),
        (True, (4, 0, 1, 40), ["unknown"]),
    ],
)
def test_a_second_effect_is_judged_by_the_promise_of_its_group(
    tmp_path: Path, strict: bool, more: Row, expected: list[str]
) -> None:
    write(tmp_path, {"clients/a": CLEAN, "clients/b": [more]}, strict=strict)
    assert kinds(tmp_path) == expected


def test_a_message_without_an_effect_is_missing(tmp_path: Path) -> None:
    write(tmp_path, {"clients/a": CLEAN[:2]}, strict=False)
    assert kinds(tmp_path) == ["missing"]


@pytest.mark.parametrize(
    ("keyed", "redriven", "expected"), [(True, False, ["order"]), (False, False, []), (True, True, [])]
)
def test_effects_of_a_key_are_in_order_over_all_members(
    tmp_path: Path, keyed: bool, redriven: bool, expected: list[str]
) -> None:
    write(tmp_path, {"clients/a": [(1, 0, 1, 25), (3, 0, 1, 30)], "clients/b": [(2, 0, 1, 20)]}, keyed=keyed,
          redriven=redriven)  # fmt: skip
    assert kinds(tmp_path) == expected


def test_an_open_group_keeps_the_order_up_to_a_mark(tmp_path: Path) -> None:
    write(tmp_path, {"clients/a": [(1, 0, 1, 10), (2, 1, 1, 40), (3, 0, 1, 30)]}, strict=False, keyed=True)
    assert kinds(tmp_path) == []


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("1 g 1 1 0\n2 g 1 1 0\n", ["begun twice"]),
        ("1 g 1 1 0\n2 g 1 2 0\n", []),
        ("1 g 1 1 0\n2 g 1 1 1\n", []),
        ("1 g 1 1 1\n2 g 1 1 0\n", []),
        ("1 g 1 2 0\n2 g 1 1 0\n", ["begun twice"]),
    ],
)
def test_a_first_attempt_without_the_mark_is_the_first(tmp_path: Path, begun: str, expected: list[str]) -> None:
    write(tmp_path, {"clients/a": CLEAN}, before=True, begun=begun)
    assert kinds(tmp_path) == expected


def test_effects_of_a_killed_process_are_read_from_its_log(tmp_path: Path) -> None:
    write(tmp_path, {"clients/a": []})
    db = sqlite3.connect(tmp_path / "clients" / "a.db")
    db.execute("pragma journal_mode=wal")
    db.executemany("insert into effects (name, number, doubtful, attempt, at) values ('g', ?, ?, ?, ?)", CLEAN)
    db.commit()
    assert (tmp_path / "clients" / "a.db-wal").stat().st_size
    assert kinds(tmp_path) == []
    db.close()
