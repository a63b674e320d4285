"""An entry: what one loop of a primary committed, under its ID and with the ID of the entry before it.

Its bytes are those of a commit (`topic.commits`), made once: the same go into the primary's stream file, to the standby
and into the standby's file, under one checksum from end to end. So the form that the standby reads is the form in both
files. What has to be known of an entry on the way (its ID, what it follows, how long it is) stands beside the bytes, so
that nobody reads them before they are applied.

Two kinds of changes never travel. A batch that was found damaged is one disk's damage, and so is its repair: the other
member's copy of the batch is whole. And the note of a port is of one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.standby import EntryId, Listed, format_entry
from pubsub.server.topic import commits
from pubsub.server.topic.changes import BatchQuarantined, BatchRepaired, Change, NoteKept
from pubsub.server.topic.notes import PORT


class Entry(NamedTuple):
    """One entry.

    Attributes:
        previous: the entry that it follows.
        size: bytes of `parts`.
        checksum: CRC-32 of them.
        parts: the commit's bytes, in one or more parts.
    """

    id: EntryId
    previous: EntryId
    size: int
    checksum: int
    parts: tuple[Buffer, ...]

    @property
    def listed(self) -> Listed:
        """What is to be known of it on the way."""
        return Listed(*self[:4])


def make_entry(identity: EntryId, previous: EntryId, changes: Sequence[Change], form: int = commits.FORM) -> Entry:
    """The entry of a loop's changes.

    Args:
        changes: all that the loop commits; what is of this machine alone is left out.
        form: the newest one that the standby reads.
    """
    commit = commits.Commit(*identity, [change for change in changes if travels(change)])
    return _entry(identity, previous, commits.frames(commit, form))


def travels(change: Change) -> bool:
    """Whether a change is one of the store, and not of one machine's copy of it."""
    of_one_disk = isinstance(change, BatchQuarantined | BatchRepaired)
    return not (of_one_disk or (isinstance(change, NoteKept) and change.name == PORT))


def changes_of(entry: Entry) -> list[Change]:
    """The changes, to be applied in order.

    Raises:
        DecodeError: they are none that this release knows.
    """
    commit = commits.decode(*entry.parts)
    if (commit.incarnation, commit.number) != entry.id:
        raise DecodeError(f"entry {format_entry(entry.id)} holds another one")
    return commit.changes


def received(listed: Iterable[Listed], frames: Sequence[Buffer]) -> list[Entry]:
    """The entries of an ENTRY.

    Args:
        listed: what its body lists.
        frames: those behind the body.

    Raises:
        DecodeError: the frames are not these entries.
    """
    out, place = [], 0
    for one in listed:
        begin, missing = place, one.size
        while missing > 0 and place < len(frames):
            missing -= len(frames[place])
            place += 1
        entry = _entry(one.id, one.previous, frames[begin:place])
        if entry.listed != one:
            raise DecodeError(f"entry {format_entry(one.id)} is not what was sent")
        out.append(entry)
    if place < len(frames):
        raise DecodeError("frames behind the last entry")
    return out


def _entry(identity: EntryId, previous: EntryId, parts: Iterable[Buffer]) -> Entry:
    size = checksum = 0
    kept = tuple(parts)
    for part in kept:
        size += len(part)
        checksum = crc32(part, checksum)
    return Entry(identity, previous, size, checksum, kept)
