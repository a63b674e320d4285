"""The service's messages, one dataclass each (docs/explanation/protocol.md, *Messages*; Pires et al., section 3.1).

The positional fields are those of Pires et al., in their order. The other fields are ours and travel as `name=value`. A
field is declared here only: `protocol.wire` derives the codec from its annotation. Durations are in milliseconds and
their names end in `_ms`; timestamps (`stamp`) are in microseconds since 1970. `protocol.register` has the messages of a
register, `protocol.standby` those between two members, and `protocol.transfers` those of a topic that moves.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pubsub.protocol.deletions import Delete, Deleted
from pubsub.protocol.families import Matching, Pattern, Patterns
from pubsub.protocol.fields import (
    Action,
    Contents,
    Flag,
    Hex,
    Id,
    Number,
    Place,
    Rows,
    Start,
    StoreDirectory,
    Target,
    Topic,
    Topics,
    Word,
    one_of,
)
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.protocol.names import EARLIEST
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, Vote
from pubsub.protocol.sinks import Publish, Stage
from pubsub.protocol.standby import Ack, Copy, Entries, Follow, Repair
from pubsub.protocol.subscribing import Subscribe as Subscribe  # noqa: PLC0414 - handed on
from pubsub.protocol.subscribing import Unsubscribe as Unsubscribe  # noqa: PLC0414 - handed on
from pubsub.protocol.topic_objects import Purge
from pubsub.protocol.transfers import Merge, Owners, Transfer
from pubsub.protocol.wire import message


class Outcome(StrEnum):
    """The result in a STATUS. `RETRY` has the outcomes that are not final."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"  # a put that was accepted before: a success
    EMPTY = "empty"  # no record arrived within the wait
    LOST = "lost"  # these records are lost; acknowledged like others
    GAP = "gap"  # the put's `previous` is above this log's last counter of the publisher
    UNAVAILABLE = "unavailable"  # no live holder, or this proxy may not forward yet
    MOVED = "moved"  # the topic moves to another server
    BUSY = "busy"  # a queue is at its limit, or a question about the topic is still open
    FULL = "full"  # the disk or the topic's backlog is full
    UNKNOWN = "unknown"  # the topic or the subscription is not known here
    GONE = "gone"  # the named log was given up
    BEHIND = "behind"  # the position is below the acknowledged one
    AGAIN = "again"  # the topic's history does not continue the one that the READ names: read it from its start
    SUPERSEDED = "superseded"  # the subscription, or the client, was opened again elsewhere
    RESTAGE = "restage"  # a stage of this publish is incomplete here: write the batch again
    REFUSED = "refused"  # the request itself is malformed or not allowed here
    DENIED = "denied"  # the sender lacks the right at present; an earlier attempt may have succeeded
    ANNOUNCE = "announce"  # to a server: announce yourself
    TAKEN = "taken"  # to a server: another live server uses its ID or store
    STALE = "stale"  # to a server: the announcement is older than an earlier one
    DEPOSED = "deposed"  # to a member: there is a primary of a higher term; from a standby: the place of its primary


RETRY: Final = frozenset({Outcome.GAP, Outcome.UNAVAILABLE, Outcome.MOVED, Outcome.BUSY, Outcome.FULL, Outcome.UNKNOWN})
"""Outcomes after which nothing has happened, so that an earlier or later attempt may succeed."""


@message("CONFIGURE", positional=2)
@dataclass(slots=True)
class Configure:
    """Change the settings of a topic. The body of the STATUS has the settings in force."""

    sender: Id
    topic: Topic
    version: Hex
    """The ID of this request, the same at each transmission."""
    base: Hex = ""
    """The version that this request replaces. If another one is in force, the answer is `superseded`."""
    log: Hex = ""
    avoid: Hex = ""
    create: Annotated[Flag, "!create"] = 0
    """1: the topic must not exist; if it does, the answer is `superseded`. Insisted on: an earlier release would change
    its settings."""
    values: Contents = b""
    """JSON, see `protocol.topic_settings`."""


@message("SETTINGS", positional=2)
@dataclass(slots=True)
class Settings:
    """Ask for the settings of a topic. The body of the STATUS has them."""

    sender: Id
    topic: Topic
    log: Hex = ""
    avoid: Hex = ""


@message("GET", positional=3)
@dataclass(slots=True)
class Get:
    """Request records, and acknowledge up to `last`."""

    sender: Id
    topic: Topic
    last: Place
    """The position that is durable at the client; none: from the subscription's own position."""
    number: Number
    """The number of the subscription. With `name`: 1 if a checkpoint takes the subscription over from another one."""
    epoch: Annotated[Number, "opening", "epoch"]
    """The first number of the client's session. With `name`: the token of the acknowledging checkpoint, 0 for none."""
    after: Place = None
    """The position received and not durable yet; none: the same as `last`."""
    records_max: Annotated[Number, "max"] = 1
    """Limit of the records in the answer; at least one is sent. 0: acknowledge only."""
    bytes_max: Annotated[Number, "bytes"] = 0
    wait_ms: Annotated[Number, "wait"] = 0
    """Milliseconds that the server may wait for the first record."""
    log: Hex = ""
    avoid: Hex = ""
    name: Id = ""
    """The name of a named subscription. A GET with a name only acknowledges."""


