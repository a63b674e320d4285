"""The messages that delete topics: between an operator and each proxy, and between proxies and servers.

The rules are those of docs/explanation/deletion.md.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pubsub.protocol.deletion_table import Deletion, split_deletions
from pubsub.protocol.fields import Body, Hex, Id, Number, Topic
from pubsub.protocol.rows import join_rows
from pubsub.protocol.wire import message

DELETED: Final = "deleted"
"""Reason of an answer `gone`: an operator deleted the topic."""

NAME_THE_LOG: Final = "name_the_log"
"""Reason of an answer `gap`: the topic's name was deleted before, so a new publisher must name the log as `avoid`."""

Deletions = Annotated[tuple[Deletion, ...] | None, Body("deletions", join_rows, split_deletions)]


@message("DELETE", positional=2)
@dataclass(slots=True)
class Delete:
    """Delete a topic. An operator sends it to every proxy; the proxy answers itself."""

    sender: Id
    topic: Topic
    number: Number = 0
    """The number of the deletion, the same at every proxy. 0: nothing is deleted, and the answer has the number of the
    last deletion of the name and the proxy's clock as `stamp`."""


@message("DELETED", positional=2)
@dataclass(slots=True)
class Deleted:
    """Deletions that a proxy knows, for a server, and the server's answer with those that the proxy lacks."""

    sender: Id
    digest: Hex
    """Of the sender's whole table."""
    rows: Deletions = None
