"""What two members of one server say to each other: which entries there are, who has which, and copies of a store.

A **member** is a process with a copy of the store, the **primary** the one that serves, the **standby** the other one.
An **entry** is what one loop of the primary committed. Its ID is (term, number): terms rise with each start of a
primary, numbers within a term, and none is ever used again. Each entry names the one before it, so that one ID has one
history behind it.

ENTRY travels with frames behind its body: the entries themselves, in the order of the body's list, each in one or more
frames of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, TypeVar

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.fields import Contents, Flag, Hex, Id, Kind, Number, Word, one_of
from pubsub.protocol.names import parse_number
from pubsub.protocol.wire import message

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


_Entry = Annotated[EntryId, Kind("an entry", parse_entry, format_entry)]


@message("ENTRY", positional=3)
@dataclass(slots=True)
class Entries:
    """The primary to the standby: entries, and the question whether this term is still followed."""

    sender: Id
    """The server."""
    store: Hex
    """Its store."""
    member: Hex
    """The member that sends this."""
    term: Number
    """Of the primary."""
    loop: Number
    """The loops that the primary has made in this term."""
    end: _Entry
    """Its last entry then."""
    committed: _Entry
    """The last entry that is on the disks of all members that are waited for."""
    hand: Flag = 0
    """1: take over, if you have all up to `end`."""
    body: Contents = b""
    """The list of the entries that follow, `split_entries`."""


@message("FOLLOW", positional=3)
@dataclass(slots=True)
class Follow:
    """The standby to the primary: its position, to be sent what follows. With each heartbeat, and after a gap."""

    sender: Id
    store: Hex
    member: Hex
    known: Number
    """The highest term it knows."""
    token: Number
    """A number for this state of it; a copy counts only as the answer to the latest one."""
    gap: Flag = 0
    """1: entries came that do not follow what it has."""
    body: Contents = b""
    """IDs, `split_ids`: the entry that is applied, then those behind it, at most IDS_MAX of the newest."""
    proxies: Hex = ""
    """Stands for the proxies of its configuration; "": not said."""
    address: Word = ""
    """The standby is reached here as a server; "": not said."""
    form: Number = 1
    """The newest form of entries that it reads; 1: an earlier release, which does not say it."""


@message("ACK", positional=3)
@dataclass(slots=True)
class Ack:
    """The standby to the primary: this is on my disk."""

    sender: Id
    store: Hex
    member: Hex
    term: Number
    loop: Number
    """The loop of ENTRY if all up to its `end` is on the disk, otherwise 0."""
    durable: _Entry
    """The last entry that is on the disk."""
    full: Flag = 0
    """1: there is no space for more."""


_Value = TypeVar("_Value")
STEPS: Final = ("begin", "hashes", "pages", "checked", "gone")
"""What a COPY is for.

    begin    the primary: a copy of this snapshot, of so many pages
    hashes   the standby: what I have of the pages of a range
    pages    the primary: those of them that are others
    checked  the primary: that was all of the range, and this is what is to be there then
    gone     the primary: that snapshot is no more
"""


@message("COPY", positional=4)
@dataclass(slots=True)
class Copy:
    """A copy of the store by pages, of which only those travel that the standby has otherwise."""

    sender: Id
    store: Hex
    member: Hex
    step: Annotated[str, one_of("a step of a copy", STEPS)]
    token: Number
    """Of the FOLLOW that the copy answers."""
    term: Number = 0
    """With `begin`, the primary's."""
    snapshot: _Entry = ROOT
    """The entry that the copy ends with."""
    first: Number = 1
    """The first page of a range, from 1."""
    pages: Number = 0
    """Of the range; with `begin`, of the whole store."""
    page_bytes: Number = 0
    """With `begin`, bytes of a page."""
    body: Contents = b""
    """16 bytes for each page of the range that the standby has; or pages, each behind its number in 4 bytes; or 16
    bytes over those of the whole range."""


REPAIR_STEPS: Final = ("wanted", "batch", "none")
"""What a REPAIR is for.

    wanted   the batch at this place is damaged here: send it
    batch    here it is
    none     I have all that you have, and it is not here either, or damaged as well
"""


@message("REPAIR", positional=4)
@dataclass(slots=True)
class Repair:
    """The primary to the standby and back, about one batch that is not what was put."""

    sender: Id
    store: Hex
    member: Hex
    step: Annotated[str, one_of("a step of a repair", REPAIR_STEPS)]
    term: Number
    end: _Entry = field(default=ROOT, kw_only=True)
    """With `wanted`, the last entry: a member that has not applied all up to it does not answer yet."""
    log: Number
    """The log of the batch by its number in the store, which both members have alike."""
    offset: Number
    """Of the batch in the log."""
    count: Number = 0
    """With `batch`, of its row, as are the next five."""
    publisher: Number = 0
    counter: Number = 0
    stamp: Number = 0
    checksum: Number = 0
    total: Number = 0
    body: Contents = b""
    """With `batch`, as it was put."""


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
