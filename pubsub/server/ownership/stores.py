"""The store directory: the other stores of the cluster, kept for proxies that have lost their memory.

In their answers to announcements, proxies name the stores that this server does not know. The server stores them, and
names all known stores in each announcement. The proxies use them as `proxy.store_directory` describes.
`protocol.stores` merges two directories. The server announces only committed entries.

The rule is docs/explanation/ownership.md, O13.
"""

from __future__ import annotations

from collections.abc import Mapping

from pubsub.protocol.messages import Status
from pubsub.protocol.stores import GONE_MAX, STORES_MAX, Known, format_stores, parse_stores
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import GONE, STORE


class Stores:
    """The store directory of one server.

    Args:
        proxies: receive the announcements.
        notes: the facts in the server's store.

    Attributes:
        known: the other stores.
        gone: removed stores.
        announced: both, as proxies get them: only durable entries.
    """

    def __init__(self, state: State, proxies: Proxies, notes: Mapping[str, object]) -> None:
        self._state, self._proxies = state, proxies
        self.known: dict[str, Known] = {}
        self.gone: dict[str, int] = {}
        for note, value in notes.items():
            if note.startswith(STORE):
                incarnation, _, server = str(value).partition(" ")
                self.known[note.removeprefix(STORE)] = Known(server, int(incarnation))
            elif note.startswith(GONE):
                self.gone[note.removeprefix(GONE)] = int(str(value))
        self._announce()

    def told(self, status: Status) -> None:
        """Process the stores in a proxy's answer to an announcement."""
        if not (status.stores or status.gone):
            return
        for store, mark in parse_stores(status.gone).items():
            if self.gone.get(store, -1) < mark.incarnation:
                self._lose(store, mark.incarnation)
        for store, mark in parse_stores(status.stores).items():
            self._learn(store, mark)

    def serves(self, server: str) -> bool:
        """Return True if a server's ID is ours or in the store directory; then proxies know or await its store."""
        return server == self._state.settings.id or any(known.server == server for known in self.known.values())

    def _learn(self, store: str, mark: Known) -> None:
        gone = self.gone.get(store, -1)
        if store in self.known or gone >= mark.incarnation or store == self._state.store_id:
            return
        if len(self.known) >= STORES_MAX:
            self._state.counters["stores_not_remembered"] += 1
            return
        self._state.uncommitted.keep(self, "known")
        self.known = {**self.known, store: mark}
        self._state.uncommitted.rows.append(c.NoteKept(STORE + store, f"{mark.incarnation} {mark.server}"))
        if gone >= 0:
            self._state.uncommitted.keep(self, "gone")
            self.gone = {one: number for one, number in self.gone.items() if one != store}
            self._state.uncommitted.rows.append(c.NoteKept(GONE + store, None))

    def _lose(self, store: str, incarnation: int) -> None:
        if store in self.known:
            if self.known[store].incarnation > incarnation:
                return
            self._state.uncommitted.keep(self, "known")
            self.known = {one: mark for one, mark in self.known.items() if one != store}
            self._state.uncommitted.rows.append(c.NoteKept(STORE + store, None))
        self._state.uncommitted.keep(self, "gone")
        self.gone = {**self.gone, store: incarnation}
        self._state.uncommitted.rows.append(c.NoteKept(GONE + store, incarnation))
        if len(self.gone) > GONE_MAX:
            oldest = min(self.gone, key=lambda one: self.gone[one])
            self._state.uncommitted.keep(self, "gone")
            self.gone = {one: number for one, number in self.gone.items() if one != oldest}
            self._state.uncommitted.rows.append(c.NoteKept(GONE + oldest, None))

    def committed(self, now: float) -> None:
        """Announce the directory to every proxy if the commit changed it."""
        if (self.known, self.gone) != self.announced:
            self._announce()
            self._proxies.announce_all(now)

    def _announce(self) -> None:
        self.announced = self.known, self.gone
        gone = {store: Known("", incarnation) for store, incarnation in self.gone.items()}
        self._proxies.store_directory = format_stores(self.known), format_stores(gone)
