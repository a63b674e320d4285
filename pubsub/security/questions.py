"""The right that a message needs, found equally from its header and from the decoded message.

A proxy does not decode the messages that it forwards. It reads a few words of the header, and the server later reads
all of it. If the two read differently, a message could be allowed for one topic and served for another. So for every
message that can be decoded, `question` of its bytes equals `question_of` of the decoded message. The server refuses any
other message, independent of the proxy's decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pubsub.base.limits import HEADER_LENGTH_MAX
from pubsub.protocol import messages as m
from pubsub.protocol.batch import Buffer
from pubsub.protocol.codec import END
from pubsub.protocol.deletions import Delete
from pubsub.protocol.families import Matching, Pattern
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.protocol.sinks import Publish, Stage
from pubsub.protocol.topic_objects import Purge
from pubsub.security.access import Operation


class Question(NamedTuple):
    """The right that a message needs: the arguments of `Access.decide` after the user."""

    operation: Operation
    sender: str
    topic: str = ""
    name: str = ""


_BY_NAME: Final[Mapping[bytes, Operation]] = {
    b"PUT": Operation.PUT,
    b"STAGE": Operation.PUT,
    b"PUBLISH": Operation.PUT,
    b"SUBSCRIBE": Operation.GET,
    b"UNSUBSCRIBE": Operation.GET,
    b"GET": Operation.GET,
    b"READ": Operation.GET,
    b"WORK": Operation.GET,
    b"DESCRIBE": Operation.SETTINGS,
    b"GROUP": Operation.OPERATE,
    b"SETTINGS": Operation.SETTINGS,
    b"CONFIGURE": Operation.OPERATE,
    b"PATTERN": Operation.PATTERN,
    b"MATCHING": Operation.PATTERN,
    b"PURGE": Operation.OPERATE,
    b"DELETE": Operation.OPERATE,
    b"REPORT": Operation.STATUS,
    b"OPERATE": Operation.OPERATE,
}
"""Message name on the wire to the operation; any other message is OTHER."""


_PUT, _GET, _OTHER = Operation.PUT, Operation.GET, Operation.OTHER  # An attribute look-up costs as much as the rest.
_SETTINGS: Final = Operation.SETTINGS


def question(contents: Buffer) -> Question | None:
    """Return the right needed by the message with this header; None if it cannot be read and has to be refused."""
    raw = bytes(contents[: HEADER_LENGTH_MAX + 1])
    end = raw.find(END)
    if end < 0:
        return None
    words = raw[:end].split(b" ", 3)
    operation = _BY_NAME.get(words[0], _OTHER)
    try:
        if operation is _OTHER:
            return Question(operation, words[1].decode("ascii") if len(words) > 1 else "")
        if len(words) < 4:  # Every request has three words and the version, so a shorter one cannot be decoded.
            return None
        if operation is _PUT or operation is _SETTINGS:
            return Question(operation, words[1].decode("ascii"), words[2].decode("ascii"))
        if operation is not _GET:
            return Question(operation, words[1].decode("ascii"))
        name = _name(words[3])
        return None if name is None else Question(operation, words[1].decode("ascii"), words[2].decode("ascii"), name)
    except UnicodeDecodeError:
        return None


def _name(rest: bytes) -> str | None:
    """Return the named subscription in the rest of a header, "" for none; None if it is invalid."""
    if b"name=" not in rest:
        return ""
    names = [word[5:] for word in rest.split(b" ") if word.startswith(b"name=")]
    if len(names) > 1 or b"" in names:
        return None
    return names[0].decode("ascii") if names else ""


def question_of(message: m.Message) -> Question:
    """Return the right that a decoded message needs."""
    if isinstance(message, m.Put | Stage | Publish):
        return Question(Operation.PUT, message.sender, message.topic)
    if isinstance(message, m.Subscribe | m.Unsubscribe | m.Get | m.Read):
        return Question(Operation.GET, message.sender, message.topic, message.name)
    if isinstance(message, Work):
        return Question(Operation.GET, message.sender, message.topic, message.group)
    if isinstance(message, Pattern | Matching):
        return Question(Operation.PATTERN, message.sender)
    if isinstance(message, m.Settings | Describe):
        return Question(Operation.SETTINGS, message.sender, message.topic)
    if isinstance(message, m.Report):
        return Question(Operation.STATUS, message.sender)
    if isinstance(message, m.Operate | m.Configure | Purge | Delete | Group):
        return Question(Operation.OPERATE, message.sender)
    return Question(Operation.OTHER, message.sender)
