"""The messages by which a client subscribes to a topic, and ends that."""

from dataclasses import dataclass
from typing import Annotated

from pubsub.protocol.fields import Flag, Hex, Id, Number, Start, Topic
from pubsub.protocol.groups import Attempts, Joined, OnLost, Parts
from pubsub.protocol.names import LATEST
from pubsub.protocol.wire import message


@message("SUBSCRIBE", positional=2)
@dataclass(slots=True)
class Subscribe:
    """Start receiving a topic, from its end or from an earlier place."""

    sender: Id
    topic: Topic
    number: Number
    """The number of this transmission, from the client's allocator. The highest number counts."""
    epoch: Annotated[Number, "opening", "epoch"]
    """The first number of the client's present session."""
    log: Hex = ""
    """The log in the last answer about this topic."""
    avoid: Hex = ""
    """A log that answered with a gap or a wrong number: its holder is avoided."""
    name: Id = ""
    """The name of a named subscription, which belongs to no client; "": the sender's own subscription."""
    start: Annotated[Start, "from"] = LATEST
    """Where a new subscription begins. `earliest`: at the first stored record. A timestamp: only records with that
    timestamp or a later one are sent. `last:N`: at the last N records that the history shows. An earlier release reads
    this only with `name`, as `earliest` or `latest`, and refuses the other forms. So a client that must not begin at
    the end there sends `@0` for `earliest`."""
    continues: Annotated[Flag, "!continue"] = 0
    """1: an open subscription with the sender's ID keeps its place. 0: it begins at `from`. Insisted on, because an
    earlier release would drop the waiting messages."""
    pattern: Annotated[Number, "!pattern"] = 0
    """The number of the pattern by which the client joins the topic. A start at a timestamp then allows for the bound
    on skew. 0: the client names the topic itself."""
    group: Annotated[Joined, "!group"] = ""
    """The mode of a consumer group with this `name`, which is made unless it exists. `any`: as it is, and if it is made
    a shared one. "": this is no group."""
    parts: Parts = 0
    """Parts of a keyed group; 0: as it is, and if it is made 256."""
    on_lost: Annotated[OnLost, "onlost"] = ""
    """`redeliver`: the claims of a member that is silent for `lost` are given up. "": as it is, and if it is made
    `wait`."""
    lost_ms: Annotated[Number, "lost"] = 0
    """Milliseconds; 0: as it is, and if it is made 600,000."""
    attempts: Attempts = 0
    """Attempts after which a record becomes a dead letter; 0: as it is, and if it is made 5."""


@message("UNSUBSCRIBE", positional=2)
@dataclass(slots=True)
class Unsubscribe:
    """Stop receiving, and drop the backlog. Fields as in SUBSCRIBE."""

    sender: Id
    topic: Topic
    number: Number
    epoch: Annotated[Number, "opening", "epoch"]
    log: Hex = ""
    avoid: Hex = ""
    name: Id = ""
    group: Annotated[Flag, "!group"] = 0
    """1: end the consumer group with this `name`, for all its members."""
    force: Annotated[Flag, "!force"] = 0
    """With `!group`, 1: also while a silent member has claims."""
