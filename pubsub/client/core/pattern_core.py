"""The core of a client, with its patterns of topics."""

from __future__ import annotations

from collections.abc import Callable

from pubsub.client.core.core import ClientCore, CoreSettings
from pubsub.client.core.effects import Outgoing
from pubsub.client.core.families import Families
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.subscription import Subscription
from pubsub.protocol import Outcome, Status


class PatternCore(ClientCore):
    """A client's core that also decides about patterns; arguments as for `ClientCore`.

    Attributes:
        families: the patterns.
    """

    def __init__(
        self,
        settings: CoreSettings,
        numbers: Numbers,
        cuts: int,
        load_taken: Callable[[str], dict[str, int]],
        wall: Callable[[], float],
    ) -> None:
        super().__init__(settings, numbers, cuts, load_taken, wall)
        self.families = Families(self)
        self._sent_at = float("-inf")

    def receive(self, token: int, status: Status, now: float) -> None:
        """Handle the answer to the message sent with `token`; ignore an answer that is no longer expected."""
        if not (self.families.by_pattern and self.families.receive(token, status, now)):
            super().receive(token, status, now)

    def _get_answered(self, sub: Subscription, status: Status, proxy: int, now: float) -> None:
        super()._get_answered(sub, status, proxy, now)
        if status.outcome is Outcome.GONE:  # A topic that was deleted is left, and may begin anew.
            self.families.list_anew(sub.topic)

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the messages to send now, and count them as sent."""
        self._sent_at, out = now, super().outgoing(now)
        return [*self.families.outgoing(now), *out] if self.families.by_pattern else out

    def deadline(self) -> float | None:
        """Return the next time at which `tick` or `outgoing` has work; None: not before the next call or answer."""
        due = super().deadline()
        if not self.families.by_pattern:
            return due
        at = self.families.deadline(self._sent_at)
        return due if at == float("inf") else at if due is None else min(due, at)
