"""What all changes of a commit have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pubsub.protocol.batch import Buffer as Buffer  # noqa: PLC0414 - handed on
else:
    Buffer = memoryview  # A body read from a commit is a view into its bytes; a body to be written may be bytes too.


class RecordedChange(Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """A change; its bytes are the name of the class, then the fields in their order."""
