"""The traffic of a keyed proxy: of each message it asks `rights` what becomes of it, before or after it goes the usual
way (`traffic`).

Where no socket asks for keys nothing of this is passed through: the branch is one for each time that a socket is
drained. Sockets within the process (`inproc://`) never ask, whatever else is locked: who connects to one is this
process itself.
"""

from __future__ import annotations

from typing import Final

import zmq
import zmq.backend

from pubsub.protocol import Outcome
from pubsub.proxy.entrance import Entrance
from pubsub.proxy.replies import ORIGIN_MARK, Send
from pubsub.proxy.rights import SERVER_USERS, Asked, Course
from pubsub.proxy.traffic import DRAIN_MAX, DRAIN_SECONDS, Socket, Traffic
from pubsub.security.access import Operation

_NOBLOCK: Final = int(zmq.NOBLOCK)
_recv: Final = zmq.backend.Socket.recv
_MARK: Final = ORIGIN_MARK[0]
_GOES: Final = Course.GOES

AUDIT_FAILS: Final = "the_audit_cannot_be_written"


class KeyedTraffic(Traffic):
    """Traffic of which some may come over sockets that ask for keys.

    Where clients' links come from such a socket, each has its user's tag in front, for the core and for the servers.
    """

    _entrance: Entrance | None = None
    _locked: frozenset[Socket] = frozenset()
    """The sockets that ask for keys."""

    def __init__(self) -> None:
        self._server_users: dict[bytes, str] = {}
        """Of servers' links that announced themselves: whose key opened the connection."""

    def _drain(self, sock: Socket) -> None:
        if not self._locked:
            super()._drain(sock)
            return
        locked, by_servers = sock in self._locked, sock is self._servers
        clock = self._clock.monotonic
        now = clock()
        end = now + DRAIN_SECONDS
        for _ in range(DRAIN_MAX):
            try:
                frame = _recv(sock, _NOBLOCK, False)
            except zmq.Again:
                return
            # Of a socket that does not ask for keys the peer itself would say who it is, and be believed.
            user = str(frame.get("User-Id")) if locked else ""
            first = _recv(sock, _NOBLOCK)
            # Where both come to one address the key says who is a server, not what the message looks like.
            if user.startswith(SERVER_USERS) or (not locked and by_servers):
                usual = self._of_server(sock, user, frame.bytes, first, now)
            elif locked:
                usual = self._of_client(sock, user, frame.bytes, first, now)
            else:
                usual = self._from_client(sock, frame.bytes, first, now)
            if not usual:
                self._settle(now)
                now = clock()
                if now >= end:
                    return

    def _of_client(self, sock: Socket, user: str, link: bytes, head: bytes, now: float) -> bool:
        """A request over a connection that a client's key opened; False where it took more than to pass it on."""
        entrance = self._entrance
        assert entrance is not None
        asked = entrance.rights.request(user, head)
        client = entrance.rights.tagged(user, link)
        if asked.course is not _GOES and not self._noted(user, client, head, asked, now):
            self._rest(sock)
            return False
        assert asked.question is not None
        topic = asked.question.topic
        assigned = self.core.table.assignments.tentative
        known = topic in assigned
        usual = self._from_client(sock, client, head, now)
        if not usual and not known and topic in assigned:
            entrance.note("topic_made", user, asked.question)
        return usual

    def _noted(self, user: str, client: bytes, head: bytes, asked: Asked, now: float) -> bool:
        """Note what is to be noted of a request; whether it passes."""
        core, entrance = self.core, self._entrance
        assert entrance is not None
        if asked.question is None:
            core.turn_away(client, head, Outcome.REFUSED, asked.verdict.text)
        elif asked.course is Course.DROP:
            core.client_message(client, (head,), now)
        elif asked.course is Course.DENY:
            entrance.denied(user, asked.question, asked.verdict, now)
            core.turn_away(client, head, Outcome.DENIED, asked.verdict.why, asked.verdict.text)
        elif asked.question.operation is Operation.OPERATE:
            if entrance.may_operate(user, head):
                return True
            core.turn_away(client, head, Outcome.REFUSED, AUDIT_FAILS)
        else:
            entrance.note(
                "unsubscribe" if head.split(b"-", 3)[-1].startswith(b"UNSUB") else "subscribe", user, asked.question
            )
            return True
        return False

    def _of_server(self, sock: Socket, user: str, link: bytes, origin: bytes, now: float) -> bool:
        """A message over a connection that a server's key opened, or from this process itself (`user` is "")."""
        core, entrance = self.core, self._entrance
        assert entrance is not None
        rights = entrance.rights
        known = core.table.links.get(link)
        if user and not rights.may_use(user, "" if known is None else known.id):
            self._rest(sock)
            entrance.counters["servers_under_a_wrong_name"] += 1
            return False
        if origin:
            if self._clients in self._locked and origin[0] == _MARK:
                client = rights.answered(origin)
                if client is None:
                    self._rest(sock)
                    entrance.counters["answers_dropped_rights_changed"] += 1
                    return False
                origin = ORIGIN_MARK + client
            return self._from_server(sock, link, origin, now)
        frames = self._rest(sock)
        if user and frames and not rights.speaks_for_itself(user, frames[0]):
            entrance.counters["servers_under_a_wrong_name"] += 1
            return False
        if user and frames and frames[0].split(b"-", 3)[-1].startswith(b"OPERATE "):
            entrance.given_up(user, frames[0])
        core.server_message(link, (origin, *frames), now)
        if user and link in core.table.links:
            self._server_users[link] = user
            if len(self._server_users) > 2 * core.settings.servers_max:
                self._forget_links()
        return False

    def _link(self, client: bytes) -> bytes:
        if self._entrance is not None and self._clients in self._locked:
            return self._entrance.rights.untagged(client)
        return client

    def _deliver(self, send: Send, now: float) -> None:
        if self._entrance is not None and self._clients in self._locked and not send.to_server:
            send = send._replace(link=self._entrance.rights.untagged(send.link))
        super()._deliver(send, now)

    def _look(self, now: float) -> None:
        """Look who is authorized, where it is time to; a server that is not any more gets nothing more."""
        entrance = self._entrance
        if entrance is None or now < entrance.deadline or not entrance.look(now):
            return
        self._forget_links()
        for link, user in self._server_users.items():
            if not entrance.rights.server(user):
                self.core.expel(link, now)
        self._settle(now)

    def _forget_links(self) -> None:
        """Forget the users of links that no server has any more."""
        links = self.core.table.links
        self._server_users = {link: user for link, user in self._server_users.items() if link in links}
