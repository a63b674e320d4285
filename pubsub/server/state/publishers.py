"""Publishers by number: the store has each name once, and refers to it by the number everywhere else."""

from __future__ import annotations

from pubsub.base.limits import STORE_PUBLISHERS_MAX
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.topic import changes as c


class Publishers:
    """The publishers that one store knows.

    Args:
        names: by number; 0 is not used.
        uncommitted: receives each new publisher.

    Attributes:
        names: the same, with the new ones.
    """

    def __init__(self, names: list[str], uncommitted: Uncommitted) -> None:
        self.names = names
        self._uncommitted = uncommitted
        self._numbers = {name: number for number, name in enumerate(names) if name}

    @property
    def full(self) -> bool:
        """True if no further publisher may have a number."""
        return len(self.names) > STORE_PUBLISHERS_MAX

    def find(self, name: str) -> int | None:
        return self._numbers.get(name)

    def number(self, name: str) -> int:
        """Return a publisher's number; assign one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self._uncommitted.rows.append(c.PublisherSeen(number, name))
            self._uncommitted.undo(self._forget_newest)
        return number

    def _forget_newest(self) -> None:
        del self._numbers[self.names.pop()]
