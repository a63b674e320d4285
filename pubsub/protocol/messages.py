"""The service's messages: one dataclass each (docs/architecture.md, *The protocol*; Pires et al., section 3.1).

The positional fields are those of Pires et al., in their order; the others are ours and travel as `name=value`. A
field is declared here alone: `protocol.wire` derives the codec from its annotation. Times within messages are
milliseconds where the name ends in `_ms` and microseconds since 1970 where it is a stamp. The messages of a register
are in `protocol.register`, those of two members in `protocol.standby`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pubsub.protocol.fields import (
    Action,
    Contents,
    Flag,
    Hex,
    Id,
    Number,
    Place,
    Roster,
    Rows,
    Stages,
    Start,
    Target,
    Topic,
    Topics,
    Word,
    one_of,
)
from pubsub.protocol.names import LATEST
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, Vote
from pubsub.protocol.standby import Ack, Copy, Entries, Follow, Repair
from pubsub.protocol.wire import message


class Outcome(StrEnum):
    """What a STATUS says happened. Whether that is final, and for whom, is in the sets below."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"  # a put that was taken before: a success
    EMPTY = "empty"  # nothing to hand out within the wait
    LOST = "lost"  # these records cannot be handed out any more; acknowledged like others
    GAP = "gap"  # a put whose `previous` is above what this log holds of its publisher
    UNAVAILABLE = "unavailable"  # no live holder, or this proxy may not route yet
    MOVED = "moved"  # the topic is on its way to another server
    BUSY = "busy"  # a queue is at its limit, or a question about the topic is still open
    FULL = "full"  # the disk or the topic's backlog is full
    UNKNOWN = "unknown"  # the topic or the subscription is not known here
    GONE = "gone"  # the log that is named was given up
    BEHIND = "behind"  # the position is older than what was acknowledged
    SUPERSEDED = "superseded"  # the subscription, or the client, was opened anew elsewhere
    RESTAGE = "restage"  # a stage that a publish names is not here in full: write the batch again
    REFUSED = "refused"  # the bytes themselves cannot be served
    DENIED = "denied"  # whoever asked has no right to it now; an earlier try may have been taken
    ANNOUNCE = "announce"  # to a server: who are you? announce yourself
    TAKEN = "taken"  # to a server: its ID or store is in use by one that is still heard
    STALE = "stale"  # to a server: an announcement older than what was heard before
    DEPOSED = "deposed"  # to a member: a primary of a higher term was heard; by a standby, of itself: where that is


RETRY: Final = frozenset({Outcome.GAP, Outcome.UNAVAILABLE, Outcome.MOVED, Outcome.BUSY, Outcome.FULL, Outcome.UNKNOWN})
"""Outcomes after which nothing has happened, and an earlier or later try may succeed."""


@message("SUBSCRIBE", positional=2)
@dataclass(slots=True)
class Subscribe:
    """Start receiving a topic: from its end on, or from an earlier place on."""

    sender: Id
    topic: Topic
    number: Number
    """Of this transmission, from the client's allocator; the highest wins."""
    opening: Number
    """The first number of this open client."""
    log: Hex = ""
    """The log of the client's last answer on this topic."""
    avoid: Hex = ""
    """A log whose holder answered a gap or a wrong number."""
    name: Id = ""
    """Of a named subscription, which belongs to no client; "": the sender's own."""
    start: Annotated[Start, "from"] = LATEST
    """Where a subscription begins that is new. `earliest`: at the first record that the topic still holds. A stamp:
    without records of an earlier stamp. An earlier release reads it only with `name`, as `earliest` or `latest`. It
    refuses the other forms, so a client that must not begin at the end there says `@0` for `earliest`."""
    continues: Annotated[Flag, "!continue"] = 0
    """1: an open subscription under the sender's ID keeps its place; 0: it begins at `from`.
    Insisted on, since an earlier release would drop the waiting messages."""


@message("UNSUBSCRIBE", positional=2)
@dataclass(slots=True)
class Unsubscribe:
    """Stop receiving, and forget what is waiting. Fields as in SUBSCRIBE."""

    sender: Id
    topic: Topic
    number: Number
    opening: Number
    log: Hex = ""
    avoid: Hex = ""
    name: Id = ""


