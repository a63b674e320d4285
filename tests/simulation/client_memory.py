"""A client's memory against its store: its memory must equal the state that its next start would load from the disk.

The comparison covers the stored parts: the unremoved puts, each topic's chain, the subscriptions with positions and
last taken counters, and the unreported losses. Parts only in memory come again from the service: the prefetch, the log
and proxy of the last answer, and the waiting calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from pubsub.client.core.group_life import ENDED
from pubsub.client.session_parts import load_core
from pubsub.client.storage.postgres.looking import Looking
from pubsub.client.storage.postgres.statements import translate
from pubsub.client.storage.store import Store
from tests.simulation.disk import NAME, Disk, disks

if TYPE_CHECKING:
    from tests.simulation.clients import ClientNode

SHOWN_MAX = 3


def check(node: ClientNode, *, counters: bool = True) -> list[str]:
    """The differences between a client's memory and the state that its next start would load, in a few lines.

    Args:
        node: the client.
        counters: the last taken counters are compared too.

    Call it between two turns. After a refused commit the disk may have either state, and is not compared.
    """
    session = node.session
    if session.closed or session.store.failed:
        return []
    if node.database:
        beside = Beside(node, session.store)
        return _compared(node, beside, counters=counters) if beside.is_comparable(session) else []
    known, path = disks(), f"/{node.name}+"
    disk = known.disks[f"{node.name}+"] = Disk()
    copy = node.host.disk.copy()
    disk.restore({path + name.removeprefix(f"/{node.name}"): data for name, data in copy.items()})
    try:
        store = Store(Path(path) / f"{node.client}.db", session.store._boot, vfs=NAME)
        found = _compared(node, store, replace(session.settings, directory=Path(path)), counters=counters)
        store.close()
    finally:
        del known.disks[f"{node.name}+"]
    return found


def _compared(node: ClientNode, store: Any, settings: Any = None, *, counters: bool) -> list[str]:
    """The differences between a client's memory and a store; `settings`: with another directory."""
    session = node.session
    milliseconds, used = store.state("milliseconds"), store.known_milliseconds()
    fresh = load_core(session.name, settings or session.settings, store, session.clock, Random(0))
    found = [*_outbox(session.core, fresh), *_subscriptions(session.core, fresh, counters=counters)]
    found += _memberships(session.core, fresh)
    ours, theirs = _waiting(session.core), _waiting(fresh)
    if ours != theirs:
        found.append(f"the waiting messages are {ours!r:.200} in memory and {theirs!r:.200} in the store")
    if session.core.numbers._milliseconds > milliseconds:
        found.append(f"numbers of millisecond {session.core.numbers._milliseconds}, and {milliseconds} is stored")
    elif session.core.numbers.known != used:
        found.append(f"the numbers' milliseconds are {session.core.numbers.known} in memory and {used} in the store")
    if session.core.publisher != fresh.publisher:
        found.append(f"the publisher is {session.core.publisher} in memory and {fresh.publisher} in the store")
    return [f"{node.name}: {line}" for line in found[:SHOWN_MAX]]


