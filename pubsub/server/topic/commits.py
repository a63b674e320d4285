"""A commit as bytes: the changes of one loop of a server, numbered, so that another store can repeat them.

`incarnation` and `number` order the commits of one store without a gap: incarnations rise with each start, numbers
count from 1 in each. So a receiver that has applied (incarnation, number) knows if the next commit is missing, and
recognises commits that it has already.

A commit has two forms, which differ in their first byte. The second form is MessagePack, derived by msgspec from the
classes of `topic.changes`: the number of the form, incarnation, number, changes. The first form is JSON with the bodies
after it (`topic.json_commits`), for members of an earlier release. Both are read; an argument selects the form to
write. An unreadable commit raises `DecodeError` and nothing else. `storage.local` names the facts in a store that no
commit carries.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.server.topic import json_commits
from pubsub.server.topic.changes import Change
from pubsub.server.topic.spans import Number

FORM: Final = 2
"""The newest form of a commit that this release writes and reads."""

FRAME_BYTES: Final = 1024 * 1024
"""Most bytes of one part."""

UNREADABLE: Final = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Errors that the readers raise for other bytes than theirs. Errors about Unicode are ValueErrors."""


class Commit(msgspec.Struct, array_like=True, tag=FORM, forbid_unknown_fields=True):
    """One transaction of a server's loop.

    Attributes:
        incarnation: of the server's start.
        number: rises by one from 1 within an incarnation.
        changes: in the order in which they are applied.
    """

    incarnation: Number
    number: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    changes: list[Change]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Commit)


def encode(commit: Commit, form: int = FORM) -> bytes:
    return (
        _encoder.encode(commit)
        if form >= FORM
        else json_commits.encode(commit.incarnation, commit.number, commit.changes)
    )


def frames(commit: Commit, form: int = FORM) -> list[Buffer]:
    """Encode a commit into parts of at most FRAME_BYTES, none of them empty."""
    data = encode(commit, form)
    if len(data) <= FRAME_BYTES:
        return [data]
    view = memoryview(data)
    return [view[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]


def decode(*parts: Buffer) -> Commit:
    """Decode the bytes of `encode` or `frames`, however they are cut into parts.

    Bodies are views into the bytes.

    Raises:
        DecodeError: the bytes are no commit, or come from a release with other changes.
    """
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        if bytes(data[:1]) == b"{":
            return msgspec.convert([FORM, *json_commits.decode(bytes(data))], Commit)
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise DecodeError(f"commit cannot be read: {type(error).__name__}") from None
