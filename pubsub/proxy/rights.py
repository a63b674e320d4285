"""The rights of users at a keyed proxy, checked for each message (docs/security.md).

ZeroMQ adds a user to each message from a socket with keys: the name of the key that opened the connection. Everything
else is a claim of the message itself. It counts only as far as the rights of that key allow.

An allowed request carries a tag in front of its client's link: the generation of the access rules, and the user. The
tag returns with the answer, so the proxy keeps no state per request. If the user's line in the access list changed
meanwhile, the answer is dropped. So a long poll of a client returns nothing after its key was revoked. To the core, a
link with a tag is a link like any other.

    origin    mark   generation       length   user                      link
              c      8 bytes          1 byte   client:alice#1a2b3c4d     as the client's socket chose it, masked

A ROUTER socket knows a connection by its link, and any peer that connects under a link receives its messages. So no
server may see one. Each link is masked with bytes that only this process can compute, different for each user. A
server that also owns a client's key learns nothing about the links of other users from its own.
"""

from __future__ import annotations

from enum import Enum
from hashlib import shake_256
from typing import Any, Final, NamedTuple

from pubsub.base.limits import HEADER_LENGTH_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Configure, Operate, decode
from pubsub.protocol.codec import END
from pubsub.protocol.deletions import Delete
from pubsub.protocol.groups import Group
from pubsub.protocol.topic_objects import Purge
from pubsub.security.access import ALLOWED, Access, Verdict, Why
from pubsub.security.authorized import Role
from pubsub.security.questions import Question, question

TAGS_MAX: Final = 16_384
"""Tags kept with their decisions. When the table is full it is cleared, and the decisions are made again."""

ASKED_MAX: Final = 16_384
"""The same limit for decisions about requests."""

LINK_BYTES_MAX: Final = 255
"""The longest routing ID in ZeroMQ."""

GENERATION_BYTES: Final = 8
_LENGTH_AT: Final = GENERATION_BYTES
_USER_AT: Final = GENERATION_BYTES + 1

SERVER_USERS: Final = f"{Role.SERVER}:"
"""Prefix of the users that are servers."""

_WRITTEN_DOWN: Final = frozenset({b"SUBSC", b"UNSUB", b"OPERA", b"CONFI", b"PURGE", b"PATTE", b"DELET", b"GROUP"})
"""First bytes of the messages that the audit records when they are allowed."""


_ANSWERS: Final = (b"STATUS ", b"VOTE ")


class Course(Enum):
    """The handling of a client's message."""

    GOES = "goes"
    AUDIT = "audit"  # forwarded after the audit has recorded it
    DENY = "deny"  # answered: the user lacks the right
    REFUSE = "refuse"  # answered: the message cannot be read
    DROP = "drop"  # an answer itself, so it is not answered


class Asked(NamedTuple):
    """The decision about a client's message.

    Attributes:
        verdict: the decision of the access rules, with its reason.
        question: the right that the message needs; None if the message cannot be read.
        quota: of an allowed put, the quota of its client; None: there is none.
    """

    course: Course
    verdict: Verdict
    question: Question | None
    quota: tuple[int | None, int | None] | None = None


UNREADABLE: Final = Asked(Course.REFUSE, Verdict(False, Why.FORM, "the_header_cannot_be_read"), None)


