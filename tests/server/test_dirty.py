"""No durable part of a topic changes without a note: its methods note their changes, and no other code changes it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from inspect import getmembers, isfunction

import pytest

from pubsub.protocol.topic_settings import EVER, Values
from pubsub.server.topic.compacted import Thinned
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.dirty import DirtyState
from pubsub.server.topic.group import Group
from pubsub.server.topic.group_parts import close_part, enter_group, wait
from pubsub.server.topic.group_rows import GroupRow
from pubsub.server.topic.merge import merge
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import LET_GO
from pubsub.server.topic.settings import DEFAULTS
from pubsub.server.topic.spans import Span
from pubsub.server.topic.stages import Piece, Stage
from pubsub.server.topic.subscription import Subscription, SubscriptionRow, subscription_of
from pubsub.server.topic.topic import Log, Topic
from tests.scripts.test_imports import modules
from tests.server.topics import at_the_end

A, B, C = "a" * 16, "b" * 16, "c" * 16
BOB = subscription_of("bob", SubscriptionRow(5, 5, True, 0, (A, 0), (Span(A, 1),)))
UNUSED = subscription_of("@job", SubscriptionRow(5, 0, True, 0, (A, 0), (Span(A, 1),)))
EVE = subscription_of("eve", SubscriptionRow(6, 6, True, 0, (B, 0), (Span(B, 1),)))
PLACES = Places(3, 2)
STAGE = Stage(1, 1, 3, "try", 7)


def topic() -> Topic:
    log = Log(1, A, end=5, total=40)
    subscriptions = {"bob": deepcopy(BOB), "@job": deepcopy(UNUSED)}
    made = Topic(1, "t", log, {A: log}, {1: 4}, subscriptions, (Span(A, 1),), contested={C: "s3"})
    made.purged[B] = PLACES
    made.stages[STAGE.key] = deepcopy(STAGE)
    return made


def other() -> Topic:
    log = Log(2, B, end=3, total=20)
    return Topic(0, "t", log, {B: log}, {1: 2}, {"eve": deepcopy(EVE)}, (Span(B, 1),))


CHANGING: dict[str, Callable[[Topic], object]] = {
    "go_on_in": lambda t: t.go_on_in(Log(2, B)),
    "append": lambda t: t.append(1, 5, 2, 16),
    "reach": lambda t: t.reach(1, 9),
    "configure": lambda t: t.configure(DEFAULTS.changed(B, 1, Values(EVER, EVER))),
    "remove": lambda t: t.remove(LET_GO),
    "purge": lambda t: t.purge(A, PLACES),
    "forget_purge": lambda t: t.forget_purge(B),
    "begin_order": lambda t: t.begin_order(C),
    "freeze": lambda t: t.freeze("tcp://x:1"),
    "contest": lambda t: t.contest(B, "s2"),
    "settle": lambda t: t.settle(C),
    "keep": lambda t: t.keep(next(iter(t.stages.values())), Piece(1, 0, 1, 5, 8)),
    "drop": lambda t: t.drop(STAGE),
    "subscribe": lambda t: t.subscribe("eve", 7, 7, True, at_the_end(t)),
    "enter": lambda t: t.enter("@all", deepcopy(BOB)),
    "begin_epoch": lambda t: t.begin_epoch("bob", 6),
    "use": lambda t: t.use("@job"),
    "bind": lambda t: t.bind("@job", 5),
    "end": lambda t: t.end("bob"),
    "enter_group": lambda t: enter_group(t, Group("h", GroupRow(1, True, 0, False, 1, 1, 1))),
    "wait": lambda t: wait(t, "bob", (Span(A, 3),)),
    "close_part": lambda t: close_part(t, "bob", 9),
    "pass_over": lambda t: t.pass_over("bob", (Span(A, 3),)),
    "acknowledge": lambda t: t.acknowledge("bob", (A, 2)),
    "trim": lambda t: t.trim(t.open, 2),
    "compact": lambda t: t.compact(t.open, (1,), (Thinned(1, 2),)),
    "merge": lambda t: merge(t, other(), 1),
}
"""Everything that changes a topic."""

ASKING = {"follow", "note_all", "reading", "waiting", "floors"}
"""What only asks, what only notes, and what changes nothing that is stored."""


def test_every_method_of_a_topic_is_tested() -> None:
    methods = {name for name, _ in getmembers(Topic, isfunction) if not name.startswith("_")}
    assert methods == CHANGING.keys() - {"merge", "enter_group", "wait", "close_part"} | ASKING


@pytest.mark.parametrize("name", CHANGING)
def test_a_method_that_changes_a_topic_records_the_change(name: str) -> None:
    changed, before = topic(), topic()
    CHANGING[name](changed)
    assert changed != before
    dirty = {name: value for name, value in vars(changed.dirty).items() if value}
    assert dirty, "a failed commit would leave this in memory, and a sound one not store it"
    assert vars(DirtyState()).keys() == vars(changed.dirty).keys()


def test_a_method_without_a_change_records_nothing() -> None:
    same = topic()
    same.acknowledge("bob", (A, 0))
    same.acknowledge("bob", None)
    same.subscribe("bob", 5, 5, True, at_the_end(same))
    same.settle(B)
    same.use("bob")
    assert not any(vars(same.dirty).values())


OWN = ("pubsub.server.topic.", "pubsub.server.storage.", "pubsub.server.offline.")
"""Rooms where topics are values: described, loaded, and written by a command on a stopped server."""

DURABLE = {field.name for kind in (Topic, Subscription, Cursor, Log) for field in fields(kind)} - {
    "waiting_bytes",
    "measured_total",
    "dirty",
    "policy",
    "bare",
    "expired",
    "expired_below",
    "not_let_go",
    "superseded_since",
}
CALLS = {"add", "append", "clear", "discard", "extend", "pop", "popitem", "remove", "setdefault", "update"}
TOPICS = {"topic", "subscription", "cursor", "log", "entry", "mine", "held", "found", "old", "open"}
"""What a room calls a topic, or a part of one."""


def changes_a_topic(node: ast.AST) -> bool:
    """Whether an expression that is written to is an attribute of a topic, or an item of one."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Attribute) or node.attr not in DURABLE:
        return False
    base = node.value
    return (base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")) in TOPICS


def changed_in(source: str) -> list[int]:
    """Lines of a program that change a topic themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
            targets = [node.func.value]
        each = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        found += [target.lineno for target in each if changes_a_topic(target)]
    return found


def test_modules_change_a_topic_only_by_its_methods() -> None:
    found = {
        name: changed_in(path.read_text())
        for name, path in modules().items()
        if name.startswith("pubsub.server.") and not name.startswith(OWN)
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "topic.frozen = ''",
        "topic.last[1] += 2",
        "del topic.stages[key]",
        "topic.contested.pop(log)",
        "subscription.cursor.backlog, x = rest, 1",
        "cursor.acknowledged = place",
        "topic.open.end = 5",
        "state.topic.subscriptions['bob'] = one",
    ],
)
def test_a_change_without_a_method_is_found(source: str) -> None:
    assert changed_in(source) == [1]
