"""Pairs of one run: the statements of proxies and members about each, and the conditions at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pubsub.protocol.register import View
from tests.simulation import memory
from tests.simulation.cast import Cast
from tests.simulation.members import MemberNode, Paired
from tests.simulation.nodes import ProxyNode

SHOWN_MAX = 2
LOCAL = ("note", "quarantine", "repaired", "sqlite_stat1", "sqlite_stat4")
"""Tables of which two members need not have the same."""


class Pairs:
    """The servers of two members of one run, and their registers."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast

    @staticmethod
    def id_of(member: MemberNode) -> str:
        """A member's ID; "" while it has none."""
        local = member.process._local.local if hasattr(member, "process") else None
        return "" if local is None else local.member

    @staticmethod
    def is_registered(member: MemberNode) -> bool:
        """Whether it knows that its store has a register; an older copy of it would serve without one."""
        local = member.process._local.local
        return local is not None and local.registered

    def are_idle(self, pair: Paired) -> bool:
        """Whether no member asks the register for anything."""
        return all(member.pair is None or member.pair.member.proposer.attempt is None for member in pair.members)

    def settled_view(self, pair: Paired) -> View | None:
        """The view that all proxies report alike, without messages under way to them; None if they differ."""
        store = pair.store_id()
        rows = [proxy.core.members.registers.rows.get(store) if proxy.alive else None for proxy in self.cast.voters]
        first = rows[0]
        if first is None or any(row != first for row in rows) or first.promised != first.ballot:
            return None
        return first.view

    def may_lose(self, proxy: ProxyNode) -> bool:
        """Whether a proxy may lose its data: enough others can report its promises, and are a majority.

        The other one of two proxies can report only to a primary that lives until then. Otherwise an operator has to
        promote a member, which no run does.
        """
        voters = self.cast.voters
        needed = max(len(voters) - (len(voters) // 2 + 1) + 1, len(voters) // 2 + 1)
        for pair in self.cast.pairs:
            others = [one for one in voters if one is not proxy and one.alive]
            if sum(pair.store_id() in one.core.members.registers.rows for one in others) < needed:
                return False
        return True

    # In the end

    def open_end(self) -> str:
        """The unsettled parts, "" if there are none."""
        for pair in self.cast.pairs:
            serving = [member for member in pair.members if member.serves]
            if len(serving) != 1:
                return f"{len(serving)} members of {pair.name} serve"
            primary, standby = serving[0], pair.other(serving[0])
            leading = None if primary.pair is None else primary.pair.member.leading
            if leading is None:
                return f"{pair.name} has no register"
            if leading.in_sync != {self.id_of(primary), self.id_of(standby)}:
                return f"{pair.name} has {sorted(leading.in_sync)} in sync"
            disk = None if standby.pair is None else standby.pair.disk
            if disk is None or disk.store is None or disk.end != leading.end:
                return f"{standby.name} has not all of {primary.name}"
        return ""

    def differences(self) -> Iterator[str]:
        """The differences between the stores of two settled members, or between them and the primary's memory."""
        damaged = bool(self.cast.history.damaged)
        for pair in self.cast.pairs:
            if pair.alive and not damaged:
                yield from memory.check(pair.active, pair.other(pair.active))
            one, other = ((member.name, contents(member)) for member in pair.members)
            yield from _differences(pair.name, one, other, damaged)


def contents(member: MemberNode) -> dict[str, list[Any]]:
    """All rows of a member's store, by table; none of one that does not run."""
    disk = None if member.pair is None else member.pair.disk
    if disk is None and not member.serves:
        return {}
    store = disk.store if disk is not None else member.group_commit.store
    if store is None:
        return {}
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table'")]
    return {
        name: sorted(map(repr, store.db.execute(f"select * from {name}")))
        for name in sorted(tables)
        if name not in LOCAL
    }


def _differences(
    server: str, one: tuple[str, dict[str, list[Any]]], other: tuple[str, dict[str, list[Any]]], damaged: bool
) -> Iterator[str]:
    for table in sorted(one[1].keys() | other[1].keys()):
        if damaged and table == "batch":
            continue
        rows, others = set(one[1].get(table, [])), set(other[1].get(table, []))
        for name, more in ((one[0], rows - others), (other[0], others - rows)):
            for row in sorted(more)[:SHOWN_MAX]:
                yield f"{server}: only {name} has {row:.160} in its table {table}"
