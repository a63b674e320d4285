"""What users of a keyed proxy may do, message by message (docs/security.md).

A user is what ZeroMQ says of each message from a socket that asks for keys: whose key opened its connection. Everything
else is said by the message itself, and is believed only as far as that key allows.

A request that passes carries, in front of its client's link, a tag: the generation of the rules by which it was
allowed, and the user. The tag comes back with the answer, so the proxy holds nothing per request, and an answer to what
was asked before its user's line changed goes to nobody: a long poll of a client whose key was revoked hands out nothing
more. For the core a link with its tag is a link like any other.

    origin    mark   generation       length   user                      link
              c      8 bytes          1 byte   client:alice#1a2b3c4d     as the client's socket chose it, masked

A link is by what a ROUTER knows a connection, and whoever connects under it gets what is sent there. So no server is
shown one: it is masked by bytes that only this process can make, others for each user. A server that has a client's
key besides learns by that nothing of the links of other users.
"""

from __future__ import annotations

from enum import Enum
from hashlib import shake_256
from typing import Any, Final, NamedTuple

from pubsub.base.limits import HEADER_LENGTH_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Operate, decode
from pubsub.protocol.codec import END
from pubsub.security.access import ALLOWED, Access, Verdict, Why
from pubsub.security.authorized import Role
from pubsub.security.doors import Question, question

TAGS_MAX: Final = 16_384
"""Tags that are kept with what was decided of them; with one more they are all forgotten, and decided anew."""

ASKED_MAX: Final = 16_384
"""The same of what messages ask for."""

LINK_BYTES_MAX: Final = 255
"""The longest that ZeroMQ knows."""

GENERATION_BYTES: Final = 8
_LENGTH_AT: Final = GENERATION_BYTES
_USER_AT: Final = GENERATION_BYTES + 1

SERVER_USERS: Final = f"{Role.SERVER}:"
"""What the users begin with who are servers."""

_WRITTEN_DOWN: Final = frozenset({b"SUBSC", b"UNSUB", b"OPERA"})
"""How the messages begin that the audit is told of where they are allowed."""


_ANSWERS: Final = (b"STATUS ", b"VOTE ")


class Course(Enum):
    """What becomes of a client's message."""

    GOES = "goes"
    AUDIT = "audit"  # it goes on, when it was written down
    DENY = "deny"  # answered: no right
    REFUSE = "refuse"  # answered: it cannot be read
    DROP = "drop"  # it is an answer itself: to answer it would never end


class Asked(NamedTuple):
    """A client's message, judged.

    Attributes:
        course: what becomes of it.
        verdict: why.
        question: what it asks for; None where it cannot be read.
    """

    course: Course
    verdict: Verdict
    question: Question | None


UNREADABLE: Final = Asked(Course.REFUSE, Verdict(False, Why.FORM, "the_header_cannot_be_read"), None)


class Rights:
    """What is decided of each message at a keyed proxy.

    Args:
        access: who is authorized; when its rules change, all is decided anew.
        secret: what nobody else knows, other bytes in each process; links are masked by it.
    """

    def __init__(self, access: Access, secret: bytes) -> None:
        self.access, self._secret = access, secret
        self._generation = access.generation
        self._asked: dict[tuple[str, bytes, bytes, bytes], Asked] = {}
        self._tags: dict[str, tuple[bytes, bytes]] = {}
        self._masks: dict[bytes, bytes] = {}
        """Of the tags that came back: their masks, b"" where nobody is to be answered."""
        self._servers: dict[str, str] = {}

    def request(self, user: str, head: bytes) -> Asked:
        """What becomes of a message from a client.

        Args:
            user: whose key opened the connection that it came over.
            head: its prefix and header.
        """
        if self.access.generation != self._generation:
            self._decide_anew()
        parts = head.split(b"-", 3)
        if len(parts) < 4:
            return UNREADABLE
        contents = parts[3]
        words = contents.split(b" ", 3)
        # Of a request that names no subscription all that counts is in its first three words: what was allowed once is
        # allowed with the same words again, and found out in half the time.
        if len(words) < 4 or END not in words[3] or b"name=" in words[3]:
            return self._judge(user, contents)
        key = user, words[0], words[1], words[2]
        asked = self._asked.get(key)
        if asked is None:
            asked = self._judge(user, contents)
            # Of these each word is well formed, and so no longer than a name: nobody fills the table with long ones.
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
            return Asked(Course.AUDIT if contents[:5] in _WRITTEN_DOWN else Course.GOES, verdict, asked)
        return Asked(Course.DROP if contents.startswith(_ANSWERS) else Course.DENY, verdict, asked)

    def tagged(self, user: str, link: bytes) -> bytes:
        """A client's link as the core and the servers know it."""
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
        """The link of the client that an answer is for, without its tag.

        Args:
            origin: mark, tag and link, as they came back from a server.

        Returns:
            None where its user's line has changed since it asked, or is gone, and where there is no tag.
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

    def untagged(self, link: bytes) -> bytes:
        """The link that a ROUTER knows a client by, of one with a tag; else b"", which is nobody's."""
        if len(link) <= _LENGTH_AT:
            return b""
        end = _USER_AT + link[_LENGTH_AT]
        return _masked(link[end:], self._mask(link[:end]))

    def _mask(self, tag: bytes) -> bytes:
        return shake_256(self._secret + tag).digest(LINK_BYTES_MAX)

    def server(self, user: str) -> str:
        """The ID of the server that a user is, "" where it is none, or none any more."""
        if self.access.generation != self._generation:
            self._decide_anew()
        name = self._servers.get(user)
        if name is None:
            name = self._servers[user] = self.access.server(user)
        return name

    def may_use(self, user: str, known: str) -> bool:
        """Whether a user may say anything over a link, as a server.

        Args:
            user: whose key opened the connection.
            known: the server that has announced itself over this link, "" for none.
        """
        name = self.server(user)
        return name != "" and known in {"", name}

    def speaks_for_itself(self, user: str, head: bytes) -> bool:
        """Whether what a server says to the proxy names no other server as its sender.

        What cannot be read is refused by the core, and names nobody.
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
    """A link with its mask put on, or taken off."""
    size = len(link)
    return (int.from_bytes(link, "big") ^ int.from_bytes(mask[:size], "big")).to_bytes(size, "big")


def facts(head: bytes) -> dict[str, Any]:
    """What the audit is to say of an OPERATE; nothing of one that cannot be read, which nobody does."""
    try:
        said = decode(head.split(b"-", 3)[-1][: HEADER_LENGTH_MAX + 1], b"")
    except DecodeError:
        return {}
    assert isinstance(said, Operate)
    names = ("action", "target", "sender", "topic", "server", "address", "subscriber", "log", "store", "stop")
    return {name: getattr(said, name) for name in names if getattr(said, name)}
