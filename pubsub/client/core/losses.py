"""Keep the losses on one topic until a call has raised each of them to the application.

The call after the one that raised an error, or the close, makes durable that the application has it. So a process that
ends before its application could handle the error raises it once more after the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from pubsub.client.core.changes import Told
from pubsub.errors import DataLoss


class Losses:
    """The losses of one topic, oldest first.

    Attributes:
        told: number of losses raised already, which the next call makes durable.
    """

    def __init__(self) -> None:
        self._errors: deque[DataLoss] = deque()
        self.told = 0

    def __iter__(self) -> Iterator[DataLoss]:
        return iter(self._errors)

    @property
    def waiting(self) -> bool:
        """True if a loss has not been raised."""
        return self.told < len(self._errors)

    def add(self, error: DataLoss) -> None:
        self._errors.append(error)

    def tell(self) -> DataLoss:
        """Return the oldest loss that has not been raised, and count it as raised."""
        self.told += 1
        return self._errors[self.told - 1]

    def forget(self, topic: str) -> list[Told]:
        """Return the change that makes durable that losses were raised; `forgot` follows the commit."""
        if not self.told:
            return []
        letters = sum(bool(error.first) for error in islice(self._errors, self.told))
        return [Told(topic, letters, self.told - letters)]

    def forgot(self) -> None:
        """Accept the commit of `forget`."""
        while self.told:
            self._errors.popleft()
            self.told -= 1

    def clear(self) -> None:
        """Drop all losses without raising them."""
        self._errors.clear()
        self.told = 0
