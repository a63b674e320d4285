"""What two members of one server say to each other: which entries there are, who has which, and copies of a store.

A **member** is a process with a copy of the store, the **primary** the one that serves, the **standby** the other one.
An **entry** is what one loop of the primary committed. Its ID is (term, number): terms rise with each start of a
primary, numbers within a term, and none is ever used again. Each entry names the one before it, so that one ID has one
history behind it.

ENTRY travels with frames behind its body: the entries themselves, in the order of the body's list, each in one or more
frames of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import parse_number

ENTRIES_MAX: Final = 1000
"""Entries of one ENTRY."""

IDS_MAX: Final = 1000
"""Staged entries that a FOLLOW names, besides the applied one."""

ENTRY_BYTES_MAX: Final = 1 << 30
"""Bytes of one entry; a standby that lacks a larger one is copied."""


class EntryId(NamedTuple):
    """Which entry; as text it is `term.number`.

    Attributes:
        term: of the primary that made it.
        number: within the term, from 1.
    """

    term: int
    number: int


ROOT: Final = EntryId(0, 0)
"""Stands before the first entry of a store."""


class Listed(NamedTuple):
    """One entry as ENTRY's body has it.

    Attributes:
        previous: the entry before it.
        size: bytes of its frames.
        checksum: CRC-32 of these bytes.
    """

    id: EntryId
    previous: EntryId
    size: int
    checksum: int


@dataclass(slots=True)
class Entries:
    """ENTRY: the primary to the standby: entries, and the question whether this term is still followed.

    Attributes:
        sender: the server.
        store: its store.
        member: who sends this.
        term: of the primary.
        loop: how many loops it has made in this term.
        end: its last entry then.
        committed: the last entry that is on the disks of all members that are waited for.
        hand: 1: take over, if you have all up to `end`.
        body: the list of the entries that follow, `split_entries`.
    """

    sender: str
    store: str
    member: str
    term: int
    loop: int
    end: EntryId
    committed: EntryId
    hand: int = 0
    body: Buffer = b""


@dataclass(slots=True)
class Follow:
    """FOLLOW: the standby to the primary: where I stand, send me what follows. With each heartbeat, and after a gap.

    Attributes:
        sender, store, member: as in ENTRY.
        known: the highest term it knows.
        token: a number for this state of it; a copy counts only as the answer to the latest one.
        gap: 1: entries came that do not follow what it has.
        body: IDs, `split_ids`: the entry that is applied, then those behind it, at most IDS_MAX of the newest.
        proxies: stands for those of its configuration, 16 hex digits; "": not said.
        address: where the standby is reached as a server; "": not said.
    """

    sender: str
    store: str
    member: str
    known: int
    token: int
    gap: int = 0
    body: Buffer = b""
    proxies: str = ""
    address: str = ""


@dataclass(slots=True)
class Ack:
    """ACK: the standby to the primary: this is on my disk.

    Attributes:
        sender, store, member, term: as in ENTRY.
        loop: the ENTRY's, where all up to its `end` is; else 0.
        durable: the last entry that is.
        full: 1: there is no space for more.
    """

    sender: str
    store: str
    member: str
    term: int
    loop: int
    durable: EntryId
    full: int = 0


_Value = TypeVar("_Value")
STEPS: Final = frozenset({"begin", "hashes", "pages", "checked", "gone"})
"""What a COPY is for.

    begin    the primary: a copy of this snapshot, of so many pages
    hashes   the standby: what I have of the pages of a range
    pages    the primary: those of them that are others
    checked  the primary: that was all of the range, and this is what is to be there then
    gone     the primary: that snapshot is no more
