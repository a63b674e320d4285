"""The places up to which an operator purged a log of a topic (docs/explanation/topics.md, U4, U5 and U7).

A purge is two offsets for each log. Below `kept` no message stays for the sake of `keep`. Below `unread` a message goes
although a subscriber has not acknowledged it, and the subscriber is told so. Both only rise, so a repeated or late
request changes nothing. A message is deleted by retention. From the purge on it is not handed out any more.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pubsub.server.topic.spans import Number

PURGED: Final = "purged"
"""Reason of a loss: an operator purged the messages."""


class Places(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The places of a log.

    Attributes:
        kept: the offset below which `keep` keeps nothing.
        unread: the offset below which messages go although a subscriber has not acknowledged them; at most `kept`.
    """

    kept: Number = 0
    unread: Number = 0

    def with_both(self, other: Places) -> Places:
        return Places(max(self.kept, other.kept), max(self.unread, other.unread))


NOWHERE: Final = Places()