class Rights:
    """The decision about each message at a keyed proxy.

    Args:
        access: the access rules; a new generation of them clears every kept decision.
        secret: random bytes of this process, from which the masks of links are computed.
    """

    def __init__(self, access: Access, secret: bytes) -> None:
        self.access, self._secret = access, secret
        self._generation = access.generation
        self._asked: dict[tuple[str, bytes, bytes, bytes], Asked] = {}
        self._tags: dict[str, tuple[bytes, bytes]] = {}
        self._masks: dict[bytes, bytes] = {}
        """By tag of an answer: its mask, b"" if no client may receive the answer."""
        self._servers: dict[str, str] = {}

    def request(self, user: str, head: bytes) -> Asked:
        """Decide about a message from a client.

        Args:
            user: the user of the key that opened the connection.
            head: prefix and header of the message.
        """
        if self.access.generation != self._generation:
            self._decide_anew()
        parts = head.split(b"-", 3)
        if len(parts) < 4:
            return UNREADABLE
        contents = parts[3]
        words = contents.split(b" ", 3)
        # If a request names no subscription, its first three words decide. The decision is kept by these words: a
        # look-up takes half the time of a new decision.
        if len(words) < 4 or END not in words[3] or b"name=" in words[3]:
            return self._judge(user, contents)
        key = user, words[0], words[1], words[2]
        asked = self._asked.get(key)
        if asked is None:
            asked = self._judge(user, contents)
            # Each word of an allowed request is well formed, so it is no longer than a name. Long words cannot fill
            # the table.
            if asked.verdict is ALLOWED and asked.question is not None and asked.question.topic:
                if len(self._asked) >= ASKED_MAX:
                    self._asked.clear()
                self._asked[key] = asked
        return asked

    def _judge(self, user: str, contents: bytes) -> Asked:
        asked = question(contents)
        if asked is None:
            return UNREADABLE
        verdict = self.access.decide(user, *asked)
        if verdict is ALLOWED:
            line = self.access.authorized.by_user.get(user) if contents.startswith(b"PUT ") else None
            course = Course.AUDIT if contents[:5] in _WRITTEN_DOWN else Course.GOES
            return Asked(course, verdict, asked, None if line is None else line.quota)
        return Asked(Course.DROP if contents.startswith(_ANSWERS) else Course.DENY, verdict, asked)

    def tagged(self, user: str, link: bytes) -> bytes:
        """Return a client's link as the core and the servers know it: tag and masked link."""
        if self.access.generation != self._generation:
            self._decide_anew()
        known = self._tags.get(user)
        if known is None:
            name = user.encode("ascii", "replace")
            tag = self._generation.to_bytes(GENERATION_BYTES, "big") + bytes([len(name)]) + name
            if len(self._tags) >= TAGS_MAX:
                self._tags.clear()
            known = self._tags[user] = tag, self._mask(tag)
        return known[0] + _masked(link, known[1])

    def answered(self, origin: bytes) -> bytes | None:
        """Return the link of the client that an answer is for, without its tag.

        Args:
            origin: mark, tag and link, as a server returned them.

        Returns:
            None if the user's line was changed or removed after the request, or if there is no tag.
        """
        if self.access.generation != self._generation:
            self._decide_anew()
        if len(origin) <= 1 + _LENGTH_AT:
            return None
        end = 1 + _USER_AT + origin[1 + _LENGTH_AT]
        tag = origin[1:end]
        mask = self._masks.get(tag)
        if mask is None:
            user = tag[_USER_AT:].decode("ascii", "replace")
            may = self.access.may_be_answered(user, int.from_bytes(tag[:GENERATION_BYTES], "big"))
            if len(self._masks) >= TAGS_MAX:
                self._masks.clear()
            mask = self._masks[tag] = self._mask(tag) if may else b""
        return _masked(origin[end:], mask) if mask else None

    def may_name(self, link: bytes, head: bytes, topic: str) -> bool:
        """Return whether the sender of a request may send the same request about another topic.

        Args:
            link: the client's link, with its tag.
            head: prefix and header of its request.
        """
        asked = question(head.split(b"-", 3)[-1]) if len(link) > _LENGTH_AT else None
        if asked is None:
            return False
        user = link[_USER_AT : _USER_AT + link[_LENGTH_AT]].decode("ascii", "replace")
        return self.access.decide(user, *asked._replace(topic=topic)) is ALLOWED

    def untagged(self, link: bytes) -> bytes:
        """Return the link as the ROUTER knows it, without its tag; b"", which no client has, if there is no tag."""
        if len(link) <= _LENGTH_AT:
            return b""
        end = _USER_AT + link[_LENGTH_AT]
        return _masked(link[end:], self._mask(link[:end]))

    def _mask(self, tag: bytes) -> bytes:
        return shake_256(self._secret + tag).digest(LINK_BYTES_MAX)

    def server(self, user: str) -> str:
        """Return the ID of the server that the user is, "" if the user is no server or lost that right."""
        if self.access.generation != self._generation:
            self._decide_anew()
        name = self._servers.get(user)
        if name is None:
            name = self._servers[user] = self.access.server(user)
        return name

    def may_use(self, user: str, known: str) -> bool:
        """Return whether the user may send messages of a server over a link.

        Args:
            user: the user of the key that opened the connection.
            known: the ID of the server that has announced itself over this link, "" for none.
        """
        name = self.server(user)
        return name != "" and known in {"", name}

    def speaks_for_itself(self, user: str, head: bytes) -> bool:
        """Return whether a server's message to the proxy names the server itself as its sender.

        A message that cannot be read names no sender; the core refuses it.
        """
        asked = question(head.split(b"-", 3)[-1])
        return asked is None or asked.sender == self.server(user)

    def _decide_anew(self) -> None:
        self._generation = self.access.generation
        self._asked.clear()
        self._tags.clear()
        self._masks.clear()
        self._servers.clear()


def _masked(link: bytes, mask: bytes) -> bytes:
    """Put the mask on a link, or remove it."""
    size = len(link)
    return (int.from_bytes(link, "big") ^ int.from_bytes(mask[:size], "big")).to_bytes(size, "big")


def facts(head: bytes) -> dict[str, Any]:
    """Return the fields of an operator's request for the audit; none if no process can read it and act on it."""
    try:
        said = decode(head.split(b"-", 3)[-1][: HEADER_LENGTH_MAX + 1], b"")
    except DecodeError:
        return {}
    if isinstance(said, Configure):
        return {"action": "configure", "sender": said.sender, "topic": said.topic, "version": said.version}
    if isinstance(said, Purge):
        return {"action": "purge", "sender": said.sender, "topic": said.topic, "unread": said.unread}
    if isinstance(said, Delete):
        return {"action": "delete", "sender": said.sender, "topic": said.topic, "number": said.number}
    if isinstance(said, Group):
        return {
            "action": said.action,
            "sender": said.sender,
            "topic": said.topic,
            "group": said.name,
            "member": said.member,
        }
    assert isinstance(said, Operate)
    names = ("action", "target", "sender", "topic", "server", "address", "subscriber", "log", "store", "stop", "number")
    return {name: getattr(said, name) for name in names if getattr(said, name)}
