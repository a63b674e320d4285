"""The service's messages: one dataclass each (docs/architecture.md, *The protocol*; Pires et al., section 3.1).

The positional fields are those of Pires et al., in their order; the others are ours and travel as `name=value`. A field
that has its default value is not sent. Times within messages are milliseconds where the name ends in `_ms` and
microseconds since 1970 where it is a stamp. Every class is a plain record: what may stand in it is checked by the
codec, on the way in and on the way out. Those of a register are in `protocol.register`, those
of two members in `protocol.standby`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import Position
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, Vote
from pubsub.protocol.standby import Ack, Copy, Entries, Follow, Repair


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


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE: start receiving what is put from now on.

    Attributes:
        number: of this transmission, from the client's allocator; the highest wins.
        opening: the first number of this open client.
        log: the log of the client's last answer on this topic, "" for none.
        avoid: a log whose holder answered a gap or a wrong number, "" for none.
        name: of a named subscription, which is no client's; "": the sender's own.
        start: where a named subscription that is not there yet begins: "earliest" or "latest".
        continues: 1: a subscription that is on under the sender's ID keeps its place; 0: it begins at the end.
    """

    sender: str
    topic: str
    number: int
    opening: int
    log: str = ""
    avoid: str = ""
    name: str = ""
    start: str = "latest"
    continues: int = 0


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE: stop receiving, and forget what is waiting. Fields as in SUBSCRIBE."""

    sender: str
    topic: str
    number: int
    opening: int
    log: str = ""
    avoid: str = ""
    name: str = ""


@dataclass(slots=True)
class Get:
    """GET: hand out records, and acknowledge up to `last`.

    Attributes:
        last: the position that is durable at the client; None: from where the subscription stands.
        number: of the subscription.
        opening: of the client.
        after: the position received and not durable yet; None: the same as `last`.
        records_max, bytes_max: at most so much; one record is always handed out. 0 records: acknowledge only.
        wait_ms: how long the server may wait for the first record.
        name: of a named subscription, which only acknowledges by this. It has neither number nor opening: there
            `opening` is the token of the checkpoint that acknowledges, 0 for none, and `number` 1 where that takes the
            subscription over from another one.
    """

    sender: str
    topic: str
    last: Position | None
    number: int
    opening: int
    after: Position | None = None
    records_max: int = 1
    bytes_max: int = 0
    wait_ms: int = 0
    log: str = ""
    avoid: str = ""
    name: str = ""


@dataclass(slots=True)
class Read:
    """READ: hand out a range, acknowledge nothing.

    Attributes:
        after: the position that the range begins behind; None: where the subscription, or what is stored, begins.
        until: the last position of the range; None: the last there is.
        name: of the named subscription along whose legs the range lies; "": along all that the topic holds.
        records_max, bytes_max: at most so much; one record is always handed out. 0 records: hand out no record but
            the plan of the range, as JSON.
    """

    sender: str
    topic: str
    after: Position | None
    until: Position | None = None
    name: str = ""
    records_max: int = 0
    bytes_max: int = 0
    log: str = ""
    avoid: str = ""


@dataclass(slots=True)
class Put:
    """PUT: a batch of records.

    Attributes:
        counter: of the first record; the others follow one by one.
        publisher: the client's store ID, which with the sender is the publisher.
        count: how many records the batch holds.
        previous: the publisher's counter before this one on this topic that was not discarded; 0: none.
        checksum: CRC-32 of the body.
        whole: 1: taken only while no other server holds any of the topic.
        cumulative: 1: where several of a chain are taken together, the answer to the last is enough.
        rows: of a train, how many rows of the chain the body holds (see `protocol.train`): counter and previous are the
            first one's then, count is of all, checksum of their table. 0: the body is one batch.
    """

    sender: str
    topic: str
    counter: int
    publisher: str
    count: int
    previous: int
    checksum: int
    whole: int = 0
    log: str = ""
    avoid: str = ""
    body: Buffer = b""
    cumulative: int = 0
    rows: int = 0


@dataclass(slots=True)
class Stage:
    """STAGE: keep rows of a sink's batch, durably, which nobody sees until they are published.

    Attributes:
        sender, publisher: the sink's name and its query's ID, which together are the publisher.
        batch: number of the batch, from 0.
        attempt: names the writing of one part of the batch, fresh for each try.
        first: number of the first row within the attempt.
        count: rows in the body.
        checksum: CRC-32 of the body.
    """

    sender: str
    topic: str
    batch: int
    publisher: str
    attempt: str
    first: int
    count: int
    checksum: int
    log: str = ""
    avoid: str = ""
    body: Buffer = b""


@dataclass(slots=True)
class Publish:
    """PUBLISH: append these stages of a sink's batch, all of them in one step, in this order.

    Attributes:
        sender, publisher, batch: as in STAGE.
        stages: attempt to its number of rows; none where the batch has no row for this topic. All that the batch has,
            also rows whose STAGE was answered `duplicate`: another server may have answered that.
    """

    sender: str
    topic: str
    batch: int
    publisher: str
    stages: dict[str, int] | None = None
    log: str = ""
    avoid: str = ""


@dataclass(slots=True)
class Periodic:
    """PERIODIC: a server's announcement of the topics it holds.

    Attributes:
        store: the ID of its store.
        incarnation: rises with each of its starts.
        change: rises with what it holds; orders announcements within an incarnation.
        address: where other servers reach it.
        proxies: the proxies of its configuration, sorted, separated by commas.
        stamp: the highest stamp it gave out or heard of.
        partial: 1: `topics` holds only what changed since the announcement before.
        topics: topic to the ID of its open log, after which come, separated by commas, those that were ended because
            the store was restored; "" for a topic that is no longer held. One that was given to another server has
            `server.log,store,change`: to whom, which log, that server's store and its change number when it had joined.
        previous: the change number of the announcement before this one to the same proxy, by which it sees that none
            is missing; 0: not said.
        draining: 1: it is to be given no new topic.
        stores, gone: where all topics are named, the other stores of the cluster, see `protocol.stores`.
        made: the server's clock when it made this (microseconds since 1970).
        member: of a store that has a register, the ID of the member that says this, as its primary; its incarnation is
            the term then. "": the store has none, as far as the server knows.
    """

    sender: str
    store: str
    incarnation: int
    change: int
    address: str
    proxies: str
    stamp: int
    partial: int = 0
    topics: dict[str, str] | None = None
    previous: int = 0
    draining: int = 0
    stores: str = ""
    gone: str = ""
    made: int = 0
    member: str = ""


@dataclass(slots=True)
class Heartbeat:
    """HEARTBEAT: still here.

    Attributes:
        leaving: 1: this is the last one.
        empty: 1: and the server, which is drained, holds nothing any more.
    """

    sender: str
    stamp: int = 0
    leaving: int = 0
    empty: int = 0


@dataclass(slots=True)
class Whole:
    """WHOLE: does any other server hold any of these topics? Answered by the body of a STATUS."""

    sender: str
    topics: dict[str, str] | None = None


@dataclass(slots=True)
class Merge:
    """MERGE: give this topic to the server at `address`, which holds the log `log`."""

    sender: str
    topic: str
    address: str
    log: str = ""


@dataclass(slots=True)
class Transfer:
    """TRANSFER: one step of moving a topic from one server to another.

    Attributes:
        step: offer, accepted, chunk, commit or done.
        transfer: the ID of this transfer, 64 bits in hex.
        chunk: number of the chunk, from 0.
        log: the open log of the topic that is given; with `accepted` the receiver's own, "" where it holds none of it.
        body: with `chunk`, the chunk; with `commit`, other holders that were learned of since the first chunk.
        store, change: with `done`, the receiver's store and a change number of it that comes after the join.
    """

    sender: str
    topic: str
    step: str = "offer"
    transfer: str = ""
    chunk: int = 0
    log: str = ""
    body: Buffer = b""
    store: str = ""
    change: int = 0


@dataclass(slots=True)
class Report:
    """REPORT: what do you know? Asked by an operator's command, answered with JSON in the body.

    Attributes:
        target: a server's ID, which the proxy passes it on to; "-" for the proxy itself.
        topic: the only one that is to be spoken of; "": as many as fit.
    """

    sender: str
    target: str
    topic: str = ""


@dataclass(slots=True)
class Operate:
    """OPERATE: an operator has something done. Answered like any request; a repeat finds it done.

    Attributes:
        target: a server's ID, which the proxy passes it on to; "-" for the proxy itself.
        action: what is to be done (docs/operations.md lists them); the fields that follow say to what.
        server: another server, by its ID.
        address: where that server is reached by servers.
        log: of the topic, at that server.
        store: that server's.
        stop: 1: the action is to end.
        member: of a server that has two.
    """

    sender: str
    target: str
    action: str
    topic: str = ""
    server: str = ""
    address: str = ""
    subscriber: str = ""
    log: str = ""
    store: str = ""
    stop: int = 0
    member: str = ""


@dataclass(slots=True)
class Status:
    """STATUS: the answer to every other message.

    Attributes:
        outcome: what happened.
        message: with records, the position of the last one.
        reason: a few words for a person, spaces written as `_`.
        last: the highest counter held of the publisher.
        position: where the subscription stands.
        first: with LOST, the first lost position; `message` is the last.
        number, opening: the subscription's, where a higher one is known.
        log: the log that answered.
        records, checksum: of the body.
        change: of the announcement that is answered.
        stamp: the highest one known.
        server: whom the answer speaks of.
        rows: rows staged so far, or published.
        stores, gone: to PERIODIC: what its server lacks of the roster, see `protocol.stores`.
        since: to WHOLE: the proxy has an announcement of all topics from every other store that it
            knows, made at this time or later; 0: it does not.
        term: with DEPOSED, of the primary that was heard.
        doubtful: 1: all records of the body were handed out before, to a state directory of the client's that did not
            acknowledge them. To SUBSCRIBE: the subscription holds such records.
        body: records, JSON, or topics. To WHOLE: each with its other holders, as `server.log`, separated by commas. To
            PERIODIC: those of the server's topics that have several holders, with all of them; and those that were
            given up there, with the log alone.
    """

    sender: str
    outcome: Outcome
    message: Position | None = None
    reason: str = ""
    last: int = -1
    position: Position | None = None
    first: Position | None = None
    number: int = 0
    opening: int = 0
    log: str = ""
    records: int = 0
    checksum: int = 0
    change: int = 0
    stamp: int = 0
    server: str = ""
    rows: int = 0
    stores: str = ""
    gone: str = ""
    since: int = 0
    term: int = 0
    doubtful: int = 0
    body: Buffer = b""


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
