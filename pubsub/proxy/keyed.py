"""Traffic of a keyed proxy: `rights` decides about each message before or after `traffic` moves it.

Without keys this module adds only one branch each time a socket is drained. Sockets within the process (`inproc://`)
never require keys, because only this process can connect to them.
"""

from __future__ import annotations

from typing import Final

import zmq
import zmq.backend

from pubsub.protocol import Outcome
from pubsub.proxy.access import ProxyAccess
from pubsub.proxy.client_quotas import QUOTA_CLIENT
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
    """Traffic with sockets that may require keys.

    If the clients' socket requires keys, the core and the servers see each client's link with its user's tag in front.
    """

    _access: ProxyAccess | None = None
    _locked: frozenset[Socket] = frozenset()
    """The sockets that require keys."""

    def __init__(self) -> None:
        self._server_users: dict[bytes, str] = {}
        """By link of an announced server: the user of the key that opened the connection."""

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
            # On a socket without keys the peer itself chooses its User-Id, so it must not count.
            user = str(frame.get("User-Id")) if locked else ""
            first = _recv(sock, _NOBLOCK)
            # If clients and servers share an address, the key identifies a server. The form of a message does not.
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
        """Forward a request over a connection of a client's key; return False if the core had to handle it."""
        access = self._access
        assert access is not None
        asked = access.rights.request(user, head)
        client = access.rights.tagged(user, link)
        if asked.course is not _GOES and not self._noted(user, client, head, asked, now):
            self._rest(sock)
            return False
        assert asked.question is not None
        if asked.quota is not None and not self._within_quota(user, client, head, asked.quota, now):
            self._rest(sock)
            return False
        topic = asked.question.topic
        assigned = self.core.table.assignments.tentative
        known = topic in assigned
        if asked.quota is None:
            usual = self._from_client(sock, client, head, now)
        else:
            usual, frames = False, self._rest(sock)
            access.quotas.took(user, head, sum(map(len, frames)))
            self.core.client_message(client, (head, *frames), now)
        if not usual and not known and topic in assigned:
            access.note("topic_made", user, asked.question)
        return usual

    def _within_quota(
        self, user: str, client: bytes, head: bytes, quota: tuple[int | None, int | None], now: float
    ) -> bool:
        """Answer a put above the quota of its client; return whether it passes."""
        access = self._access
        assert access is not None
        after = access.quotas.after(user, quota, now)
        if after:
            access.counters["throttled"] += 1
            self.core.reject(client, head, Outcome.BUSY, QUOTA_CLIENT, after=after)
        return not after

    def _noted(self, user: str, client: bytes, head: bytes, asked: Asked, now: float) -> bool:
        """Record a request if it has to be recorded; return whether it passes."""
        core, access = self.core, self._access
        assert access is not None
        if asked.question is None:
            core.reject(client, head, Outcome.REFUSED, asked.verdict.text)
        elif asked.course is Course.DROP:
            core.client_message(client, (head,), now)
        elif asked.course is Course.DENY:
            access.denied(user, asked.question, asked.verdict, now)
            core.reject(client, head, Outcome.DENIED, asked.verdict.why, asked.verdict.text)
        elif asked.question.operation is Operation.OPERATE:
            if access.may_operate(user, head):
                return True
            core.reject(client, head, Outcome.REFUSED, AUDIT_FAILS)
        else:
            access.note(
                "unsubscribe" if head.split(b"-", 3)[-1].startswith(b"UNSUB") else "subscribe", user, asked.question
            )
            return True
        return False

    def _of_server(self, sock: Socket, user: str, link: bytes, origin: bytes, now: float) -> bool:
        """Handle a message over a connection of a server's key, or from this process itself (`user` is "")."""
        core, access = self.core, self._access
        assert access is not None
        rights = access.rights
        known = core.table.links.get(link)
        if user and not rights.may_use(user, "" if known is None else known.id):
            self._rest(sock)
            access.counters["servers_under_a_wrong_name"] += 1
            return False
        if origin:
            if self._clients in self._locked and origin[0] == _MARK:
                client = rights.answered(origin)
                if client is None:
                    self._rest(sock)
                    access.counters["answers_dropped_rights_changed"] += 1
                    return False
                origin = ORIGIN_MARK + client
            return self._from_server(sock, link, origin, now)
        frames = self._rest(sock)
        if user and frames and not rights.speaks_for_itself(user, frames[0]):
            access.counters["servers_under_a_wrong_name"] += 1
            return False
        if user and frames and frames[0].split(b"-", 3)[-1].startswith(b"OPERATE "):
            access.given_up(user, frames[0])
        core.server_message(link, (origin, *frames), now)
        if user and link in core.table.links:
            self._server_users[link] = user
            if len(self._server_users) > 2 * core.settings.servers_max:
                self._forget_links()
        return False

    def _link(self, client: bytes) -> bytes:
        if self._access is not None and self._clients in self._locked:
            return self._access.rights.untagged(client)
        return client

    def _deliver(self, send: Send, now: float) -> None:
        if self._access is not None and self._clients in self._locked and not send.to_server:
            send = send._replace(link=self._access.rights.untagged(send.link))
        super()._deliver(send, now)

    def _look(self, now: float) -> None:
        """Reload the access list if that is due, and cut off servers that lost their right."""
        access = self._access
        if access is None or now < access.deadline or not access.look(now):
            return
        self._forget_links()
        for link, user in self._server_users.items():
            if not access.rights.server(user):
                self.core.expel(link, now)
        self._settle(now)

    def _forget_links(self) -> None:
        """Forget the users of links that belong to no server any more."""
        links = self.core.table.links
        self._server_users = {link: user for link, user in self._server_users.items() if link in links}
