"""What was sent and may still be answered, by the token under which the answer comes."""

from __future__ import annotations

from typing import NamedTuple

from pubsub.client.core.chain import Chain, Row
from pubsub.client.core.subscription import Subscription


class Flight(NamedTuple):
    """One transmission.

    Attributes:
        target: whose it is; row: of a chain, the put that was sent, or the last one of a train.
        generation: the target's at that time.
        proxy: index of the proxy it went to.
        train: whether other rows were sent with it.
        at: when it was sent, on the monotonic clock in seconds; only of subscriptions.
    """

    target: Chain | Subscription
    row: Row | None
    generation: int
    proxy: int
    train: bool = False
    at: float = 0.0


class Flights:
    """Transmissions that may still be answered.

    Attributes:
        forgotten: tokens whose answers are of no use any more; whoever reads it clears it.
    """

    def __init__(self) -> None:
        self.forgotten: list[int] = []
        self._flights: dict[int, Flight] = {}
        self._token = 0

    def __len__(self) -> int:
        return len(self._flights)

    def add(
        self,
        target: Chain | Subscription,
        row: Row | None,
        generation: int,
        proxy: int,
        *,
        train: bool = False,
        at: float = 0.0,
    ) -> int:
        """A message is sent; the token for its answer."""
        self._token += 1
        self._flights[self._token] = Flight(target, row, generation, proxy, train, at)
        return self._token

    def keep(self, tokens: list[int], token: int, most: int) -> None:
        """Put a token to those of the same request, and wait for the oldest no more where they are more than `most`."""
        tokens.append(token)
        if len(tokens) > most:
            older, tokens[:] = tokens[:-most], tokens[-most:]
            self.forget(older)

    def get(self, token: int) -> Flight | None:
        """The transmission with this token; None: it is not waited for."""
        return self._flights.get(token)

    def landed(self, token: int) -> Flight | None:
        """Its answer is here; None: it is not waited for any more."""
        return self._flights.pop(token, None)

    def of_puts(self) -> list[int]:
        """The tokens of all puts."""
        return [token for token, flight in self._flights.items() if isinstance(flight.target, Chain)]

    def forget(self, tokens: list[int]) -> None:
        """Nobody waits for these any more; the list is emptied."""
        for token in tokens:
            if self._flights.pop(token, None) is not None:
                self.forgotten.append(token)
        tokens.clear()
