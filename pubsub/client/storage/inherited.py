"""Stand in for a connection that a child process inherited from its parent."""

from __future__ import annotations

from typing import Any

from pubsub.errors import AfterFork


class Inherited:
    """Replacement for a parent's connection: every use raises the error."""

    def __init__(self, error: AfterFork) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error
