"""Messages and words about topics as objects: purging one, and a topic that does not exist."""

from dataclasses import dataclass
from typing import Final

from pubsub.protocol.fields import Contents, Flag, Hex, Id, Topic
from pubsub.protocol.wire import message

NO_SUCH_TOPIC: Final = "no_such_topic"
"""Reason of a denial: the topic does not exist, and only an operator creates topics."""


@message("PURGE", positional=2)
@dataclass(slots=True)
class Purge:
    """Delete the stored messages of a topic up to some places."""

    sender: Id
    topic: Topic
    unread: Flag = 0
    """1: also messages that a subscriber has not acknowledged."""
    log: Hex = ""
    avoid: Hex = ""
    places: Contents = b""
    """JSON, see `protocol.purges`. Empty: nothing is deleted, and the STATUS has the places of a purge now."""