class Beside(Looking):
    """A client's state in a simulated database, read beside the client's own connection."""

    def __init__(self, node: ClientNode, store: Any) -> None:
        self._client, self.path, self.database = node.client, "beside", store.database
        self._database = node.world.databases.named(node.database)

    def is_comparable(self, session: Any) -> bool:
        """Return False if the process has lost its connection or its life, or its database is older than the process.

        It does not know that before its next statement, and nothing follows from its memory until then.
        """
        connection, mine = session.store._connection, session.store._life
        if session.unusable or connection.is_lost:
            return False
        return bool(self.state("life") == mine.token and self.state("commits") >= mine.commits)

    def query(self, statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return list(self._database.read(translate(statement, self._client), tuple(parameters)))

    def state(self, key: str) -> Any:
        found = self._database.read(f"select {key} from pubsub.state where client = %s", (self._client,))
        return found[0][0]

    def sync(self) -> None:
        """Nothing of a comparison is written."""

    def save_milliseconds(self, milliseconds: int) -> None:
        """Nothing of a comparison is written."""


def _waiting(core: Any) -> list[tuple[object, ...]]:
    return [(row.number, row.topic, row.lane, row.size, row.attempts, row.later) for row in core.waiting.rows()]


def _memberships(core: Any, fresh: Any) -> Iterator[str]:
    """Memberships in consumer groups: their values, done ranges and begun attempts."""
    for topic, name in sorted(core.members.keys() | fresh.members.keys()):
        one, other = core.members.get((topic, name)), fresh.members.get((topic, name))
        if one is None or other is None:
            if one is None or (one.number and one.life != ENDED):  # The row of an ended group is gone.
                yield f"group {name} of {topic} is {'in the store' if one is None else 'in memory'} only"
            continue
        for fact in ("number", "store", "values", "left"):
            if getattr(one, fact) != getattr(other, fact):
                yield f"group {name}: {fact} is {getattr(one, fact)!r} in memory, {getattr(other, fact)!r} in the store"
        if one._rows != other._rows and not one._stale_lanes:
            yield f"group {name}: done is {one._rows!r:.150} in memory, and {other._rows!r:.150} in the store"
        begun = {place: attempts for place, attempts in other.begun.items() if place not in one._told}
        ours = {place: attempts for place, attempts in one.begun.items() if place not in one._told}
        if begun != ours | {place: attempts for place, attempts in begun.items() if place in one._ahead}:
            yield f"group {name}: begun is {ours!r:.150} in memory, and {begun!r:.150} in the store"


def _rows(rows: Any) -> list[tuple[int, ...]]:
    return [(row.counter, row.previous, row.count, row.sole_owner, row.checksum, row.size) for row in rows]


def _outbox(core: Any, fresh: Any) -> Iterator[str]:
    for topic in sorted(core.outbox.chains.keys() | fresh.outbox.chains.keys()):
        chain, loaded = core.outbox.chain(topic), fresh.outbox.chain(topic)
        finished = [row for row in core.outbox._finished if row.topic == topic]  # They leave the store some at a time.
        ours, theirs = _rows([*finished, *chain.rows]), _rows(loaded.rows)
        if ours != theirs:
            yield f"puts to {topic} are {ours!r:.200} in memory and {theirs!r:.200} in the store"
        if chain.previous != loaded.previous:
            yield f"the chain of {topic} ends at {chain.previous} in memory and at {loaded.previous} in the store"
        behind = chain.rows[0].previous if chain.rows else chain.finished
        if behind and not chain.log:
            yield f"what is put to {topic} comes after {behind}, and no log is named by which it shows that it is gone"
        if not finished and chain.cleared != loaded.cleared:
            yield f"{topic} is cleared of power cut {chain.cleared} in memory and {loaded.cleared} in the store"
    if core.outbox.cuts != fresh.outbox.cuts:
        yield f"{core.outbox.cuts} power cuts in memory and {fresh.outbox.cuts} in the store"


def _subscriptions(core: Any, fresh: Any, *, counters: bool) -> Iterator[str]:
    for topic in sorted(core.subscriptions.keys() | fresh.subscriptions.keys()):
        ours, theirs = (_subscription(one.subscriptions.get(topic)) for one in (core, fresh))
        tried = ours.get("tried")
        if not counters:
            ours.pop("taken", None)
        for name, value in ours.items():
            # A tried position stays in the store after it was taken; no position comes twice.
            if value != theirs.get(name) and (name not in {"tried", "attempts"} or tried):
                yield f"{name} of {topic} is {value!r:.120} in memory and {theirs.get(name)!r:.120} in the store"
        if not ours:
            yield f"{topic} is subscribed to in the store only"


def _subscription(sub: Any) -> dict[str, Any]:
    if sub is None:
        return {}
    facts = {
        "on": sub.intent.on,
        "settled": sub.intent.settled,
        "fresh": sub.intent.fresh,
        "start": sub.intent.start,
        "position": sub.cursor.position,
        "tried": None if sub.cursor.tried in {None, (None, None)} else sub.cursor.tried,
        "attempts": sub.cursor.attempts,
        "losses": [(loss.first, loss.last, loss.reason) for loss in sub.losses],
        "taken": sub.cursor._load() if sub.cursor._taken is None else dict(sub.cursor._taken),
    }
    if sub.intent.settled:
        facts["number"] = sub.intent.number
    return facts