@message("READ", positional=3)
@dataclass(slots=True)
class Read:
    """Request a range of records without acknowledgement.

    The first READ of a range without a name has `!from`, and no `after`. Each further one has the `message` of the last
    answer as `after`, its `history`, and its `since` plus 1 as `!from=@`, unless `since` is 0."""

    sender: Id
    topic: Topic
    after: Place
    """The range begins after this position; none: at `!from`, or at the start of the subscription."""
    until: Place = None
    """The last position of the range; none: the last stored one."""
    name: Id = ""
    """The named subscription of which the range is a part; "": the range is of all stored records."""
    records_max: Annotated[Number, "max"] = 0
    """Limit of the records in the answer; at least one is sent. 0: no record but the plan of the range, as JSON."""
    bytes_max: Annotated[Number, "bytes"] = 0
    log: Hex = ""
    avoid: Hex = ""
    start: Annotated[Start, "!from"] = EARLIEST
    """Where a range without a name begins, as in SUBSCRIBE. With `after`, only a timestamp: earlier records are left
    out. A client that must not read from an earlier release sends `@0` for `earliest`."""
    before: Annotated[Number, "!before"] = 0
    """A timestamp: the range has no record with it or a later one; 0: no limit. Not with a name."""
    history: Annotated[Hex, "!history"] = ""
    """The `history` of the last answer. If the topic's history does not continue that one, the answer is `again`."""
    times: Annotated[Flag, "!times"] = 0
    """1: no record, but as JSON what the range shows: `oldest` and `newest`, the stamps in microseconds since 1970, or
    null; `records`; `bytes`; `exact`, false if the two may be too low; `first` and `end`, the position of the first
    record and the one after the last."""
    tombstones: Annotated[Number, "!tombstones"] = 0
    """1 more than the `number` of the last answer. If the deletion of a key was removed since then, at a place that the
    range has not reached, the answer is `again`. 0: that does not matter."""


@message("PUT", positional=3)
@dataclass(slots=True)
class Put:
    """Publish a batch of records."""

    sender: Id
    topic: Topic
    counter: Number
    """The counter of the first record. The others follow by one."""
    publisher: Hex
    """The client's store ID. It and the sender together identify the publisher."""
    count: Number
    """Records in the batch."""
    previous: Number
    """The publisher's last counter before this one on this topic that was not discarded; 0: none."""
    checksum: Annotated[Number, "crc"]
    """CRC-32 of the body."""
    sole_owner: Annotated[Flag, "whole", "sole-owner"] = 0
    """1: accepted only while no other server holds records of the topic."""
    cumulative: Flag = 0
    """1: if several puts of a chain are accepted together, the answer to the last one is enough."""
    rows: Annotated[Rows, "!rows"] = 0
    """Rows of a train (see `protocol.train`). A train has counter and previous of its first row, the count of all rows,
    and the checksum of their table. 0, which is not sent: the body is one batch."""
    log: Hex = ""
    avoid: Hex = ""
    body: Contents = b""


@message("PERIODIC", positional=1)
@dataclass(slots=True)
class Periodic:
    """A server's announcement of the topics that it holds."""

    sender: Id
    store: Hex
    """The ID of its store."""
    incarnation: Number
    """Rises with each start of the server."""
    change: Number
    """Rises with each change of its topics, and orders the announcements of an incarnation."""
    address: Word
    """The address of this server for other servers."""
    proxies: Word
    """The proxies of its configuration, sorted, separated by commas."""
    stamp: Number
    """The highest timestamp that it assigned or received."""
    partial: Flag = 0
    """1: `topics` has only the changes since the announcement before."""
    topics: Topics = None
    """Topic to the ID of its open log; "" for a topic that is no longer held. After the open log come, separated by
    commas, the logs that were closed when the store was restored from a copy. A topic that was given to another server
    has `server.log,store,change`: that server, its log, its store, and its change number after the merge."""
    previous: Number = 0
    """The change number of the announcement before to the same proxy, which reveals a lost one; 0: not given."""
    draining: Flag = 0
    """1: the server takes no new topics."""
    stores: StoreDirectory = ""
    """In a full announcement, the other stores of the cluster, see `protocol.stores`."""
    gone: StoreDirectory = ""
    """In a full announcement, the removed stores."""
    made: Number = 0
    """The server's clock when it made this announcement (microseconds since 1970)."""
    member: Hex = ""
    """The member that sends this as the primary of a store with a register. The incarnation is its term. "": the server
    knows of no register."""
    patterns: Hex = ""
    """In a full announcement, the digest of the patterns that the server knows. "": it is of an earlier release."""
    defaults: Annotated[Hex, "!defaults"] = ""
    """In a full announcement, the digest of the server's defaults of topics' settings; "": it has none."""
    deletions: Hex = ""
    """In a full announcement, the digest of the deleted names that it knows. "": it is of an earlier release."""


