"""Messages between the two members of a server: the entries that each has, and copies of a store.

A **member** is a process with a copy of the store. The **primary** serves, the **standby** is the other member. An
**entry** is the commit of one loop of the primary. Its ID is (term, number): terms rise with each start of a primary,
numbers within a term, and no ID is used twice. Each entry names the one before it, so that one ID has one history.

ENTRY travels with frames after its body. They contain the entries in the order of the body's list, each in one or more
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
"""Limit of entries in one ENTRY."""

IDS_MAX: Final = 1000
"""Limit of staged entries in a FOLLOW, not counting the applied one."""

ENTRY_BYTES_MAX: Final = 1 << 30
"""Bytes of one entry. A standby that lacks a larger one gets a copy of the store."""


class EntryId(NamedTuple):
    """The ID of an entry; as text, `term.number`.

    Attributes:
        term: the term of the primary that made it.
        number: the number within the term, from 1.
    """

    term: int
    number: int


ROOT: Final = EntryId(0, 0)
"""The predecessor of the first entry of a store."""


class Listed(NamedTuple):
    """One entry in the list of an ENTRY's body.

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
    return f"{entry[0]}.{entry[1]}"


def parse_entry(text: str) -> EntryId:
    """Return the ID that `format_entry` wrote.

    Raises:
        ValueError: the text is no ID.
    """
    term, dot, number = text.partition(".")
    if not dot:
        raise ValueError(f"not an entry: {text[:60]!r}")
    return EntryId(parse_number(term), parse_number(number))


_Entry = Annotated[EntryId, Kind("an entry", parse_entry, format_entry)]


@message("ENTRY", positional=3)
@dataclass(slots=True)
class Entries:
    """From the primary to the standby: entries. Asks whether the standby still follows this term."""

    sender: Id
    """The ID of the server."""
    store: Hex
    """The ID of its store."""
    member: Hex
    """The member that sends this."""
    term: Number
    """The term of the primary."""
    loop: Number
    """The number of loops of the primary in this term."""
    end: _Entry
    """The last entry after that loop."""
    committed: _Entry
    """The last entry that is on the disks of all members in sync."""
    hand: Flag = 0
    """1: take over, if you have all entries up to `end`."""
    body: Contents = b""
    """The list of the entries that follow, for `split_entries`."""


@message("FOLLOW", positional=3)
@dataclass(slots=True)
class Follow:
    """From the standby to the primary: its position, as a request for the entries after it.

    Sent with each heartbeat, and after a gap.
    """

    sender: Id
    store: Hex
    member: Hex
    known: Number
    """The highest term that it knows."""
    token: Number
    """Identifies this state of the standby. A copy counts only as the answer to the latest token."""
    gap: Flag = 0
    """1: entries arrived that do not follow its own."""
    body: Contents = b""
    """IDs for `split_ids`: the applied entry, then the entries after it, at most IDS_MAX of the newest."""
    proxies: Hex = ""
    """A digest of the proxies in its configuration; "": not given."""
    address: Word = ""
    """The address of the standby as a server; "": not given."""
    form: Number = 1
    """The newest format of entries that it reads; 1: an earlier release, which sends none."""


@message("ACK", positional=3)
@dataclass(slots=True)
class Ack:
    """From the standby to the primary: the entries that are on its disk."""

    sender: Id
    store: Hex
    member: Hex
    term: Number
    loop: Number
    """The loop of ENTRY if all entries up to its `end` are on the disk, otherwise 0."""
    durable: _Entry
    """The last entry on the disk."""
    full: Flag = 0
    """1: there is no space for more."""


_Value = TypeVar("_Value")
STEPS: Final = ("begin", "hashes", "pages", "checked", "gone")
"""The steps of a COPY.

    begin    from the primary: it has a copy of this snapshot, with this number of pages
    hashes   from the standby: hashes of its pages of a range
    pages    from the primary: the pages of the range that differ
    checked  from the primary: the range is complete, and this is its hash
    gone     from the primary: the snapshot is gone
"""


@message("COPY", positional=4)
@dataclass(slots=True)
class Copy:
    """A copy of the store by pages. Only pages that differ at the standby travel."""

    sender: Id
    store: Hex
    member: Hex
    step: Annotated[str, one_of("a step of a copy", STEPS)]
    token: Number
    """The token of the FOLLOW that the copy answers."""
    term: Number = 0
    """With `begin`, the term of the primary."""
    snapshot: _Entry = ROOT
    """The last entry in the copy."""
    first: Number = 1
    """The first page of a range, from 1."""
    pages: Number = 0
    """Pages of the range; with `begin`, of the whole store."""
    page_bytes: Number = 0
    """With `begin`, bytes of a page."""
    body: Contents = b""
    """`hashes`: 16 bytes for each page of the range that the standby has. `pages`: pages, each after its number in 4
    bytes. `checked`: 16 bytes, the hash of the hashes of the whole range."""


REPAIR_STEPS: Final = ("wanted", "batch", "none")
"""The steps of a REPAIR.

    wanted   from the primary: the batch at this place is damaged, send it
    batch    from the standby: the batch
    none     from the standby: it has all entries, and the batch is missing or damaged there too
"""


@message("REPAIR", positional=4)
@dataclass(slots=True)
class Repair:
    """About one damaged batch, between the primary and the standby."""

    sender: Id
    store: Hex
    member: Hex
    step: Annotated[str, one_of("a step of a repair", REPAIR_STEPS)]
    term: Number
    end: _Entry = field(default=ROOT, kw_only=True)
    """With `wanted`, the last entry. A member that has not applied all entries up to it does not answer yet."""
    log: Number
    """The number of the batch's log in the store, equal at both members."""
    offset: Number
    """The offset of the batch in the log."""
    count: Number = 0
    """With `batch`, of its row, like the next five fields."""
    publisher: Number = 0
    counter: Number = 0
    stamp: Number = 0
    checksum: Number = 0
    total: Number = 0
    body: Contents = b""
    """With `batch`, the batch as it was put."""


def join_ids(ids: Iterable[EntryId]) -> bytes:
    """Return the body that `split_ids` reads."""
    return " ".join(map(format_entry, ids)).encode("ascii")


def split_ids(body: Buffer) -> list[EntryId]:
    """Return the IDs of a FOLLOW's body, at least one.

    Raises:
        DecodeError: the body is no such list, or is too long.
    """
    ids = [_read(parse_entry, word) for word in _words(body, IDS_MAX + 1)]
    if not ids:
        raise DecodeError("no applied entry")
    return ids


def join_entries(entries: Iterable[Listed]) -> bytes:
    """Return the body that `split_entries` reads."""
    words = [f"{format_entry(one.id)}={format_entry(one.previous)},{one.size},{one.checksum}" for one in entries]
    return " ".join(words).encode("ascii")


def split_entries(body: Buffer) -> list[Listed]:
    """Return the list of an ENTRY's body.

    Raises:
        DecodeError: the body is no such list, is too long, or has entries that do not follow each other.
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
