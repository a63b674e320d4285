"""Keep transmissions that may still be answered, by the token of the answer."""

from __future__ import annotations

from typing import NamedTuple

from pubsub.client.core.chain import Chain, Row
from pubsub.client.core.retries import TRY_SECONDS_MAX
from pubsub.client.core.subscription import Subscription


class Flight(NamedTuple):
    """One transmission.

    Attributes:
        target: the chain or the subscription that sent it.
        row: for a chain, the sent row, or the last row of a train.
        generation: the target's generation at that time.
        proxy: index of the proxy.
        train: True if it contains other rows too.
        at: time of sending on the monotonic clock, in seconds; for subscriptions only.
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
        forgotten: tokens with useless answers; the code that reads the list clears it.
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
        """Record a transmission and return the token of its answer."""
        token = self.take_token()
        self._flights[token] = Flight(target, row, generation, proxy, train, at)
        return token

    def take_token(self) -> int:
        """Return a token that no other transmission of this client has."""
        self._token += 1
        return self._token

    def keep(self, tokens: list[int], token: int, most: int) -> None:
        """Add a token to those of the same request, and forget the oldest above `most`."""
        tokens.append(token)
        if len(tokens) > most:
            older, tokens[:] = tokens[:-most], tokens[-most:]
            self.forget(older)

    def get(self, token: int) -> Flight | None:
        """Return the transmission with this token, or None if its answer is not expected."""
        return self._flights.get(token)

    def completed(self, token: int) -> Flight | None:
        """Remove and return the transmission with this token, or None if its answer is no longer expected."""
        return self._flights.pop(token, None)

    def of_puts(self) -> list[int]:
        return [token for token, flight in self._flights.items() if isinstance(flight.target, Chain)]

    def forget(self, tokens: list[int]) -> None:
        """Stop expecting answers to these tokens; the list is emptied."""
        for token in tokens:
            if self._flights.pop(token, None) is not None:
                self.forgotten.append(token)
        tokens.clear()


def answered_late(sub: Subscription, flight: Flight, now: float) -> None:
    """Extend the try after an answer to an earlier transmission of an intent: the service is there, and slow.

    If each try were shorter than the answer takes, no answer would ever count. So the last try gets twice that time.
    """
    if sub.deadline is not None and not sub.intent.settled and flight.proxy == sub.retries.proxy:
        sub.deadline = max(sub.deadline, now + min(2 * (now - flight.at), TRY_SECONDS_MAX))
