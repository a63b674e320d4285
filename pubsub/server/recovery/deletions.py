"""Deletions of topics at one server: the topic goes in the commit that stores the number of its deletion.

The rules are those of docs/explanation/deletion.md, UD2, UD4 and UD5.

Proxies tell the server the numbers of deleted names, and it keeps them as notes. Its answer tells a proxy those that
the proxy lacks. So a topic that this server holds is always one that began after the last deletion that it knows. A
transfer names the number of its topic, and a server takes it only with its own number.

A late repeat of a put must not bring a deleted message back. So a publisher that is new in a topic with a deleted name
must name a log of that topic (`requests.puts`). The answer `gap` names it.
"""

from __future__ import annotations

from pubsub.protocol.deletions import Deleted
from pubsub.server.moves.moves import Moves
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.recovery.quarantine import Quarantine
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import DELETED as NOTE


class ServerDeletions:
    """The deletions that one server knows.

    Args:
        proxies: get the deletions that they lack.
        moves, quarantine: end their work for a deleted topic.
    """

    def __init__(self, state: State, proxies: Proxies, moves: Moves, quarantine: Quarantine) -> None:
        self._state, self._proxies, self._moves, self._quarantine = state, proxies, moves, quarantine
        self._owed: dict[int, str] = {}
        """By proxy that gets an answer after the commit: the digest of its own deletions."""
        self._announced = proxies.deletions = state.deletions.digest

    def told(self, proxy: int, message: Deleted, now: float) -> None:
        """Take in the deletions of a proxy, and drop the topics; the answer follows the commit."""
        known, uncommitted = self._state.deletions, self._state.uncommitted
        for row in message.rows or ():
            before = known.number(row.topic)
            if known.admit(row):
                uncommitted.undo(lambda topic=row.topic, before=before: known.replace(topic, before))  # type: ignore[misc]
                uncommitted.rows.append(c.NoteKept(f"{NOTE}{row.topic}", row.number))
                self._drop(row.topic)
        self._owed[proxy] = message.digest
        uncommitted.undo(self._owed.clear)

    def committed(self, now: float) -> None:
        """Answer the proxies that have told something, because it is stored now."""
        if not self._owed:
            return
        known = self._state.deletions
        self._announced = self._proxies.deletions = known.digest
        owed, self._owed = self._owed, {}
        for proxy, digest in owed.items():
            rows = () if digest == self._announced else known.rows
            self._proxies.tell_deletions(proxy, self._announced, rows, now)

    def _drop(self, name: str) -> None:
        """Drop all records and state of a topic, and its transfers."""
        state = self._state
        self._quarantine.stop(name)
        if name in state.given:
            # The receiver drops the topic, too. Without the note, no proxy takes the receiver for a holder.
            state.forget_given(name)
            self._proxies.remember(name, "", state.change)
        topic = state.topics.get(name)
        if topic is None:
            return
        self._quarantine.release(name)
        if not topic.unreadable:
            state.undelivered.keep(topic)
        self._moves.discard(topic, c.TopicGiven(topic.number, ""))
        state.announce(name, "")
        state.counters["topics_deleted"] += 1