@message("GET", positional=3)
@dataclass(slots=True)
class Get:
    """Hand out records, and acknowledge up to `last`."""

    sender: Id
    topic: Topic
    last: Place
    """The position that is durable at the client; none: from the subscription's own position."""
    number: Number
    """Of the subscription. With `name`: 1 where a checkpoint takes the subscription over from another one."""
    opening: Number
    """Of the client. With `name`: the token of the checkpoint that acknowledges, 0 for none."""
    after: Place = None
    """The position received and not durable yet; none: the same as `last`."""
    records_max: Annotated[Number, "max"] = 1
    """At least one record is handed out. 0: acknowledge only."""
    bytes_max: Annotated[Number, "bytes"] = 0
    wait_ms: Annotated[Number, "wait"] = 0
    """The server may wait so long for the first record."""
    log: Hex = ""
    avoid: Hex = ""
    name: Id = ""
    """Of a named subscription; a GET with a name only acknowledges."""


@message("READ", positional=3)
@dataclass(slots=True)
class Read:
    """Hand out a range, acknowledge nothing."""

    sender: Id
    topic: Topic
    after: Place
    """The range begins behind this position; none: at the start of the subscription, or of the stored records."""
    until: Place = None
    """The last position of the range; none: the last there is."""
    name: Id = ""
    """Of the named subscription along whose legs the range lies; "": along all that the topic holds."""
    records_max: Annotated[Number, "max"] = 0
    """At least one record is handed out. 0: no record but the plan of the range, as JSON."""
    bytes_max: Annotated[Number, "bytes"] = 0
    log: Hex = ""
    avoid: Hex = ""


@message("PUT", positional=3)
@dataclass(slots=True)
class Put:
    """A batch of records."""

    sender: Id
    topic: Topic
    counter: Number
    """Of the first record; the others follow one by one."""
    publisher: Hex
    """The client's store ID, which with the sender is the publisher."""
    count: Number
    """Records in the batch."""
    previous: Number
    """The publisher's counter before this one on this topic that was not discarded; 0: none."""
    checksum: Annotated[Number, "crc"]
    """CRC-32 of the body."""
    whole: Flag = 0
    """1: taken only while no other server holds any of the topic."""
    cumulative: Flag = 0
    """1: where several of a chain are taken together, the answer to the last is enough."""
    rows: Annotated[Rows, "!rows"] = 0
    """Rows of a train (see `protocol.train`). It has counter and previous of its first row, the count of all rows and
    the checksum of their table; 0, which is not sent: the body is one batch."""
    log: Hex = ""
    avoid: Hex = ""
    body: Contents = b""


@message("STAGE", positional=3)
@dataclass(slots=True)
class Stage:
    """Keep rows of a sink's batch, durably, and show them to nobody until they are published."""

    sender: Id
    """The sink's name, which with `publisher` is the publisher."""
    topic: Topic
    batch: Number
    """Number of the batch, from 0."""
    publisher: Hex
    """The ID of the sink's query."""
    attempt: Id
    """Names the writing of one part of the batch, fresh for each try."""
    first: Number
    """Number of the first row within the attempt."""
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
    """Append these stages of a sink's batch, all of them in one step, in this order. Fields as in STAGE."""

    sender: Id
    topic: Topic
    batch: Number
    publisher: Hex
    stages: Stages = None
    """Attempt to its number of rows; none where the batch has no row for this topic. Attempts with a STAGE that was
    answered `duplicate` are named too, since another server may have given that answer."""
    log: Hex = ""
    avoid: Hex = ""


@message("PERIODIC", positional=1)
@dataclass(slots=True)
class Periodic:
    """A server's announcement of the topics it holds."""

    sender: Id
    store: Hex
    """The ID of its store."""
    incarnation: Number
    """Rises with each of its starts."""
    change: Number
    """Rises with each change of its topics; orders announcements within an incarnation."""
    address: Word
    """Other servers reach it here."""
    proxies: Word
    """The proxies of its configuration, sorted, separated by commas."""
    stamp: Number
    """The highest stamp it gave out or heard of."""
    partial: Flag = 0
    """1: `topics` holds only what changed since the announcement before."""
    topics: Topics = None
    """Topic to the ID of its open log; "" for a topic that is no longer held. After the open log come, separated by
    commas, the logs that were ended because the store was restored. A topic that was given to another server has
    `server.log,store,change`: that server, its log, its store, and its change number after the join."""
    previous: Number = 0
    """The change number of the announcement before to the same proxy, which shows a missing one; 0: not said."""
    draining: Flag = 0
    """1: it is to be given no new topic."""
    stores: Roster = ""
    """With all topics, the other stores of the cluster, see `protocol.stores`."""
    gone: Roster = ""
    """With all topics, the stores that count as gone."""
    made: Number = 0
    """The server's clock when it made this (microseconds since 1970)."""
    member: Hex = ""
    """The member that sends this as the primary of a store with a register; the incarnation is the term then.
    "": the store has no register, as far as the server knows."""


