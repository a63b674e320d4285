"""The messages of sinks, which write batches of rows to topics (docs/explanation/spark-exchange.md, *Sinks*)."""

from dataclasses import dataclass
from typing import Annotated

from pubsub.protocol.fields import Contents, Hex, Id, Number, Stages, Topic
from pubsub.protocol.wire import message


@message("STAGE", positional=3)
@dataclass(slots=True)
class Stage:
    """Store rows of a sink's batch durably. No subscriber receives them before they are published."""

    sender: Id
    """The sink's name. It and `publisher` together identify the publisher."""
    topic: Topic
    batch: Number
    """Number of the batch, from 0."""
    publisher: Hex
    """The ID of the sink's query."""
    attempt: Id
    """Identifies one attempt to write one part of the batch."""
    first: Number
    """Number of the first row in the attempt."""
    count: Number
    """Rows in the body."""
    checksum: Annotated[Number, "crc"]
    """CRC-32 of the body."""
    log: Hex = ""
    avoid: Hex = ""
    body: Contents = b""


@message("PUBLISH", positional=3)
@dataclass(slots=True)
class Publish:
    """Append these stages of a sink's batch in one step, in this order. Fields as in STAGE."""

    sender: Id
    topic: Topic
    batch: Number
    publisher: Hex
    stages: Stages = None
    """Attempt to its number of rows; none if the batch has no row for this topic. Attempts answered `duplicate` are
    named too, because another server may have given that answer."""
    log: Hex = ""
    avoid: Hex = ""
