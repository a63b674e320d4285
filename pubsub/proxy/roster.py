"""The roster of stores at a proxy: whose word it has to hear before it speaks for all (`protocol.stores`).

A proxy's directory is its memory of who holds what. One that starts with an empty directory hears of the topics of
those servers that are there, and of no others; if it called such a topic whole, or gave one that it does not know to a
server, the messages that wait at a server which is away would be left behind. So:

    a store that the proxy has never heard, and was told of,   is *awaited*
    while one is awaited, the proxy                            calls no topic whole, and begins none that it does not
                                                               know: that is unavailable, and says for whom it waits

What it knows it serves. A store has been heard when an announcement of all it holds was believed; from then on the
routes file knows what it holds, as it always did, whether it is there or away. So a proxy that kept its directory waits
for nobody, the first start of a cluster waits for nobody (no server has been told of another one), and a proxy without
a memory waits for exactly those that may know more. Where such a store will never come, an operator says so:
`pubsub server forget`. A server that was drained and says that it holds nothing when it leaves, leaves the roster too.

A new store is told to all servers at once (they are asked to announce themselves, and the answer names it): from then
on any of them that is left is a witness that it exists. Before that, for some milliseconds, only the proxies are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from pubsub.base.liveness import Liveness
from pubsub.protocol.stores import GONE_MAX, STORES_MAX, Known, format_stores, parse_stores
from pubsub.proxy.remembered import GoneStore, StoreRow
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

AWAITED_MAX: Final = 1_000
"""Stores in a table beyond which no further one is taken from a server's roster; it is awaited all the same."""


@dataclass(slots=True)
class _Said:
    """What a server's last full announcement said of the roster, as words and as what they say."""

    stores: str
    gone: str
    known: dict[str, Known]
    lost: dict[str, Known]


class Roster:
    """The stores of a cluster, as one proxy knows them.

    Args:
        table: who holds what; it keeps the stores, and what has to be written of them.
        signs: heartbeat interval in seconds, patience in heartbeats, and the monotonic time, of servers never heard.
    """

    def __init__(self, table: RoutingTable, signs: tuple[float, int, float]) -> None:
        self._table, self._signs = table, signs
        self._said: dict[str, _Said] = {}
        self._left_out: set[str] = set()

    def awaits(self) -> str:
        """Why this proxy does not speak for all, in a few words; "" where it does."""
        for server in self._table.awaited.values():
            return f"server_{server.id or 'unknown'}_with_store_{server.store}_was_never_heard_here"
        return "more_stores_than_AWAITED_MAX" if self._left_out else ""

    # What is told

    def told(self, server: Server, stores: str, gone: str) -> None:
        """What a server's announcement says of the roster.

        Args:
            stores, gone: as in `Periodic`; the codec has checked them.
        """
        said = self._said.get(server.store)
        if said is None:  # What stores have said that were forgotten meanwhile is of no use to anybody.
            self._said = {store: one for store, one in self._said.items() if store in self._table.servers}
        if said is None or (said.stores, said.gone) != (stores, gone):
            self._said[server.store] = said = _Said(stores, gone, parse_stores(stores), parse_stores(gone))
            for store, mark in said.lost.items():
                self._lose(store, mark.incarnation)
        for store, mark in said.known.items():
            if store not in self._table.servers:
                self._learn(store, mark)

    def _learn(self, store: str, mark: Known) -> None:
        gone = self._table.gone.get(store)
        if gone is not None and gone.incarnation >= mark.incarnation:
            return
        if len(self._table.servers) >= AWAITED_MAX:
            if len(self._left_out) < AWAITED_MAX:  # Those that are not noted are named again.
                self._left_out.add(store)
            return
        self._left_out.discard(store)
        signs = Liveness(*self._signs)
        signs.forget()
        self._table.await_store(Server(StoreRow(store, mark.server, mark.incarnation, 0, "", heard=False), signs))

    def _lose(self, store: str, incarnation: int) -> None:
        """A store is gone, up to an incarnation, unless this proxy knows better."""
        server = self._table.servers.get(store)
        if server is not None and (not self.is_idle(server) or _mark(server) > incarnation):
            return
        self._left_out.discard(store)
        known = self._table.gone.get(store)
        if known is None or known.incarnation < incarnation or known.here:
            self._table.forget_store(GoneStore(store, incarnation))

    @staticmethod
    def is_idle(server: Server) -> bool:
        """Whether a store is not connected and holds nothing that this proxy knows of."""
        return server.link is None and not (server.topics or server.overflow or server.assigned)

    def heard(self, server: Server) -> bool:
        """The store's server has said all it holds; whether it was not in the roster before."""
        table = self._table
        self._left_out.discard(server.store)
        gone = table.gone.pop(server.store, None)
        fresh = gone is not None
        if gone is not None:
            table.changes.gone[server.store] = None
            if not gone.here:  # Others know it as gone up to that incarnation, and it may not have been started since.
                server.mark = gone.incarnation + 1
        table.awaited.pop(server.store, None)
        if not server.heard:
            server.heard = fresh = True
            table.note(server)
        return fresh

    def left(self, server: Server) -> None:
        """A drained server that holds nothing has left for good, it says."""
        assignments = self._table.assignments
        doubted = (
            any(server in servers for servers in assignments.doubts.values()) or server.store in assignments.beyond
        )
        if self.is_idle(server) and not doubted:
            self._table.forget_store(GoneStore(server.store, _mark(server)))

    def forget(self, server: Server) -> None:
        """An operator says that a store is gone for good: of whatever topics it may have made nobody knows."""
        self._table.assignments.beyond.pop(server.store, None)
        self._table.forget_store(GoneStore(server.store, _mark(server)))

    # What is to be told

    def lacked_by(self, server: Server) -> tuple[str, str]:
        """What a server's roster lacks: stores, and stores that are gone, as in `Status`."""
        said = self._said.get(server.store)
        if said is None:
            return "", ""
        stores: dict[str, Known] = {}
        for store, other in self._table.servers.items():
            missing = store not in said.known
            if missing and store != server.store:
                lost = said.lost.get(store)
                if lost is None or lost.incarnation < _mark(other):
                    stores[store] = Known(other.id, _mark(other))
        # No server remembers more, and a longer word would not be understood: the rest is told as these are known.
        stores = dict(islice(stores.items(), STORES_MAX))
        gone = {
            store: Known("", mark.incarnation)
            for store, mark in self._table.gone.items()
            if not mark.here and (store in said.known or store not in said.lost) and store != server.store
        }
        gone = dict(sorted(gone.items(), key=lambda item: item[1].incarnation)[-GONE_MAX:])
        return format_stores(stores), format_stores(gone)

    def is_known_to(self, server: Server, store: str) -> bool:
        """Whether a server's roster has a store, as far as it has said."""
        said = self._said.get(server.store)
        return store == server.store or (said is not None and store in said.known)


def _mark(server: Server) -> int:
    return max(server.incarnation, server.mark)