"""


@dataclass(slots=True)
class Copy:
    """COPY: a copy of the store by pages, of which only those travel that the standby has otherwise.

    Attributes:
        sender, store, member: as in ENTRY.
        step: of `STEPS`.
        token: of the FOLLOW that the copy answers.
        term: with `begin`, the primary's.
        snapshot: the entry that the copy ends with.
        first: the first page of a range, from 1.
        pages: of the range; with `begin`, of the whole store.
        page_bytes: with `begin`, bytes of a page.
        body: 16 bytes for each page of the range that the standby has; or pages, each behind its number in 4 bytes; or
            16 bytes over those of the whole range.
    """

    sender: str
    store: str
    member: str
    step: str
    token: int
    term: int = 0
    snapshot: EntryId = ROOT
    first: int = 1
    pages: int = 0
    page_bytes: int = 0
    body: Buffer = b""


REPAIR_STEPS: Final = frozenset({"wanted", "batch", "none"})
"""What a REPAIR is for.

    wanted   the batch at this place is damaged here: send it
    batch    here it is
    none     I have all that you have, and it is not here either, or damaged as well
"""


@dataclass(slots=True)
class Repair:
    """REPAIR: the primary to the standby and back, about one batch that is not what was put.

    Attributes:
        sender, store, member, term: as in ENTRY.
        step: of `REPAIR_STEPS`.
        end: with `wanted`, the last entry: who has not applied all up to it does not answer yet.
        log, offset: the batch's place, the log by its number in the store, which both members have alike.
        count, publisher, counter, stamp, checksum, total: with `batch`, its row.
        body: with `batch`, as it was put.
    """

    sender: str
    store: str
    member: str
    step: str
    term: int
    log: int
    offset: int
    end: EntryId = ROOT
    count: int = 0
    publisher: int = 0
    counter: int = 0
    stamp: int = 0
    checksum: int = 0
    total: int = 0
    body: Buffer = b""


def format_entry(entry: EntryId) -> str:
    """`term.number`."""
    return f"{entry[0]}.{entry[1]}"


def parse_entry(text: str) -> EntryId:
    """The ID that `format_entry` wrote.

    Raises:
        ValueError: it is not one.
    """
    term, dot, number = text.partition(".")
    if not dot:
        raise ValueError(f"not an entry: {text[:60]!r}")
    return EntryId(parse_number(term), parse_number(number))


def join_ids(ids: Iterable[EntryId]) -> bytes:
    """The body that `split_ids` reads."""
    return " ".join(map(format_entry, ids)).encode("ascii")


def split_ids(body: Buffer) -> list[EntryId]:
    """The IDs of a FOLLOW's body; one at least.

    Raises:
        DecodeError: the body is not such a list, or too long a one.
    """
    ids = [_read(parse_entry, word) for word in _words(body, IDS_MAX + 1)]
    if not ids:
        raise DecodeError("no applied entry")
    return ids


def join_entries(entries: Iterable[Listed]) -> bytes:
    """The body that `split_entries` reads."""
    words = [f"{format_entry(one.id)}={format_entry(one.previous)},{one.size},{one.checksum}" for one in entries]
    return " ".join(words).encode("ascii")


def split_entries(body: Buffer) -> list[Listed]:
    """The list of an ENTRY's body.

    Raises:
        DecodeError: the body is not such a list, too long a one, or one of entries that cannot follow each other.
    """
    entries = [_read(_listed, word) for word in _words(body, ENTRIES_MAX)]
    for before, after in pairwise(entries):
        if after.previous != before.id:
            raise DecodeError(f"entry {format_entry(after.id)} does not follow the one before it")
    return entries


def _listed(word: str) -> Listed:
    identity, _, rest = word.partition("=")
    previous, size, checksum = rest.split(",")
    one = Listed(parse_entry(identity), parse_entry(previous), parse_number(size), parse_number(checksum))
    if one.id <= one.previous or not 0 < one.size <= ENTRY_BYTES_MAX or one.checksum > 0xFFFFFFFF:
        raise ValueError(f"not an entry: {word[:100]!r}")
    return one


def _words(body: Buffer, most: int) -> list[str]:
    try:
        words = bytes(body).decode("ascii").split(" ") if len(body) else []
    except UnicodeDecodeError:
        raise DecodeError("entries are not ASCII") from None
    if len(words) > most:
        raise DecodeError(f"{len(words)} entries, above {most}")
    return words


def _read(parse: Callable[[str], _Value], word: str) -> _Value:
    try:
        return parse(word)
    except ValueError:
        raise DecodeError(f"not an entry: {word[:100]!r}") from None
