"""The names of notes: facts that a server remembers about itself in its store. Each is text or a number.

A name that ends in a space is the prefix of many notes' names, one for each topic or store.
"""

from __future__ import annotations

from typing import Final

GIVEN: Final = "given "
"""The receiver of a topic that was given away; the topic's name follows."""

HELD: Final = "held "
"""The reason why a topic is held back; the topic's name follows."""

STALE: Final = "stale"
"""The reason why the complete store is held back."""

STALE_CHANGE: Final = "stale change"
"""The higher change number that a proxy knew when the store was held back."""

ACCEPTED: Final = "restored"
"""An operator declared this copy of the store the newest one."""

DRAINING: Final = "draining"
"""The server gets no new topics."""

STORE: Final = "store "
"""Another store of the cluster; its ID follows. The value: incarnation and server."""

GONE: Final = "gone "
"""A removed store; its ID follows. The value: the last incarnation that is removed."""

UNHEARD: Final = "unheard "
"""Too few proxies have confirmed the announcement that this server holds a topic; the topic's name follows."""

PATTERN: Final = "pattern "
"""A pattern of topics; its subscriber and the pattern follow. The value: number, 1 if it is on, stamp."""

DELETED: Final = "deleted "
"""A topic that was deleted; its name follows. The value: the number of its last deletion."""

UNDELIVERED: Final = "undelivered "
"""A subscription that went with a deleted topic; the topic and the subscriber follow. The value: its number, and the
messages that it had not acknowledged."""

PORT: Final = "port"
"""The port of the server, if the system chose it."""