@message("HEARTBEAT", positional=1)
@dataclass(slots=True)
class Heartbeat:
    """Still here."""

    sender: Id
    stamp: Number = 0
    leaving: Flag = 0
    """1: this is the last one."""
    empty: Flag = 0
    """1: and the server, which is drained, holds nothing any more."""


@message("WHOLE", positional=1)
@dataclass(slots=True)
class Whole:
    """Does any other server hold any of these topics? Answered by the body of a STATUS."""

    sender: Id
    topics: Topics = None


@message("MERGE", positional=3)
@dataclass(slots=True)
class Merge:
    """Give this topic to the server at `address`, which holds the log `log`."""

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
    """The open log of the topic that is given; with `accepted` the receiver's own, "" if it holds none of it."""
    body: Contents = b""
    """With `chunk`, the chunk; with `commit`, other holders that were learned of since the first chunk."""
    store: Hex = ""
    """With `done`, the receiver's store."""
    change: Number = 0
    """With `done`, a change number of that store that comes after the join."""
    form: Number = 1
    """With `accepted`, the newest form of chunks that the receiver reads; 1: an earlier release, which says none."""


@message("REPORT", positional=2)
@dataclass(slots=True)
class Report:
    """What do you know? Asked by an operator's command, answered with JSON in the body."""

    sender: Id
    target: Target
    """A server's ID: the proxy passes the question on to it; "-": the proxy itself."""
    topic: Topic = ""
    """The answer covers this topic only; "": as many as fit."""


@message("OPERATE", positional=3)
@dataclass(slots=True)
class Operate:
    """An operator's action. Answered like any request; a repeat finds it done."""

    sender: Id
    target: Target
    """As in REPORT."""
    action: Action
    """The action (docs/operations.md lists them); the fields that follow are its objects."""
    topic: Topic = ""
    server: Id = ""
    """Another server."""
    address: Word = ""
    """Servers reach that server here."""
    subscriber: Word = ""
    log: Hex = ""
    """Of the topic, at that server."""
    store: Hex = ""
    """That server's."""
    stop: Flag = 0
    """1: the action is to end."""
    member: Hex = ""
    """Of a server that has two."""


@message("STATUS", positional=3)
@dataclass(slots=True)
class Status:
    """The answer to every other message."""

    sender: Id
    outcome: Annotated[Outcome, one_of("a status", Outcome)]
    message: Place = None
    """With records, the position of the last one."""
    reason: Word = ""
    """A few words for a person, spaces written as `_`."""
    last: Number = -1
    """The highest counter held of the publisher."""
    position: Place = None
    """The subscription's position."""
    first: Place = None
    """With LOST, the first lost position; `message` is the last."""
    number: Number = 0
    """The subscription's, where a higher one is known."""
    opening: Number = 0
    """As `number`."""
    log: Hex = ""
    """The log that answered."""
    records: Number = 0
    """Records in the body."""
    checksum: Annotated[Number, "crc"] = 0
    """Of the body."""
    change: Number = 0
    """Of the announcement that is answered."""
    stamp: Number = 0
    """The highest one known."""
    server: Id = ""
    """The answer is about this server."""
    rows: Number = 0
    """Rows staged so far, or published."""
    stores: Roster = ""
    """To PERIODIC: known stores that its server lacks, see `protocol.stores`."""
    gone: Roster = ""
    """To PERIODIC: gone stores that its server lacks."""
    since: Number = 0
    """To WHOLE: the proxy has an announcement of all topics from every other store that it knows, made at this time or
    later; 0: it has not."""
    term: Number = 0
    """With DEPOSED, of the primary that was heard."""
    doubtful: Flag = 0
    """1: all records of the body were handed out before, to a state directory of the client's that did not acknowledge
    them. To SUBSCRIBE: the subscription holds such records."""
    body: Contents = b""
    """Records, JSON, or topics. To WHOLE: each topic with its other holders, as `server.log`, separated by commas. To
    PERIODIC: those of the server's topics that have several holders, with all of them; and those that were given up
    there, with the log alone."""


Message = (
    Subscribe
    | Unsubscribe
    | Get
    | Read
    | Put
    | Stage
    | Publish
    | Periodic
    | Heartbeat
    | Whole
    | Merge
    | Transfer
    | Prepare
    | Accept
    | Look
    | Admit
    | Vote
    | Forget
    | Entries
    | Follow
    | Ack
    | Copy
    | Repair
    | Report
    | Operate
    | Status
)


SENTENCE_CHARACTERS_MAX: Final = 300
"""Of what a proxy says in a denial; more of it is not shown."""


def denial(status: Status) -> str:
    """What a proxy says to whom it denies something; it came over the network, so nothing of it moves a terminal."""
    said = bytes(status.body).decode("utf-8", "replace")[:SENTENCE_CHARACTERS_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in said).strip()
