"""Access: who may enter at which door, and whether who has entered may do what a message asks for.

The file of who is authorized is replaced as a whole. After that every decision is made anew, so a key that was taken
out is denied its next request, and what was asked before a user's line changed is not answered any more
(`may_be_answered`). Who has entered and has the same line as before notices nothing.

A decision is kept in one table by all that it depends on, so that nearly every message costs one look-up. Only what is
well formed gets into the table, which bounds what an entry takes; a full table is emptied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pubsub.base.limits import TOPIC_LENGTH_MAX
from pubsub.protocol.names import is_id, is_topic
from pubsub.security.authorized import Authorized, Difference, Line, Role
from pubsub.security.fingerprints import fingerprint
from pubsub.security.zap import FAILED, OK, REFUSED, Request, read, reply

DECISIONS_MAX: Final = 65_536
"""Decisions that are kept; with one more they are all forgotten, and made again when they are asked for."""

HANDSHAKES_KEPT_MAX: Final = 1_024
"""Handshakes that are kept until `take_handshakes`; of more only the counters tell."""

ENTERED_MAX: Final = 10_000
"""Users whose keys are remembered, to tell them what became of their lines; with one more they are all forgotten."""

CLIENTS: Final = "clients"
SERVERS: Final = "servers"
BOTH: Final = "both"
DOORS: Final[Mapping[str, frozenset[Role]]] = {
    CLIENTS: frozenset({Role.CLIENT}),
    SERVERS: frozenset({Role.SERVER}),
    BOTH: frozenset({Role.CLIENT, Role.SERVER}),
}
"""ZAP domain of a socket -> whose keys may enter there. A proxy enters nowhere: it is connected to."""


class Operation(StrEnum):
    """What a message asks for, as far as rights tell it apart."""

    PUT = "put"
    GET = "get"
    STATUS = "status"
    OPERATE = "operate"
    OTHER = "other"  # no request of a client: nobody has a right to it


class Why(StrEnum):
    """Why something is denied."""

    NONE = ""  # it is allowed
    FORM = "form"  # sender, topic or name cannot be one
    KEY = "key"  # the user's key is not authorized, or not any more
    ROLE = "role"  # a server's key asks what clients ask
    SENDER = "sender"  # the message names another ID than its key's
    RIGHT = "right"  # no right to this operation, on this topic or under this name


class Verdict(NamedTuple):
    """Whether something is allowed, and the sentence for who asked."""

    allowed: bool
    why: Why = Why.NONE
    text: str = ""


ALLOWED: Final = Verdict(True)
MALFORMED: Final = Verdict(False, Why.FORM, "the message names a sender, topic or subscription that cannot be one")


@dataclass(frozen=True, slots=True)
class User:
    """Who a key is.

    Attributes:
        name: `client:alice#1a2b3c4d`, what ZeroMQ calls the User-Id of each of its messages.
        line: what it may do.
    """

    name: str
    line: Line


@dataclass(frozen=True, slots=True)
class Handshake:
    """One newcomer, and what became of it.

    Attributes:
        domain: which door.
        address: where it is, as far as ZeroMQ knows.
        user: who it is, "" where it was refused.
        fingerprint: of its key, "" where it has none.
        refused: why it was refused, "" where it has entered.
    """

    domain: str
    address: str
    user: str = ""
    fingerprint: str = ""
    refused: str = ""


class Access:
    """What a process decides with one file of who is authorized.

    Args:
        authorized: what the file says at the start.
        generation: of the rules, at first; higher than at any earlier start, so that what was asked then is not
            answered by mistake (microseconds since 1970 will do).

    Attributes:
        authorized: what the file says.
        generation: rises with each change of the rules.
        counters: how often what happened: handshakes_entered, handshakes_refused_key, _role, _mechanism,
            handshakes_malformed.
    """

    def __init__(self, authorized: Authorized, generation: int = 1) -> None:
        self.authorized = authorized
        self.generation = generation
        self.counters: Counter[str] = Counter()
        self._since = dict.fromkeys(authorized.by_user, generation)
        self._decisions: dict[tuple[str, str, str, str, str], Verdict] = {}
        self._entered: dict[str, bytes] = {}
        self._handshakes: list[Handshake] = []

    def replace(self, authorized: Authorized) -> Difference:
        """Go on with another version of the file; what came and what went."""
        difference = authorized.difference(self.authorized)
        self.authorized = authorized
        if difference.came or difference.went:
            self.generation += 1
            self._decisions.clear()
            came = {line.user for line in difference.came}
            before = self._since
            self._since = {user: self.generation if user in came else before[user] for user in authorized.by_user}
        return difference

    def user(self, key: bytes) -> User | None:
        """Who has this public key; None: nobody who is authorized."""
        line = self.authorized.by_key.get(key)
        return None if line is None else User(line.user, line)

    def server(self, user: str) -> str:
        """The ID of the server that a user is: what its messages must name as their sender; "" where it is none."""
        line = self.authorized.by_user.get(user)
        return str(line.id) if line is not None and line.role is Role.SERVER else ""

    def may_be_answered(self, user: str, generation: int) -> bool:
        """Whether an answer may go to a user who asked when the rules had this generation.

        One that the rules have not reached was not asked of this process: somebody made it up, or the clock by which
        the first generation was set has gone back.
        """
        return self._since.get(user, generation + 1) <= generation <= self.generation

    def decide(self, user: str, operation: str, sender: str, topic: str, name: str) -> Verdict:
        """Whether a user may do this.

        Args:
            user: the User-Id of the message, from a socket that asks for keys; from any other it is worth nothing.
            operation: an Operation.
            sender: the ID that the message names as its sender.
            topic: the topic, "" for operations that have none.
            name: of the named subscription, "" for none.
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

    def decide_service(self, user: str, right: str, service: str) -> Verdict:
        """Whether a user may call a service, or do its work.

        Args:
            user: the User-Id of the message, from a socket that asks for keys.
            right: "call" or "serve"; "": only to be here.
            service: its name, as the message has it.
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
        about_topic = operation in {Operation.PUT, Operation.GET}
        if not is_id(sender) or (name and not is_id(name)) or not (is_topic(topic) if about_topic else topic == ""):
            return MALFORMED
        line = self.authorized.by_user.get(user)
        if line is None:
            return Verdict(False, Why.KEY, self._gone(user))
        if line.role is not Role.CLIENT:
            return Verdict(False, Why.ROLE, f"{line.role} {line.id} is no client")
        # REPORT and OPERATE are sent by commands, under names of their own; who asks is the user.
        if about_topic and not line.id.matches(sender):
            return Verdict(False, Why.SENDER, f"this key is {line.id}'s, not {sender}'s")
        missing = _missing(line, operation, topic, name)
        return (
            Verdict(False, Why.RIGHT, f"client {sender if about_topic else line.id} {missing}") if missing else ALLOWED
        )

    def _gone(self, user: str) -> str:
        """Why there is no such user any more, as a sentence."""
        line = self.authorized.by_key.get(self._entered.get(user, b""))
        if line is None:
            return "this key is not authorized any more"
        # Who is connected stays who it was when it entered, since ZeroMQ asks of a connection once.
        return f"this key is authorized as {line.role} {line.id} since it connected: connect anew"

    def zap(self, frames: Sequence[bytes]) -> list[bytes]:
        """The reply to a ZAP request: frames as they came from the ROUTER, and as they are to be sent by it.

        Malformed requests are answered too; nothing is ever raised. Without any frame there is nothing to send.
        """
        if not frames:
            return []
        request = read(frames)
        roles = DOORS.get(request.domain)
        user = self.user(request.key) if request.key else None
        if request.fault or roles is None:
            return self._refuse(request, "malformed", request.fault or "no such domain", FAILED)
        if request.mechanism != "CURVE":
            return self._refuse(request, "refused_mechanism", "only CURVE is let in")
        if user is None:
            return self._refuse(request, "refused_key", "the key is not authorized")
        if user.line.role not in roles:
            return self._refuse(request, "refused_role", f"{user.name} does not enter here")
        if len(self._entered) >= ENTERED_MAX:
            self._entered.clear()
        self._entered[user.name] = request.key
        self._keep("entered", Handshake(request.domain, request.address, user.name, fingerprint(request.key)))
        return reply(request, OK, "", user.name)

    def take_handshakes(self) -> list[Handshake]:
        """What became of those who came since the call before, at most HANDSHAKES_KEPT_MAX of them."""
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
    """What a client may not do, as the end of a sentence; "" where it may."""
    if operation == Operation.PUT:
        return "" if any(pattern.matches(topic) for pattern in line.put) else f"may not put to {topic}"
    if operation == Operation.GET:
        if not any(pattern.matches(topic) for pattern in line.get):
            return f"may not get from {topic}"
        if name and not any(pattern.matches(name) for pattern in line.names):
            return f"may not use the subscription {name} of {topic}"
        return ""
    if operation == Operation.STATUS:
        return "" if line.status or line.operate else "may not ask for status"
    if operation == Operation.OPERATE:
        return "" if line.operate else "may not operate"
    return "may not send this"
