"""No field of a server's state can be forgotten: a change's alters the store, and a topic's is loaded again
there, travels when the topic moves, and comes back from an export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any, get_args
from zlib import crc32

import pytest
from msgspec import structs

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol import encode_batch
from pubsub.protocol.topic_settings import Amount
from pubsub.server.moves.chunks import Batches, DelayedRow, DelayedRows, Moving, PieceRow, Staged, chunks, read
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.compacted import Thinned
from pubsub.server.topic.consumers import Readers, Session
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delayed import Waiting, delayed_of
from pubsub.server.topic.delivery import Batch
from pubsub.server.topic.description import FIELDS, Description, Fate, understood
from pubsub.server.topic.facts import Facts
from pubsub.server.topic.group import Group, member_of
from pubsub.server.topic.group_rows import CopyRow, GroupRow, HeldRow, MemberRow, RetryRow
from pubsub.server.topic.merge import merge
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import Removal, Round
from pubsub.server.topic.settings import Settings
from pubsub.server.topic.spans import Span
from pubsub.server.topic.stages import Piece, Stage
from pubsub.server.topic.subscription import Subscription, SubscriptionRow, subscription_of
from pubsub.server.topic.topic import Log, Topic
from tests.fields import other, unshown, variants

A, B, C, D = "a" * 16, "b" * 16, "c" * 16, "d" * 16
PUBLISHERS = ["", f"alice/{A}", f"carol/{B}"]
BODY = b"x" * 8
SOONER, LATER = (encode_batch((b"one", b"two"), due=due) for due in (19, 20))

BASE: list[c.Change] = [
    c.PublisherSeen(1, PUBLISHERS[1]),
    c.LogOpened(1, A, 1),
    c.LogOpened(2, B, 1),
    c.LogOpened(3, C, 0, c.LogState.INCOMING),
    c.TopicChanged(1, "t", 1, (Span(A, 1),), ""),
    c.TopicChanged(2, "u", 4, (), ""),
    c.LogOpened(4, "4" * 16, 2),
    *(
        c.BatchAppended(log, offset, 1, 1, offset, 9, 5, offset * 8, BODY)
        for log in (1, 2, 3)
        for offset in range(1, 6)
    ),
    c.LastMoved(1, 1, 9),
    c.SubscriptionChanged(1, "bob", 5, 6, True, 7, (A, 2), (Span(A, 3),)),
    c.WatermarkStored(2, {1: 4}),
    c.WatermarkStored(3, {1: 4}),
    c.TopicContested(1, C, "s2"),
    c.TopicContested(1, D, "s2"),
    c.TopicContested(2, C, "s2"),
    *(c.StageOpened(stage, 0 if stage == 4 else 1, 1, stage, "try", 7) for stage in (1, 2, 4, 5)),
    *(c.PieceStaged(stage, stage * 10 + piece, piece, 1, 5, 7, BODY) for stage in (1, 2, 4, 5) for piece in (1, 2, 3)),
    c.StageDropped(5),
    *(c.DelayedKept(shelf, 20, 1, 30 + row, 1, 5, BODY) for shelf in (1, 40, 41) for row in (1, 2, 3)),
    c.ShelfMerged(40, 1),
    *(
        c.MemberChanged(1, group, who, store, MemberRow(1, 1))
        for group in "hi"
        for who in ("w1", "w2")
        for store in (A, B)
    ),
    *(c.MemberChanged(topic, "h", "w1", A, MemberRow(1, 1)) for topic in (2, 3)),
    *(
        c.CopyKept(topic, group, CopyRow(1, log, offset, 2, PUBLISHERS[1], 3, 4, 8, 5, "", 6), BODY)
        for topic in (1, 2, 51, 52)
        for group in ("xy" if topic > 50 else "hi")
        for log in (A, B)
        for offset in (1, 2)
    ),
]

SETTINGS = Settings(
    B, 5, (A,), (Amount(6, 7, 8), Amount(9, latest=True)), (Amount(8),), conflict=True, dropped=True, tombstones=7
)
PARTS = (Thinned(3, 5, 1, 6),)
REMOVAL = Removal(True, 3, (Round(3, A, 2),))
LEG = Span(A, 2, 4, 3, 8, doubtful=True)
GROUP = GroupRow(7, True, 3, True, 8, 9, 10, True, True, (Span(A, 1, 4), Span(B, 1)))
MEMBER = MemberRow(5, 6, True, 7, (HeldRow(1, A, 3, 5),), "0123456789abcdef")
RETRY = RetryRow(2, A, 4, 6, 3, 1, 2, 9, True, "E%3A%20no")
COPY = CopyRow(1, B, 2, 1, PUBLISHERS[1], 3, 4, len(BODY), 5, "why", 6)
COPIES = [structs.replace(COPY, log=A, offset=offset, state=0, reason="bad") for offset in (1, 2)]
CHANGES: list[c.Change] = [
    c.BatchAppended(1, 10, 2, 1, 20, 10, 6, 80, BODY),
    c.PublisherSeen(2, PUBLISHERS[2]),
    c.LastMoved(1, 1, 10),
    c.LogOpened(9, D, 1, c.LogState.MERGED),
    c.LogMerged(3, 1, 2, 7, 50),
    c.LogTrimmed(1, 3, 7, 50),
    c.LogCompacted(1, (3,), PARTS),
    c.BatchKept(1, 10, 2, 1, 20, 10, 6, 80, BODY),
    c.BodiesDropped(1, 2, 4),
    c.LogUsedUp(1),
    c.BatchesDiscarded(3, 3, True),
    c.TopicGiven(1, "s2"),
    c.WatermarkStored(7, {1: 3}),
    c.WatermarkDropped(2),
    c.TopicChanged(1, "v", 2, (LEG,), "tcp://x"),
    c.SettingsChanged(1, SETTINGS),
    c.RemovalChanged(1, REMOVAL),
    c.OrderChanged(1, C),
    c.TopicPurged(1, A, Places(5, 4)),
    c.SubscriptionChanged(1, "bob", 6, 7, False, 8, (A, 3), (LEG,)),
    c.BatchQuarantined(1, 2),
    c.BatchRepaired(1, 2, 2, 1, 20, 10, 6, 80, BODY),
    c.LogEnded(1, True),
    c.LogReplaced(1, A),
    c.TopicSetAside(1, "why", 77),
    c.TopicContested(1, A, "s3"),
    c.TopicSettled(1, C),
    c.NoteKept("note", "value"),
    c.StageOpened(9, 1, 1, 3, "again", 8),
    c.PieceStaged(1, 15, 5, 2, 6, 8, BODY),
    c.StageMerged(4, 1),
    c.BatchPublished(1, 10, 2, 1, 20, 10, 6, 80, 11),
    c.StagePublished(1),
    c.StageDropped(1),
    c.StagedDeleted(4, 2, False),
    c.DelayedKept(1, 21, 1, 40, 2, 6, BODY),
    c.DelayedGone(40, 20, 1, 31),
    c.ShelfMerged(41, 1),
    c.ShelfDiscarded(41, 1),
    c.ChangeCounted(3, 44),
    c.GroupChanged(1, "g", GROUP),
    c.MemberChanged(1, "g", "w1", A, MEMBER),
    c.MemberGone(1, "h", "w1", A),
    c.RetriesChanged(1, "g", (RETRY,)),
    c.CopyKept(1, "g", COPY, BODY),
    c.CopyChanged(1, "h", COPIES[0]),
    c.CopyGone(1, "h", A, 1),
    c.CopiesMerged(51, 1, "x"),
    c.CopiesDropped(51),
    c.GroupEmptied(1, "h"),
]

NOT_STORED = {("BatchAppended", "sound")}
"""What a reader remembers until the process ends, and finds out for itself afterwards."""

ALIKE = {
    ("TopicSettled", "log"): c.TopicSettled(1, D),
    ("LogReplaced", "log"): c.LogReplaced(1, B),
    ("DelayedGone", "shelf"): c.DelayedGone(41, 20, 1, 31),
    ("DelayedGone", "counter"): c.DelayedGone(40, 20, 1, 32),
    ("ShelfDiscarded", "shelf"): c.ShelfDiscarded(40, 1),
}
"""Another value that is there to be changed, where most would change nothing."""


def dump(path: Path, changes: list[c.Change]) -> list[Any]:
    """Every row of a store after these changes."""
    store = Store(path)
    with store.guarded():
        store.apply(changes)
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table' order by name")]
    rows = [(table, *row) for table in tables for row in store.db.execute(f"select * from {table}")]
    store.close()
    return [row for row in rows if row[:2] != ("meta", "store")]


def test_every_change_is_tested() -> None:
    assert {type(change) for change in CHANGES} == set(get_args(c.Change))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_every_field_of_a_change_alters_the_store(change: c.Change, tmp_path: Path) -> None:
    seen = [dump(tmp_path / "none", BASE), dump(tmp_path / "as it is", [*BASE, change])]
    assert seen[0] != seen[1]
    for name, variant in variants(change):
        if (type(change).__name__, name) in NOT_STORED:
            continue
        different = ALIKE.get((type(change).__name__, name), variant)
        assert dump(tmp_path / name, [*BASE, different]) != seen[1], f"{name} is not stored"


# A topic


def faring(fate: Fate) -> set[str]:
    """The fields of a topic of which the one list says so."""
    return {name for name, fates in FIELDS.items() if fate in fates}


FULL: list[c.Change] = [
    *(c.PublisherSeen(number, name) for number, name in enumerate(PUBLISHERS) if name),
    c.LogOpened(1, A, 1),
    c.LogOpened(2, B, 1),
    c.LogOpened(3, C, 1, c.LogState.MERGED),
    c.LogOpened(4, D, 1, c.LogState.MERGED),
    c.TopicChanged(1, "t", 1, (LEG, Span(B, 2, 5), Span(A, 4)), "tcp://x"),
    *(c.BatchAppended(log, offset, 2, 1, offset, 9, 5, offset * 4 - 4, BODY) for log in (1, 2) for offset in (1, 3, 5)),
    c.LogTrimmed(1, 3, 7, 24),
    c.LogTrimmed(2, 3, 7, 24),
    c.LogEnded(2, True),
    c.LogEnded(4),
    c.LastMoved(1, 1, 9),
    c.LastMoved(1, 2, 3),
    c.SubscriptionChanged(1, "bob", 5, 6, True, 7, (A, 2), (LEG, Span(A, 4))),
    c.SubscriptionChanged(1, "eve", 8, 9, False, 1, (A, 3), ()),
    c.SubscriptionChanged(1, "@job", 5, 9, True, 7, (A, 2), (Span(A, 4),)),
    c.WatermarkStored(3, {1: 4}),
    c.SettingsChanged(1, SETTINGS),
    c.RemovalChanged(1, REMOVAL),
    c.LogCompacted(1, (), PARTS),
    c.OrderChanged(1, C),
    c.TopicPurged(1, A, Places(5, 4)),
    c.TopicContested(1, "e" * 16, "s2"),
    c.StageOpened(1, 1, 2, 3, "try", 7),
    c.PieceStaged(1, 1, 1, 2, 5, 8, BODY),
    c.ShelfMerged(40, 1),
    c.DelayedKept(1, 20, 2, 3, 2, crc32(LATER), LATER),
    c.DelayedKept(40, 19, 1, 8, 2, crc32(SOONER), SOONER),
    c.GroupChanged(1, "g", GROUP),
    c.MemberChanged(1, "g", "w1", A, MEMBER),
    c.RetriesChanged(1, "g", (RETRY,)),
    c.CopyKept(1, "g", COPY, BODY),
    c.SubscriptionChanged(1, "%g:1", 7, 0, True, 1, (A, 2), (Span(A, 4),)),
]


def full_topic() -> Topic:
    """What FULL describes: no field, at any depth, has its default everywhere."""
    open_log = Log(1, A, 3, 7, 24)
    topic = Topic(1, "t", open_log, {A: open_log, B: Log(2, B, 3, OFFSET_MAX, 24, OFFSET_MAX - 7)})
    topic.last = {1: 9, 2: 3}
    topic.subscriptions = {
        "bob": Subscription(5, True, Cursor(7, (A, 2), (LEG, Span(A, 4))), Session(6)),
        "eve": Subscription(8, False, Cursor(1, (A, 3), ()), Session(9)),
        "@job": Subscription(5, True, Cursor(7, (A, 2), (Span(A, 4),)), Readers(used=True, checkpoint=4)),
    }
    topic.history = (LEG, Span(B, 2, 5), Span(A, 4))
    topic.watermarks = {3: {1: 4}}
    topic.merged = {C, D}
    topic.ended, topic.restored = {B, D}, (B,)
    topic.frozen = "tcp://x"
    topic.settings = SETTINGS
    topic.removal = REMOVAL
    topic.compacted = {A: PARTS}
    topic.order = C
    topic.purged = {A: Places(5, 4)}
    topic.contested = {"e" * 16: "s2"}
    later = Waiting(20, 2, 3, 2, crc32(LATER), len(LATER), 1)
    topic.groups = {
        "g": Group("g", GROUP, {("w1", A): member_of(MEMBER)}, Facts([RETRY]), {(COPY.log, COPY.offset): COPY})
    }
    topic.subscriptions["%g:1"] = Subscription(7, True, Cursor(1, (A, 2), (Span(A, 4),)), Readers())
    topic.delayed = delayed_of([later, Waiting(19, 1, 8, 2, crc32(SOONER), len(SOONER), 40)], (40,))
    stage = Stage(1, 2, 3, "try", 8)
    stage.add(Piece(1, 1, 2, 5, 8))
    topic.stages = {stage.key: stage}
    return topic


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    with store.guarded():
        store.apply(FULL)
    yield store
    store.close()


def test_the_sample_shows_every_field() -> None:
    """Who adds a field adds it to the sample, and with that to every test below."""
    memory = {f"Topic.{name}" for name, fate in FIELDS.items() if fate is Fate.MEMORY}
    memory |= {
        "Cursor.handed",
        "Cursor.far",
        "Cursor.expired",
        "Cursor.expired_below",
        "Cursor.short",
        "Log.bare",
        "Log.expired",
    }
    memory |= {"Group.changed", "Group.dirty", "Group.dead"}  # The last one counts copies that are dead letters.
    assert unshown(full_topic()) == memory - {"Topic.dirty"} | {"Policy.default", "Policy.settings"}


def test_the_list_has_every_field_of_a_topic() -> None:
    assert [one.name for one in fields(Topic)] == list(FIELDS)


def test_every_field_of_a_topic_is_stored_and_loaded(store: Store) -> None:
    assert list(store.topics()) == [full_topic()]


def test_every_field_of_a_topic_moves(store: Store) -> None:
    topic, numbers = full_topic(), count(1)
    moving, arrived = Moving(), []
    for chunk in chunks(topic, store.reader, PUBLISHERS):
        arrived.append(read(chunk, moving, lambda: next(numbers)))
    assert {one.name for one in fields(Description)} == faring(Fate.TRAVELS) - {"stages", "delayed"}
    there = understood("t", moving, PUBLISHERS.index, lambda: 3)  # Log numbers are given in the same order here.
    for name in faring(Fate.TRAVELS) - {"stages", "delayed"}:
        assert getattr(there, name) == getattr(topic, name), f"{name} does not travel"
    (staged,) = [one for one in arrived if isinstance(one, Staged)]
    assert staged == Staged(PUBLISHERS[2], 3, "try", 8, [PieceRow(1, 2, 5, BODY)])
    (rows,) = [one for one in arrived if isinstance(one, DelayedRows)]
    later = DelayedRow(20, PUBLISHERS[2], 3, 2, crc32(LATER), LATER)
    assert rows.rows == [DelayedRow(19, PUBLISHERS[1], 8, 2, crc32(SOONER), SOONER), later]
    for piece, log in zip([one for one in arrived if isinstance(one, Batches)], topic.logs.values(), strict=True):
        expected = list(store.reader.batches(log.number, log.low, log.end))
        assert [Batch(*structs.astuple(structs.replace(one, publisher=1)), sound=True) for one in piece.batches] == [
            replace(batch, sound=True) for batch in expected
        ]
        assert {one.publisher for one in piece.batches} == {PUBLISHERS[1]}


def test_every_field_of_a_joined_topic_counts() -> None:
    def joined(name: str = "") -> tuple[Topic, Any]:
        mine = Topic(7, "t", Log(9, "f" * 16), {})
        mine.logs = {mine.open.id: mine.open}
        mine.history, mine.last, mine.subscriptions = (
            (Span(mine.open.id, 1),),
            {1: 3},
            {"bob": subscription_of("bob", SubscriptionRow(1, 1, True, 1, (A, 1), ()))},
        )
        theirs = full_topic()
        held = getattr(theirs, name) if name else None
        if name == "watermarks":
            theirs.watermarks = other(theirs.watermarks)
        elif isinstance(held, dict | set):
            held.pop() if isinstance(held, set) else held.popitem()
        elif isinstance(held, Settings | Removal):
            setattr(theirs, name, other(held))
        elif isinstance(held, tuple):
            setattr(theirs, name, held[:-1])
        elif isinstance(held, str):
            setattr(theirs, name, other(held))
        elif isinstance(held, Log):
            setattr(theirs, name, theirs.logs[B])
        return mine, merge(mine, theirs, 20)

    plain = joined()
    for name in faring(Fate.MERGED):
        assert joined(name) != plain, f"a join does not look at {name}"


def test_every_field_of_a_subscription_survives_an_export(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.guarded():
        store.apply([change for change in FULL if not isinstance(change, c.LogEnded)])
    store.close()
    export_tree(tmp_path / "store", tmp_path / "tree")
    import_tree(tmp_path / "again", tmp_path / "tree")
    store = Store(tmp_path / "again")
    (topic,) = store.topics()
    publishers = store.publishers()
    store.close()
    full = full_topic()
    assert faring(Fate.EXPORTED) == {"name", "last", "subscriptions", "history", "settings", "removal", "delayed"}
    assert topic.name == full.name
    assert (topic.settings, topic.removal) == (full.settings, full.removal)
    kept = sorted((row.due, publishers[row.publisher], *row[2:5]) for row in topic.delayed.rows.values())
    assert kept == sorted((row.due, PUBLISHERS[row.publisher], *row[2:5]) for row in full.delayed.rows.values())
    assert sum((span.high or topic.open.end) - span.low for span in topic.history)
    assert {publishers[number]: last for number, last in topic.last.items()} == {
        PUBLISHERS[number]: last for number, last in full.last.items()
    }
    assert topic.subscriptions.keys() == full.subscriptions.keys() - {"%g:1"}  # An export has no groups.
    for name, subscription in topic.subscriptions.items():
        mine, theirs = subscription.row(), full.subscriptions[name].row()
        assert mine._replace(acknowledged=(A, 0), backlog=()) == theirs._replace(acknowledged=(A, 0), backlog=())
        assert bool(mine.backlog) == bool(theirs.backlog)
