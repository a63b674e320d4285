"""Keep the application's wish for one topic, and its confirmation by the service.

An intent is durable before anything is sent. While it is not settled, every call and every start asks the service
again. Each transmission has its own number, and only the answer to the last one counts. So only one subscription in the
whole system has the number that the client holds (docs/explanation/get.md, G1 and G2).

The rule is docs/explanation/continuing.md, C1.
"""

from __future__ import annotations

from typing import Final

from pubsub.protocol.names import LATEST, Start

CONTINUED: Final = (
    "client %s continues its subscription to %s from another state directory: messages delivered there without an"
    " acknowledgement are marked doubtful, since they may have been processed already"
)
SHORT: Final = (
    "client %s: %s begins at fewer messages than %s: its history has more rows of left-out messages than a server reads"
    " for one start; name a datetime to begin earlier"
)

NEVER: Final = float("-inf")


class Intent:
    """The wish to be subscribed, or not to be.

    Attributes:
        on: the application's wish.
        settled: True if the service has confirmed it.
        fresh: the subscription begins at `start`, and does not continue an earlier one (docs/explanation/continuing.md,
            C2).
        start: where a new subscription begins.
        replay: number of the last replay (docs/explanation/looking-back.md); 0: none was begun.
        number: number of the confirmed transmission.
        asked: number of the last transmission.
        insists: calls of the application that may still replace a higher number elsewhere, which is done once.
        settle_until: the service is asked to settle it until then, even if no call waits.
        check_until: the service is asked until then whether it knows a settled one.
    """

    def __init__(self) -> None:
        self.on = self.settled = self.fresh = False
        self.start: Start = LATEST
        self.number = self.asked = self.replay = 0
        self.insists: set[object] = set()
        self.settle_until = self.check_until = NEVER

    def load(self, on: bool, settled: bool, fresh: bool, number: int) -> None:
        """Load the stored state."""
        self.on, self.settled, self.fresh, self.number = on, settled, fresh, number

    def differs(self, on: bool, *, fresh: bool, start: Start | None = None) -> bool:
        """Return True if a call with this wish must make it durable; otherwise it waits for the present request.

        Args:
            start: None: the call names none.
        """
        if self.on != on or self.settled:
            return True
        if fresh:
            return not self.fresh or self.start != (LATEST if start is None else start)
        return not self.fresh and start is not None and self.start != start

    def change(self, on: bool, *, fresh: bool, start: Start = LATEST, replay: int = 0) -> None:
        """Accept a durable wish."""
        self.on, self.settled, self.fresh, self.start = on, False, fresh, start
        self.replay = replay or self.replay

    def settle(self, number: int) -> None:
        """Record the service's confirmation under this number."""
        self.settled, self.number, self.settle_until = True, number, NEVER
        self.insists.clear()

    @property
    def subscribed(self) -> bool:
        """True if it is on and confirmed."""
        return self.on and self.settled

    def asking(self, now: float, *, wanted: bool) -> bool:
        """Return True if the service should be asked to settle it. `wanted`: a call waits for messages."""
        return not self.settled and (wanted or now < self.settle_until)

    @property
    def unchecked(self) -> bool:
        """True if the service was asked whether it knows a settled one, and has not answered."""
        return self.check_until != NEVER

    def checking(self, now: float) -> bool:
        """Return True if the service should be asked whether it knows a settled one."""
        return self.subscribed and now < self.check_until

    def checked(self) -> None:
        """Stop asking whether the service knows a settled one."""
        self.check_until = NEVER

    def ask_until(self, until: float) -> None:
        """Ask the service to settle it at least until then."""
        self.settle_until = max(self.settle_until, until)

    def check_for(self, until: float) -> None:
        """Ask the service at least until then whether it knows a settled one."""
        self.check_until = max(self.check_until, until)

    def stop_asking(self) -> None:
        """Ask no more until the next call."""
        self.settle_until = self.check_until = NEVER
