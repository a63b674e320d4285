"""A server's memory against its store: its memory must equal the state that a new process would load from the disk.

The comparison walks both cores, attribute by attribute, and knows no field by name. It compares each attribute of a
core, except the ones named here as only in memory, with the reason for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pubsub.server.group_commit import GroupCommit
from pubsub.server.storage.store import Store
from tests.simulation.disk import NAME, Disk, disks

if TYPE_CHECKING:
    from tests.simulation.nodes import ServerNode

SHOWN_MAX: Final = 3

MEMORY_ONLY: Final[dict[str, dict[str, str]]] = {
    "ServerCore": {
        "sole_owner": "questions that are open; who asked asks again",
        "puts": "has nothing but what it was given",
        "gets": "what of this loop is handed out",
        "groups": "messages of this loop; members repeat them",
        "group_memory": "offers and polls bind nothing; who is silent is found again",
        "subscriptions": "has nothing but what it was given",
        "reads": "ranges that are asked for; clients repeat it",
        "replays": "the pace of readers far behind: a new process begins with a full allowance",
        "sinks": "has nothing but what it was given",
        "admission": "has nothing but what it was given",
        "backlogs": "found again at a put; a start may log a warning once more",
        "unconfirmed": "answers that wait; clients repeat what they asked",
        "reports": "the last report, and when it was made",
        "moves": "transfers begin again with an offer; what of them is stored is compared by `_stored_for_moves`",
    },
    "State": {
        "settings": "given, not stored",
        "stamps": "the clock: goes on while the process runs, and never below what is stored",
        "reader": "a cache over the store itself",
        "incarnation": "each start has a higher one",
        "started": "a time of this process",
        "_random": "chance",
        "long_polls": "GETs that wait; clients repeat them",
        "uncommitted": "what is not committed yet",
        "counters": "counted since the start",
        "full": "found out again at the next commit",
        "damaged": "found out again at the next read",
        "disk": "a function",
        "process": "a function",
        "measures": "histograms since the start, where somebody is told",
        "replies": "not sent yet; clients repeat what they asked",
        "announcements": "everything is announced after a start",
        "count_change": "the first commit after a start counts",
        "left": "of this life: proxies hear all that a store holds before they pass anything on to its next one",
        "newly_contested": "of this loop",
        "quotas": "buckets are full after a start",
        "_next_topic": "at least what the store says: see `_at_least`",
        "_next_log": "at least what the store says: see `_at_least`",
        "next_watermark": "at least what the store says: see `_at_least`",
    },
    "Topic": {
        "not_let_go": "found again",
        "superseded_since": "found again",
        "waiting_bytes": "measured when it matters; an upper bound",
        "measured_total": "goes with waiting_bytes",
        "dirty": "what is not committed yet",
        "watermarks": "loaded where a span refers to them: see `_watermarks`; others go at the next look",
    },
    "Group": {
        "members": "compared by `_members`: the number of a member's message is stored with a change only",
        "dirty": "what is not committed yet",
        "changed": "what is not committed yet",
    },
    "Facts": {"version": "counts changes of this process"},
    "Delayed": {"_order": "the rows as a heap"},
    "Delays": {
        "_due": "every topic is looked at after a start",
        "_discarded": "found again",
        "_paused_until": "a time of this process",
    },
    "Log": {
        "bare": "found again",
        "expired": "found again",
    },
    "Cursor": {
        "far": "found again with the next answer",
        "expired": "counted since the start",
        "expired_below": "what is counted",
        "handed": "what was handed out since the start: a new process takes all that is there for handed out",
    },
    "Contested": {
        "_started": "a time of this process",
        "_recorded_at": "since when what proxies say may settle a dispute: after a start, since the start",
    },
    "Publishers": {"_uncommitted": "what is not committed yet"},
    "Undelivered": {"_uncommitted": "what is not committed yet"},
    "Operations": {
        "actions": "functions",
    },
    "Retention": {
        "compaction": "a pass begins again after a start",
        "_due": "every topic is looked at after a start",
        "_allowed": "asked for again",
        "_over": "found again",
        "_generation": "of this process's questions",
        "_new_batches": "of this loop",
        "_new_bytes": "of this loop",
        "_paused_until": "a time of this process",
        "_discarded": "compared by `_stored_for_moves`",
        "_discarded_low": "a start looks at all of a log again",
        "_watermarks": "copies of last counters that are to be deleted, one a loop: see `_watermarks`",
    },
    "Staging": {
        "_dropped": "compared by `_stored_for_moves`",
        "_look_at": "a time of this process",
        "_paused_until": "a time of this process",
        "_next_stage": "at least what the store says: see `_at_least`",
        "_next_piece": "at least what the store says: see `_at_least`",
    },
    "Proxies": {
        "_incarnation": "each start has a higher one",
        "_settings": "given, not stored",
        "_stamps": "the clock",
        "all": "connections",
        "answered_once": "of this process",
        "_began": "a time of this process",
        "out": "not sent yet",
        "reconnect": "connections",
    },
}
"""Attributes that a new process does not have alike, by class, and why that does no harm."""


def differences(memory: Any, loaded: Any, only: dict[str, dict[str, str]], path: str = "") -> Iterator[str]:
    """Where two values differ: attributes of objects of this project, items of containers, anything else by `==`.

    Args:
        only: attributes that are not compared, by the name of their class.
    """
    yield from _differences(memory, loaded, only, path, set())


def _differences(memory: Any, loaded: Any, only: dict[str, dict[str, str]], path: str, seen: set[int]) -> Iterator[str]:
    if callable(memory) and callable(loaded):
        return
    if type(memory) is not type(loaded):
        yield f"{path} is {memory!r:.120} in memory and {loaded!r:.120} in the store"
    elif type(memory).__module__.startswith("pubsub."):
        if id(memory) in seen:
            return
        seen.add(id(memory))
        left_out = only.get(type(memory).__name__, {})
        for name in _attributes(memory):
            if name not in left_out:
                yield from _differences(
                    getattr(memory, name), getattr(loaded, name), only, f"{path}.{name}" if path else name, seen
                )
    elif isinstance(memory, dict):
        for key in sorted(memory.keys() | loaded.keys(), key=repr):
            if key not in loaded:
                yield f"{path}[{key!r}] = {memory[key]!r:.120} is in memory only"
            elif key not in memory:
                yield f"{path}[{key!r}] = {loaded[key]!r:.120} is in the store only"
            else:
                yield from _differences(memory[key], loaded[key], only, f"{path}[{key!r}]", seen)
    elif isinstance(memory, list | tuple | deque):
        if len(memory) != len(loaded):
            yield f"{path} is {memory!r:.200} in memory and {loaded!r:.200} in the store"
        else:
            for index, (one, other) in enumerate(zip(memory, loaded, strict=True)):
                yield from _differences(one, other, only, f"{path}[{index}]", seen)
    elif memory != loaded:
        yield f"{path} is {memory!r:.120} in memory and {loaded!r:.120} in the store"


def _attributes(value: Any) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if hasattr(value, "__dict__"):
        return sorted(vars(value))
    return [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]


def check(node: ServerNode, of: ServerNode | None = None) -> list[str]:
    """The differences between a running server's memory and the state that a new process would load, in a few lines.

    Call it between two turns. Acknowledgements that wait for the next commit are omitted.

    Args:
        of: the other member of the same server, whose disk is compared instead of its own.
    """
    stored = node if of is None else of
    known, path = disks(), f"/{node.name}+"
    disk = known.disks[f"{node.name}+"] = Disk()
    copy = stored.host.disk.copy()
    disk.restore({path + name.removeprefix(f"/{stored.name}"): data for name, data in copy.items()})
    try:
        store = Store(Path(path), vfs=NAME)
        host = node.host
        fresh = GroupCommit(
            node.settings, store, node.group_commit.reserve, Random(0), host.monotonic(), host.wall()
        ).core
        core = node.core
        fresh.proxies.address, fresh.proxies.member = core.proxies.address, core.proxies.member
        waiting = {f"topics[{topic!r}].subscriptions[{who!r}]." for topic, who in core.state.uncommitted._acknowledged}
        # The state first, and each room as the core's: they are reached from one another too.
        seen = {id(getattr(core, name)) for name in MEMORY_ONLY["ServerCore"]}
        found = list(_differences(core.state, fresh.state, MEMORY_ONLY, "", seen))
        found += _differences(core, fresh, MEMORY_ONLY, "", seen)
        found = [line for line in found if not any(line.startswith(one) for one in waiting)]
        found += _at_least(core, fresh)
        if fresh.state.uncommitted._undo:
            found.append("a start has done what a full disk would take back, though its store holds it")
        found += _stored_for_moves(core, store)
        found += _watermarks(core, store)
        found += _members(core, fresh)
        store.close()
    finally:
        del known.disks[f"{node.name}+"]
    whose = "" if of is None else f" against {of.name}"
    return [f"{node.name}{whose}: {line}" for line in found[:SHOWN_MAX]]


def _at_least(core: Any, fresh: Any) -> Iterator[str]:
    """A number that is in use is never given out again."""
    for one, other, names in (
        (core.state, fresh.state, ("_next_topic", "_next_log", "next_watermark")),
        (core.staging, fresh.staging, ("_next_stage", "_next_piece")),
    ):
        for name in names:
            if getattr(one, name) < getattr(other, name):
                yield f"{name} is {getattr(one, name)} in memory, and {getattr(other, name) - 1} is used in the store"


def _stored_for_moves(core: Any, store: Store) -> Iterator[str]:
    """A stored row without a topic is being received, or will be deleted; and no other row is."""
    incoming = core.moves.receiving.incoming.values()
    arriving = {number for one in incoming for number in one.opened}
    for number in store.discarded():
        if number not in arriving and number not in core.retention._discarded:
            yield f"log number {number} is nobody's, and will not be deleted before the next start"
    staged = {stage.number for one in incoming for stage in one.stages.values()}
    staged |= {number for number, _ in core.staging._dropped}
    for number, _ in store.dropped_stages():
        if number not in staged:
            yield f"stage {number} is nobody's, and will not be deleted before the next start"


def _members(core: Any, fresh: Any) -> Iterator[str]:
    """Members of consumer groups: what they hold is in the store, and no number there is above the one in memory."""
    for topic in core.state.topics.values():
        loaded = fresh.state.topics.get(topic.name)
        for name, group in topic.groups.items():
            stored = loaded.groups[name].members if loaded is not None and name in loaded.groups else {}
            for key in sorted(group.members.keys() | stored.keys()):
                ours, theirs = (list(some[key].pieces()) if key in some else [] for some in (group.members, stored))
                if ours != theirs:
                    yield f"{topic.name}: {key} of {name} holds {ours!r:.150} in memory, {theirs!r:.150} in the store"
                if key in stored and (key not in group.members or stored[key].number > group.members[key].number):
                    yield f"{topic.name}: {key} of group {name} has number {stored[key].number} in the store"


def _watermarks(core: Any, store: Store) -> Iterator[str]:
    """Copies of last counters: each that a span refers to is in the store, as it is in memory."""
    stored: dict[int, dict[int, int]] = {}
    for number, publisher, counter in store.db.execute("select id, publisher, counter from watermark"):
        stored.setdefault(number, {})[publisher] = counter
    kept = set(core.retention._watermarks) | {
        number for topic in store.topics(quarantined=True) for number in topic.watermarks
    }
    for number in (
        stored.keys() - kept - {number for topic in core.state.topics.values() for number in topic.watermarks}
    ):
        yield f"copy {number} of last counters is used by no span, and is in the store for ever"
    for topic in core.state.topics.values():
        for number, counters in topic.watermarks.items():
            if counters != stored.get(number):
                yield f"{topic.name}: copy {number} of last counters is {counters} in memory and {stored.get(number)}"
        spans = [
            *topic.history,
            *(span for subscription in topic.subscriptions.values() for span in subscription.cursor.backlog),
        ]
        for number in {span.watermark for span in spans} - topic.watermarks.keys() - {0}:
            yield f"{topic.name}: a span refers to copy {number} of last counters, which is not there"
