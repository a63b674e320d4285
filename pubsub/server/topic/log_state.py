"""The states of a log in a store."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class LogState(StrEnum):
    """The state of a log in a store.

    The values of states that a commit may carry are the words that earlier releases read there. `stored` is the word in
    the store.
    """

    HELD = "held"
    INCOMING = "incoming"
    """The log is being received."""

    MERGED = "absorbed"
    """The log was merged here and no record of it is left; the store keeps its ID."""

    ABANDONED = "dead"
    """The log was another server's, and an operator abandoned it."""

    GIVEN = "given"
    """The log's topic went to another server."""

    QUARANTINED = "quarantined"
    """The log's topic is quarantined, because it came back after an operator had abandoned it."""

    UNREADABLE = "unreadable"
    """The state in the store is damaged; never stored."""

    UNKNOWN = ""
    """The log is unknown; never stored."""

    @property
    def stored(self) -> str:
        """The value in the store's column `state`."""
        return _STORED.get(self, self.value)

    @property
    def merged_here(self) -> bool:
        """True if the log was begun or merged here."""
        return self in {LogState.HELD, LogState.MERGED, LogState.GIVEN}

    @property
    def new(self) -> bool:
        """True if another server may bring the log: it is neither ours nor abandoned."""
        return self in {LogState.UNKNOWN, LogState.INCOMING}


_STORED: Final = {LogState.MERGED: "merged", LogState.ABANDONED: "abandoned"}
