"""No field of a durable change can be forgotten: each leaves its mark in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from pubsub.client.core import changes as c
from pubsub.client.storage.store import Store
from tests.fields import variants

A, B = "a" * 16, "b" * 16

BASE: list[c.Change] = [
    *(c.RowAdded(topic, counter, 3, 1, 0, 7, b"body") for counter, topic in ((4, "t"), (5, "u"), (6, "t"))),
    c.ChainMoved("t", 3, 0, A),
    *(change for topic in ("t", "u") for change in (c.Intended(topic, True), c.Confirmed(topic, 2, (A, 1), A))),
    *(c.DeadLettered(topic, f"{A}.1", f"{A}.2", A, 1, 5, None, "lost", 0, 6.0) for topic in ("t", "u", "t")),
    *(c.DeadLettered(topic, f"{A}.3", f"{A}.3", A, 1, 5, b"dead", "failed", 5, 6.0, b"key") for topic in ("t", "u")),
    *(
        c.PutAside(number, topic, f"{A}.{number}", A, number, 5, b"aside", b"", b"", False, b"", 1, 0, 6.0, 1.0)
        for number, topic in ((1, "t"), (2, "u"))
    ),
    c.PatternIntended("orders.>", True, 4),
    c.PatternIntended("audit.>", True, 4),
    *(c.GroupJoined(member, "t", f"g{member}", A, 2, A, "{}", "[]") for member in (1, 2)),
    *(c.GroupDone(member, log, -1, low, low + 2) for member in (1, 2) for log in (A, B) for low in (3, 9)),
    *(c.GroupDone(1, A, 0, low, low + 2) for low in (3, 9)),
    *(c.GroupBegun(member, A, place, 1) for member in (1, 2) for place in (7, 8)),
    *(c.DeletionNoted(topic, "noted") for topic in ("t", "u", "t")),
]

CHANGES: list[c.Change] = [
    c.RowAdded("t", 9, 6, 2, 1, 8, b"other body"),
    c.RowsRemoved([4]),
    c.RowUnchained(4),
    c.ChainMoved("t", 6, 1, B),
    c.CallsDiscarded(["a"]),
    c.Intended("t", False),
    c.PatternIntended("orders.*", False, 6, 5),
    c.PatternConfirmed("orders.>", 6),
    c.Confirmed("t", 3, (B, 4), B),
    c.Taken("t", (B, 5), {A: 6}),
    c.Tried("t", (B, 6), 2),
    c.PutOff("t", (B, 6), 8.0, 2.0, 1),
    c.PutAside(3, "t", f"{B}.6", B, 3, 6, b"body", b"key", b"headers", True, b"lane", 2, 1, 8.0, 2.0),
    c.WaitingChanged(1, 2, 1, 8.0, 2.0),
    c.WaitingTried(1, 2),
    c.WaitingEnded(1),
    c.WaitingDropped("t"),
    c.Redriven(4, 4),
    c.LettersRemoved([1]),
    c.DeadLettered("t", f"{B}.1", f"{B}.2", B, 2, 6, b"body", "failed", 3, 7.0, b"key", b"headers"),
    c.DeletionNoted("t", "reason"),
    c.Told("t", 1, 1),
    c.LossRaised("t"),
    c.Renewed(B),
    c.GroupJoined(3, "t", "g", A, 5, B, '{"a":1}', "[1]"),
    c.GroupOpened(1, False, 3),
    c.GroupDone(1, A, -1, 5, 8, (9,)),
    c.GroupTold(1, A, -1, ((4, 5),)),
    c.GroupBegun(1, A, 9, 2),
    c.GroupAttemptsTold(1, ((A, 7),)),
    c.GroupForgotten(1),
]

ALIKE = {
    ("RowsRemoved", "counters"): c.RowsRemoved([5]),
    ("RowUnchained", "counter"): c.RowUnchained(5),
    ("CallsDiscarded", "calls"): c.CallsDiscarded(["b"]),
    ("Confirmed", "topic"): c.Confirmed("u", 3, (B, 4), B),
    ("PatternConfirmed", "pattern"): c.PatternConfirmed("audit.>", 6),
    ("Taken", "topic"): c.Taken("u", (B, 5), {A: 6}),
    ("Tried", "topic"): c.Tried("u", (B, 6), 2),
    ("WaitingDropped", "topic"): c.WaitingDropped("u"),
    ("LettersRemoved", "letters"): c.LettersRemoved([2]),
    ("LossRaised", "topic"): c.LossRaised("u"),
    ("GroupDone", "replaced"): c.GroupDone(1, A, -1, 5, 8, (3,)),
    ("GroupTold", "ranges"): c.GroupTold(1, A, -1, ((4, 6),)),
    ("GroupAttemptsTold", "places"): c.GroupAttemptsTold(1, ((A, 8),)),
    ("Told", "topic"): c.Told("u", 1, 1),
}
"""Another value that is there to be changed, where most would change nothing."""


def dump(path: Path, changes: list[c.Change]) -> list[Any]:
    """Return every row of a store after these changes, without the random values of a new store."""
    store = Store(path / "billing.db")
    statement = "insert into pubsub_calls (id, topic, request, named, made) values (?, '$calls.t', x'00', 1, 1.0)"
    store.db.executemany(statement, [("a",), ("b",)])
    store.commit([*changes])
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table' order by name")]
    rows = [(table, *row) for table in tables for row in store.db.execute(f"select * from {table}")]
    store.close()
    fresh = ("pubsub_state", "store")
    return [row for row in rows if row[:2] != fresh or any(isinstance(change, c.Renewed) for change in changes)]


def test_every_change_is_tested() -> None:
    assert {type(change) for change in CHANGES} == set(get_args(c.Change))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_every_field_of_a_change_alters_the_store(change: c.Change, tmp_path: Path) -> None:
    seen = [dump(tmp_path / "none", BASE), dump(tmp_path / "as it is", [*BASE, change])]
    assert seen[0] != seen[1]
    for name, variant in variants(change):
        different = ALIKE.get((type(change).__name__, name), variant)
        assert dump(tmp_path / name, [*BASE, different]) != seen[1], f"{name} is not stored"
