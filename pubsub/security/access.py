"""Access: which keys may connect to which socket, and which requests their users may send.

The access list is replaced as a whole. After that every decision is made again, so a revoked key is denied its next
request. A request sent before its user's line changed is not answered any more (`may_be_answered`). A connected user
with an unchanged line notices nothing.

Decisions are kept in one table by all that they depend on, so that nearly every message costs one look-up. Only
well-formed values enter the table, which bounds the size of an entry. A full table is cleared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pubsub.base.limits import TOPIC_LENGTH_MAX
from pubsub.protocol.names import is_id, is_topic, letters_topic
from pubsub.security.authorized import Authorized, Difference, Line, Role
from pubsub.security.fingerprints import fingerprint
from pubsub.security.zap import FAILED, OK, REFUSED, Request, read, reply

DECISIONS_MAX: Final = 65_536
"""Limit of kept decisions. When the table is full it is cleared, and decisions are made again."""

HANDSHAKES_KEPT_MAX: Final = 1_024
"""Limit of handshakes kept until `take_handshakes`. Further ones are only counted."""

ENTERED_MAX: Final = 10_000
"""Limit of users with a remembered key, for the sentence about a changed line. When the table is full it is cleared."""

CLIENTS: Final = "clients"
SERVERS: Final = "servers"
BOTH: Final = "both"
DOORS: Final[Mapping[str, frozenset[Role]]] = {
    CLIENTS: frozenset({Role.CLIENT}),
    SERVERS: frozenset({Role.SERVER}),
    BOTH: frozenset({Role.CLIENT, Role.SERVER}),
}
"""ZAP domain of a socket to the roles that may connect to it. A proxy connects to no other process."""


class Operation(StrEnum):
    """The kinds of requests that rights distinguish."""

    PUT = "put"
    GET = "get"
    SETTINGS = "settings"  # to look at the settings of a topic
    PATTERN = "pattern"  # to subscribe to a pattern of topics; each topic needs the right to get from it
    STATUS = "status"
    OPERATE = "operate"
    OTHER = "other"  # no request of a client; no user has a right to it


class Why(StrEnum):
    """The reason of a denial."""

    NONE = ""  # it is allowed
    FORM = "form"  # the sender, topic or name is not a valid one
    KEY = "key"  # the user's key is not authorized, or not any more
    ROLE = "role"  # a server's key sends a client's request
    SENDER = "sender"  # the message names another ID than its key's
    RIGHT = "right"  # no right to this operation, on this topic or under this name


class Verdict(NamedTuple):
    """A decision, with the sentence for the sender."""

    allowed: bool
    why: Why = Why.NONE
    text: str = ""


ALLOWED: Final = Verdict(True)
MALFORMED: Final = Verdict(False, Why.FORM, "the message names an invalid sender, topic or subscription")


@dataclass(frozen=True, slots=True)
class User:
    """The owner of an authorized key.

    Attributes:
        name: `client:alice#1a2b3c4d`; ZeroMQ sets it as the User-Id of each message.
        line: the line with its rights.
    """

    name: str
    line: Line


@dataclass(frozen=True, slots=True)
class Handshake:
    """One attempt to connect, and its result.

    Attributes:
        domain: the ZAP domain of the socket.
        address: of the peer, as far as ZeroMQ knows it.
        user: the user, "" if it was refused.
        fingerprint: of the peer's key, "" without a key.
        refused: the reason of a refusal, "" if it was accepted.
    """

    domain: str
    address: str
    user: str = ""
    fingerprint: str = ""
    refused: str = ""


class Access:
    """The decisions of a process by one access list.

    Args:
        authorized: the access list at the start.
        generation: the first generation of the rules, above that of any earlier start, so that no request of an earlier
            process is answered by mistake (microseconds since 1970 are suitable).

    Attributes:
        generation: rises with each change of the rules.
        counters: handshakes_entered, handshakes_refused_key, _role, _mechanism, handshakes_malformed.
    """

    def __init__(self, authorized: Authorized, generation: int = 1) -> None:
        self.authorized = authorized
        self.generation = generation
        self.counters: Counter[str] = Counter()
        self._since = dict.fromkeys(authorized.by_user, generation)
        self._decisions: dict[tuple[str, str, str, str, str], Verdict] = {}
        self._entered: dict[str, bytes] = {}
        self._handshakes: list[Handshake] = []
        self._lines: dict[str, list[Line]] = {}
        """The lines of a client, by its ID."""

    def replace(self, authorized: Authorized) -> Difference:
        """Replace the access list, and return the lines that were added and removed."""
        difference = authorized.difference(self.authorized)
        self.authorized = authorized
        if difference.came or difference.went:
            self.generation += 1
            self._decisions.clear()
            self._lines.clear()
            came = {line.user for line in difference.came}
            before = self._since
            self._since = {user: self.generation if user in came else before[user] for user in authorized.by_user}
        return difference

    def user(self, key: bytes) -> User | None:
        """Return the user of a public key; None if the key is not authorized."""
        line = self.authorized.by_key.get(key)
        return None if line is None else User(line.user, line)

    def server(self, user: str) -> str:
        """Return the ID of the server that the user is; "" if it is no server.

        Its messages must name that ID as their sender.
        """
        line = self.authorized.by_user.get(user)
        return str(line.id) if line is not None and line.role is Role.SERVER else ""

    def may_be_answered(self, user: str, generation: int) -> bool:
        """Return whether a user may get an answer to a request from this generation of the rules.

        A generation above the present one did not come from this process. A peer invented it, or the wall clock that
        set the first generation was set back.
        """
        return self._since.get(user, generation + 1) <= generation <= self.generation

    def decide(self, user: str, operation: str, sender: str, topic: str, name: str) -> Verdict:
        """Decide whether a user may send this request.

        Args:
            user: the User-Id of the message. It must come from a socket with keys; any other socket lets the peer
                choose it.
            operation: an Operation.
            sender: the ID that the message names as its sender.
            topic: the topic, "" for operations without one.
            name: the named subscription, "" for none.
        """
        key = (user, operation, sender, topic, name)
        verdict = self._decisions.get(key)
        if verdict is None:
            verdict = self._decided(*key)
            if verdict is not MALFORMED:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = verdict
        return verdict

    def may_get(self, client: str, topic: str) -> bool:
        """Return whether some key of a client allows it to get from a topic at present."""
        lines = self._lines.get(client)
        if lines is None:
            if len(self._lines) >= ENTERED_MAX:
                self._lines.clear()
            lines = self._lines[client] = [
                line
                for line in self.authorized.by_user.values()
                if line.role is Role.CLIENT and line.id.matches(client)
            ]
        return any(pattern.matches(topic) for line in lines for pattern in line.get)

    def decide_service(self, user: str, right: str, service: str) -> Verdict:
        """Decide whether a user may call a service, or serve it.

        Args:
            user: the User-Id of the message, from a socket with keys.
            right: "call" or "serve"; "" to check only that the user is still authorized.
            service: the name of the service in the message.
        """
        key = (user, right, "", service, "")
        verdict = self._decisions.get(key)
        if verdict is None:
            line = self.authorized.by_user.get(user)
            if line is None:
                return Verdict(False, Why.KEY, self._gone(user))
            patterns = {"call": line.call, "serve": line.serve}.get(right, ())
            if right and not any(pattern.matches(service) for pattern in patterns):
                return Verdict(False, Why.RIGHT, f"{line.role} {line.id} may not {right} {service[:TOPIC_LENGTH_MAX]}")
            verdict = ALLOWED
            if len(service) <= TOPIC_LENGTH_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = verdict
        return verdict

    def _decided(self, user: str, operation: str, sender: str, topic: str, name: str) -> Verdict:
        as_client = operation in {Operation.PUT, Operation.GET}
        about_topic = as_client or operation == Operation.SETTINGS
        if not is_id(sender) or (name and not is_id(name)) or not (is_topic(topic) if about_topic else topic == ""):
            return MALFORMED
        line = self.authorized.by_user.get(user)
        if line is None:
            return Verdict(False, Why.KEY, self._gone(user))
        if line.role is not Role.CLIENT:
            return Verdict(False, Why.ROLE, f"{line.role} {line.id} is no client")
        # Commands send REPORT, OPERATE and SETTINGS under other sender IDs, so only the user counts.
        if (as_client or operation == Operation.PATTERN) and not line.id.matches(sender):
            return Verdict(False, Why.SENDER, f"this key is {line.id}'s, not {sender}'s")
        if as_client and not name and topic == letters_topic(sender):
            return ALLOWED
        missing = _missing(line, operation, topic, name)
        return Verdict(False, Why.RIGHT, f"client {sender if as_client else line.id} {missing}") if missing else ALLOWED

    def _gone(self, user: str) -> str:
        """Return a sentence about a user that is not authorized any more."""
        line = self.authorized.by_key.get(self._entered.get(user, b""))
        if line is None:
            return "this key is not authorized any more"
        # ZeroMQ asks about a connection once, so a connection keeps the user that it began with.
        return f"this key is authorized as {line.role} {line.id} since it connected: connect again"

    def zap(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return the reply to a ZAP request; request and reply are frames of a ROUTER socket.

        A malformed request is answered too, and no exception is raised. Without a frame there is no reply.
        """
        if not frames:
            return []
        request = read(frames)
        roles = DOORS.get(request.domain)
        user = self.user(request.key) if request.key else None
        if request.fault or roles is None:
            return self._refuse(request, "malformed", request.fault or "no such domain", FAILED)
        if request.mechanism != "CURVE":
            return self._refuse(request, "refused_mechanism", "only CURVE is accepted")
        if user is None:
            return self._refuse(request, "refused_key", "the key is not authorized")
        if user.line.role not in roles:
            return self._refuse(request, "refused_role", f"{user.name} may not connect here")
        if len(self._entered) >= ENTERED_MAX:
            self._entered.clear()
        self._entered[user.name] = request.key
        self._keep("entered", Handshake(request.domain, request.address, user.name, fingerprint(request.key)))
        return reply(request, OK, "", user.name)

    def take_handshakes(self) -> list[Handshake]:
        """Return the handshakes since the call before, at most HANDSHAKES_KEPT_MAX."""
        taken, self._handshakes = self._handshakes, []
        return taken

    def _refuse(self, request: Request, kind: str, why: str, status: str = REFUSED) -> list[bytes]:
        known = fingerprint(request.key) if request.key else ""
        self._keep(kind, Handshake(request.domain, request.address, fingerprint=known, refused=why))
        return reply(request, status, why)

    def _keep(self, kind: str, handshake: Handshake) -> None:
        self.counters[f"handshakes_{kind}"] += 1
        if len(self._handshakes) < HANDSHAKES_KEPT_MAX:
            self._handshakes.append(handshake)


def _missing(line: Line, operation: str, topic: str, name: str) -> str:
    """Return the end of a sentence about a right that a client lacks; "" if it has the right."""
    if operation == Operation.PUT:
        return "" if any(pattern.matches(topic) for pattern in line.put) else f"may not put to {topic}"
    if operation == Operation.GET:
        if not any(pattern.matches(topic) for pattern in line.get):
            return f"may not get from {topic}"
        if name and not any(pattern.matches(name) for pattern in line.names):
            return f"may not use the subscription {name} of {topic}"
        return ""
    if operation == Operation.PATTERN:
        return "" if line.get else "may not get from any topic"
    if operation == Operation.SETTINGS:
        allowed = line.operate or any(pattern.matches(topic) for pattern in line.get)
        return "" if allowed else f"may not look at the settings of {topic}"
    if operation == Operation.STATUS:
        return "" if line.status or line.operate else "may not ask for status"
    if operation == Operation.OPERATE:
        return "" if line.operate else "may not operate"
    return "may not send this"
