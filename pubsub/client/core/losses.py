"""Losses on one topic that the application is to be told of, each by one call that raises it.

That it was told is made durable by the call after the one that raised, or at the end. So a process that dies on the way
to its application tells it once more after its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pubsub.client.core.changes import Told
from pubsub.errors import DataLoss


class Losses:
    """Those of one topic, oldest first.

    Attributes:
        told: of how many the application was told, which the next call makes durable.
    """

    def __init__(self) -> None:
        self._errors: deque[DataLoss] = deque()
        self.told = 0

    def __iter__(self) -> Iterator[DataLoss]:
        return iter(self._errors)

    @property
    def waiting(self) -> bool:
        """Whether there is one that was not told."""
        return self.told < len(self._errors)

    def add(self, error: DataLoss) -> None:
        """There is another one."""
        self._errors.append(error)

    def tell(self) -> DataLoss:
        """The oldest one that was not told; it counts as told."""
        self.told += 1
        return self._errors[self.told - 1]

    def forget(self, topic: str) -> list[Told]:
        """What makes it durable that the application was told; `forgot` follows the commit."""
        return [Told(topic, self.told)] if self.told else []

    def forgot(self) -> None:
        """The commit of `forget` succeeded."""
        while self.told:
            self._errors.popleft()
            self.told -= 1

    def clear(self) -> None:
        """Nobody is to be told."""
        self._errors.clear()
        self.told = 0
