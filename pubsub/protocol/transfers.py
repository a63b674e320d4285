"""The messages by which a server finds a topic's other holders, and moves a topic."""

from dataclasses import dataclass
from typing import Annotated

from pubsub.protocol.fields import Contents, Hex, Id, Number, Topic, Topics, Word
from pubsub.protocol.wire import message


@message("WHOLE", positional=1, also="OWNERS")
@dataclass(slots=True)
class Owners:
    """Ask for the other holders of these topics. The body of the STATUS has them."""

    sender: Id
    topics: Topics = None


@message("MERGE", positional=3)
@dataclass(slots=True)
class Merge:
    """Ask a server to give this topic to the server at `address`, which holds the log `log`."""

    sender: Id
    topic: Topic
    address: Word
    log: Hex = ""


@message("TRANSFER", positional=2)
@dataclass(slots=True)
class Transfer:
    """One step of moving a topic from one server to another."""

    sender: Id
    topic: Topic
    step: Word = "offer"
    """One of offer, accepted, chunk, commit, done."""
    transfer: Hex = ""
    """The ID of this transfer."""
    chunk: Number = 0
    """Number of the chunk, from 0."""
    log: Hex = ""
    """The open log of the topic at the giver. With `accepted`, the receiver's own, "" if it does not hold the topic."""
    body: Contents = b""
    """With `chunk`, the chunk. With `commit`, other holders that became known since the first chunk."""
    store: Hex = ""
    """With `done`, the receiver's store."""
    change: Number = 0
    """With `done`, a change number of that store from after the merge."""
    form: Number = 1
    """With `accepted`, the newest format of chunks that the receiver reads; 1: an earlier release, which sends none."""
    deletion: Annotated[Number, "!deletion"] = 0
    """From the giver, the number of the last deletion of the topic's name; 0: the name was never deleted."""
