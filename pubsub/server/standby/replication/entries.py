"""An entry: the changes that one loop of a primary committed, with the entry's own ID and the previous entry's ID.

The bytes of an entry are those of a commit (`topic.commits`), made once. The same bytes go into the primary's stream
file, to the standby and into the standby's file, under one checksum from end to end. Both files therefore have the form
that the standby reads. The ID, the previous ID and the size travel beside the bytes, so that no process decodes the
bytes before they are applied.

Two kinds of changes never travel. Damage and repair of a batch concern one disk, since the other member's copy is
intact. The note of a port concerns one machine.
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
        previous: ID of the entry before this one.
        size: bytes of `parts`.
        checksum: CRC-32 of `parts`.
        parts: the commit's bytes, in one or more parts.
    """

    id: EntryId
    previous: EntryId
    size: int
    checksum: int
    parts: tuple[Buffer, ...]

    @property
    def listed(self) -> Listed:
        """The fields that travel beside the bytes."""
        return Listed(*self[:4])


def make_entry(identity: EntryId, previous: EntryId, changes: Sequence[Change], form: int = commits.FORM) -> Entry:
    """Make the entry of a loop's changes.

    Args:
        identity: ID of the entry.
        previous: ID of the entry before it.
        changes: all changes that the loop commits. Those of one machine alone are left out.
        form: the newest form that the standby reads.
    """
    commit = commits.Commit(*identity, [change for change in changes if travels(change)])
    return _entry(identity, previous, commits.frames(commit, form))


def travels(change: Change) -> bool:
    """Return True for a change of the store, False for a change of one machine's copy."""
    of_one_disk = isinstance(change, BatchQuarantined | BatchRepaired)
    return not (of_one_disk or (isinstance(change, NoteKept) and change.name == PORT))


def changes_of(entry: Entry) -> list[Change]:
    """Decode the changes of an entry, in the order in which they are applied.

    Raises:
        DecodeError: this release does not know a change.
    """
    commit = commits.decode(*entry.parts)
    if (commit.incarnation, commit.number) != entry.id:
        raise DecodeError(f"entry {format_entry(entry.id)} contains another entry's commit")
    return commit.changes


def received(listed: Iterable[Listed], frames: Sequence[Buffer]) -> list[Entry]:
    """Return the entries of an ENTRY message.

    Args:
        listed: the list in the body of the message.
        frames: the frames after the body.

    Raises:
        DecodeError: the frames do not match the list.
    """
    out, place = [], 0
    for one in listed:
        begin, missing = place, one.size
        while missing > 0 and place < len(frames):
            missing -= len(frames[place])
            place += 1
        entry = _entry(one.id, one.previous, frames[begin:place])
        if entry.listed != one:
            raise DecodeError(f"the frames of entry {format_entry(one.id)} do not match its size and checksum")
        out.append(entry)
    if place < len(frames):
        raise DecodeError("unexpected frames after the last entry")
    return out


def _entry(identity: EntryId, previous: EntryId, parts: Iterable[Buffer]) -> Entry:
    size = checksum = 0
    kept = tuple(parts)
    for part in kept:
        size += len(part)
        checksum = crc32(part, checksum)
    return Entry(identity, previous, size, checksum, kept)