@message("HEARTBEAT", positional=1)
@dataclass(slots=True)
class Heartbeat:
    """A sign of life."""

    sender: Id
    stamp: Number = 0
    leaving: Flag = 0
    """1: this is the last heartbeat."""
    empty: Flag = 0
    """1: the leaving server is drained and holds no topic."""


@message("REPORT", positional=2)
@dataclass(slots=True)
class Report:
    """Ask for a report, as an operator's command does. The answer has JSON in the body."""

    sender: Id
    target: Target
    """A server's ID: the proxy forwards the request to it. "-": the proxy itself."""
    topic: Topic = ""
    """Limits the answer to this topic; "": as many topics as fit."""


@message("OPERATE", positional=3)
@dataclass(slots=True)
class Operate:
    """An operator's action. It is answered like any request, and can be repeated."""

    sender: Id
    target: Target
    """As in REPORT."""
    action: Action
    """The action (docs/operations.md lists them). The fields that follow are its objects."""
    topic: Topic = ""
    server: Id = ""
    """Another server."""
    address: Word = ""
    """The address of that server for other servers."""
    subscriber: Word = ""
    log: Hex = ""
    """The topic's log at that server."""
    store: Hex = ""
    """The store of that server."""
    stop: Flag = 0
    """1: end the action."""
    member: Hex = ""
    """A member of a server that has two."""
    number: Number = 0
    """Of the end of a subscriber's pattern: the number of the subscription. Later ones have higher numbers."""


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
    """The publisher's highest counter in the log."""
    position: Place = None
    """The subscription's position. To READ, the position before its range or subscription."""
    first: Place = None
    """With LOST, the first lost position; `message` is the last one. To GET with GONE after a deletion, the same, if
    `number` is that of the GET. To other requests with GONE, the oldest position that is held."""
    number: Number = 0
    """The number of the subscription, if a higher one is known. To GET with GONE after a deletion, the number of the
    GET if the loss is known, which may be none. To READ with `!tombstones`, and to its first READ
    without `after`, the number of deletions of keys that compaction has removed."""
    epoch: Annotated[Number, "opening", "epoch"] = 0
    """As `number`, for the session."""
    log: Hex = ""
    """The log that the answer comes from."""
    records: Number = 0
    """Records in the body."""
    checksum: Annotated[Number, "crc"] = 0
    """CRC-32 of the body."""
    change: Number = 0
    """The change number of the announcement that is answered."""
    stamp: Number = 0
    """The highest known timestamp."""
    server: Id = ""
    """The server that the answer is about."""
    rows: Number = 0
    """Rows staged so far, or published."""
    stores: StoreDirectory = ""
    """To PERIODIC: known stores that the server's directory lacks, see `protocol.stores`."""
    gone: StoreDirectory = ""
    """To PERIODIC: removed stores that the server's directory lacks."""
    since: Number = 0
    """To WHOLE: the proxy has a full announcement of every other known store, made at this time or later; 0: it has
    not. To READ without a name: records with stamps up to this are left out; 0: none are."""
    term: Number = 0
    """With DEPOSED, the term of the present primary."""
    history: Hex = ""
    """To READ without a name: identifies the order of the topic's records. It changes with each merge that puts other
    records in front of those that a reader may have read."""
    doubtful: Flag = 0
    """1: all records of the body were sent before to a lost state directory of the client that did not acknowledge
    them. To SUBSCRIBE: the subscription has such records."""
    patterns: Hex = ""
    """To WHOLE: the digest of the patterns that the proxy knows; "": it knows none. A server that knows others lets go
    of nothing."""
    defaults: Word = ""
    """To WHOLE: servers with other defaults of topics' settings than the one that asks, separated by commas."""
    clock: Number = 0
    """To a full PERIODIC: the clock of the proxy's host (microseconds since 1970); 0: not given."""
    after: Number = 0
    """With BUSY, to PUT above a quota: milliseconds until the row after `last` may be sent again; 0: not known."""
    silent: Word = ""
    """To WORK: another member with claims, as `client/store/number`, which is not heard and has its state in the
    database of the one that asks. The latter looks it up there."""
    body: Contents = b""
    """Records, JSON, or topics. To WHOLE: each topic with its other holders, as `server.log`, separated by commas. A
    line follows for each subscriber with topics that match its patterns and that it may not get. To PERIODIC: the
    server's topics with several holders, with all of them; and topics that were given up at this server, with the log
    alone. To MATCHING: topics, separated by spaces."""


Message = (
    Subscribe
    | Unsubscribe
    | Configure
    | Settings
    | Purge
    | Work
    | Describe
    | Group
    | Get
    | Read
    | Put
    | Stage
    | Publish
    | Pattern
    | Matching
    | Patterns
    | Delete
    | Deleted
    | Periodic
    | Heartbeat
    | Owners
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
