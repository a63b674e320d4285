"""The store directory of a proxy (`protocol.stores`): every store must announce itself before unknown topics begin.

A proxy's routes file records the holder of each topic. A proxy that starts with an empty directory learns only the
topics of the servers that are connected. A disconnected server may hold a topic too, with messages in it. The proxy
must not confirm sole ownership of that topic, nor create it on another server. Otherwise the messages on the
disconnected server would be left behind. Therefore:

    awaited     a store that servers have named, and that has never announced itself to this proxy
    meanwhile   the proxy confirms sole ownership of no topic and creates no unknown topic. It answers `unavailable`
                and names the awaited store

Requests about known topics are served. A store is no longer awaited when its full announcement was accepted. From then
on the routes file has its topics, whether it is connected or not. So a proxy that kept its directory waits for no
store. A new cluster waits for none, because no server knows of another one yet. A proxy that lost its directory waits
for exactly the stores that may hold unknown topics. If such a store will never come back, an operator removes it with
`pubsub server forget`. A drained server that reports no topics when it leaves is removed too.

A new store is reported to all servers at once: the proxies ask them to announce themselves, and the answer names the
new store. From then on each remaining server can report that the store exists. For some milliseconds before that only
the proxies can.

The rule is docs/explanation/ownership.md, O14.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from pubsub.base.liveness import Liveness
from pubsub.protocol.stores import GONE_MAX, STORES_MAX, Known, format_stores, parse_stores
from pubsub.proxy.remembered import RemovedStore, StoreRow
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

AWAITED_MAX: Final = 1_000
"""Limit of stores in the table. Beyond it no store is added from a server's list, but the proxy still waits for it."""


@dataclass(slots=True)
class _Announced:
    """The store directory in a server's last full announcement, as text and parsed."""

    stores: str
    gone: str
    known: dict[str, Known]
    lost: dict[str, Known]


class StoreDirectory:
    """The stores of a cluster, as one proxy knows them.

    Args:
        table: the routing table; it keeps the stores and the changes to write.
        signs: heartbeat interval in seconds, liveness in heartbeats, and the monotonic time, for awaited stores.
    """

    def __init__(self, table: RoutingTable, signs: tuple[float, int, float]) -> None:
        self._table, self._signs = table, signs
        self._reported: dict[str, _Announced] = {}
        self._left_out: set[str] = set()

    def awaits(self) -> str:
        """Return why this proxy cannot vouch for unknown topics yet, in a few words; "" if it can."""
        for server in self._table.awaited.values():
            return f"server_{server.id or 'unknown'}_with_store_{server.store}_never_announced_itself_here"
        return "more_stores_than_AWAITED_MAX" if self._left_out else ""

    # Reports from servers

    def told(self, server: Server, stores: str, gone: str) -> None:
        """Take in the store directory of a server's announcement.

        Args:
            stores, gone: as in `Periodic`; the codec has checked them.
        """
        reported = self._reported.get(server.store)
        if reported is None:  # Announcements of stores that were removed meanwhile are dropped.
            self._reported = {store: one for store, one in self._reported.items() if store in self._table.servers}
        if reported is None or (reported.stores, reported.gone) != (stores, gone):
            self._reported[server.store] = reported = _Announced(stores, gone, parse_stores(stores), parse_stores(gone))
            for store, mark in reported.lost.items():
                self._lose(store, mark.incarnation)
        for store, mark in reported.known.items():
            if store not in self._table.servers:
                self._learn(store, mark)

    def _learn(self, store: str, mark: Known) -> None:
        gone = self._table.gone.get(store)
        if gone is not None and gone.incarnation >= mark.incarnation:
            return
        if len(self._table.servers) >= AWAITED_MAX:
            if len(self._left_out) < AWAITED_MAX:  # Stores beyond this limit are named again later.
                self._left_out.add(store)
            return
        self._left_out.discard(store)
        signs = Liveness(*self._signs)
        signs.forget()
        self._table.await_store(Server(StoreRow(store, mark.server, mark.incarnation, 0, "", announced=False), signs))

    def _lose(self, store: str, incarnation: int) -> None:
        """Remove a store up to an incarnation, unless this proxy has newer knowledge of it."""
        server = self._table.servers.get(store)
        if server is not None and (not self.is_idle(server) or _mark(server) > incarnation):
            return
        self._left_out.discard(store)
        known = self._table.gone.get(store)
        if known is None or known.incarnation < incarnation or known.here:
            self._table.forget_store(RemovedStore(store, incarnation))

    @staticmethod
    def is_idle(server: Server) -> bool:
        """Return whether a store is disconnected and holds no topic that this proxy knows."""
        return server.link is None and not (server.topics or server.overflow or server.assigned)

    def announced(self, server: Server) -> bool:
        """Record that a store's full announcement was accepted; return whether the store is new to the directory."""
        table = self._table
        self._left_out.discard(server.store)
        gone = table.gone.pop(server.store, None)
        fresh = gone is not None
        if gone is not None:
            table.changes.gone[server.store] = None
            # Other proxies know the store as removed up to that incarnation. It must count as newer than that, even
            # if it was not started again since.
            if not gone.here:
                server.mark = gone.incarnation + 1
        table.awaited.pop(server.store, None)
        if not server.announced:
            server.announced = fresh = True
            table.note(server)
        return fresh

    def left(self, server: Server) -> None:
        """Remove the store of a drained server that has reported that it holds nothing and leaves permanently."""
        assignments = self._table.assignments
        doubted = (
            any(server in servers for servers in assignments.doubts.values()) or server.store in assignments.beyond
        )
        if self.is_idle(server) and not doubted:
            self._table.forget_store(RemovedStore(server.store, _mark(server)))

    def forget(self, server: Server) -> None:
        """Remove a store on an operator's request. Topics that only this store may have created become unknown."""
        self._table.assignments.beyond.pop(server.store, None)
        self._table.forget_store(RemovedStore(server.store, _mark(server)))

    # Reports to servers

    def lacked_by(self, server: Server) -> tuple[str, str]:
        """Return the stores, and the removed stores, that a server's directory lacks, as in `Status`."""
        reported = self._reported.get(server.store)
        if reported is None:
            return "", ""
        stores: dict[str, Known] = {}
        for store, other in self._table.servers.items():
            missing = store not in reported.known
            if missing and store != server.store:
                lost = reported.lost.get(store)
                if lost is None or lost.incarnation < _mark(other):
                    stores[store] = Known(other.id, _mark(other))
        # No server remembers more than STORES_MAX, and a longer word is refused. The remaining stores follow when
        # the server knows these.
        stores = dict(islice(stores.items(), STORES_MAX))
        gone = {
            store: Known("", mark.incarnation)
            for store, mark in self._table.gone.items()
            if not mark.here and (store in reported.known or store not in reported.lost) and store != server.store
        }
        gone = dict(sorted(gone.items(), key=lambda item: item[1].incarnation)[-GONE_MAX:])
        return format_stores(stores), format_stores(gone)

    def is_known_to(self, server: Server, store: str) -> bool:
        """Return whether the directory in a server's last announcement has the store."""
        reported = self._reported.get(server.store)
        return store == server.store or (reported is not None and store in reported.known)


def _mark(server: Server) -> int:
    return max(server.incarnation, server.mark)
