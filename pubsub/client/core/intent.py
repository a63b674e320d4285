"""What the application wants of one topic, and what the service has confirmed of it.

An intent is durable before anything is sent. While it is not settled, every call and every start asks again. Each
transmission has a number of its own, and only the answer to the last one counts: so one subscription in the whole
system has the number that the client holds (docs/architecture.md, *Subscribe and get*).
"""

from __future__ import annotations

from typing import Final

from pubsub.protocol.names import LATEST, Start

NEVER: Final = float("-inf")


class Intent:
    """On or off.

    Attributes:
        on: what the application wants; settled: whether the service has confirmed it.
        fresh: it is to begin at `start`, and not to continue (docs/architecture.md, *Continuing*).
        start: where a fresh one begins.
        number: of the transmission that was confirmed; asked: of the last one that was sent.
        insists: the application's calls that still want to replace a higher number elsewhere, which is done once.
        settle_until: the service is asked for it until then, whoever waits.
        check_until: the service is asked until then whether it knows a settled one.
    """

    def __init__(self) -> None:
        self.on = self.settled = self.fresh = False
        self.start: Start = LATEST
        self.number = self.asked = 0
        self.insists: set[object] = set()
        self.settle_until = self.check_until = NEVER

    def load(self, on: bool, settled: bool, fresh: bool, number: int) -> None:
        """This is in the store."""
        self.on, self.settled, self.fresh, self.number = on, settled, fresh, number

    def differs(self, on: bool, *, fresh: bool, start: Start = LATEST) -> bool:
        """Whether a call that wants this has to make it durable; otherwise it waits for what was asked already."""
        return self.on != on or self.settled or (fresh and not (self.fresh and self.start == start))

    def change(self, on: bool, *, fresh: bool, start: Start = LATEST) -> None:
        """The application wants this from now on, and it is durable."""
        self.on, self.settled, self.fresh, self.start = on, False, fresh, start

    def settle(self, number: int) -> None:
        """The service has confirmed it under this number."""
        self.settled, self.number, self.settle_until = True, number, NEVER
        self.insists.clear()

    @property
    def subscribed(self) -> bool:
        """Whether it is on, and confirmed."""
        return self.on and self.settled

    def asking(self, now: float, *, wanted: bool) -> bool:
        """Whether the service is to be asked for it. `wanted`: a call waits for messages."""
        return not self.settled and (wanted or now < self.settle_until)

    @property
    def unchecked(self) -> bool:
        """Whether the service was asked if it knows a settled one, and has not answered."""
        return self.check_until != NEVER

    def checking(self, now: float) -> bool:
        """Whether the service is to be asked if it knows a settled one."""
        return self.subscribed and now < self.check_until

    def checked(self) -> None:
        """There is nothing more to find out about a settled one."""
        self.check_until = NEVER

    def ask_until(self, until: float) -> None:
        """Ask the service for it until then, at least."""
        self.settle_until = max(self.settle_until, until)

    def check_for(self, until: float) -> None:
        """Ask the service until then, at least, whether it knows a settled one."""
        self.check_until = max(self.check_until, until)

    def stop_asking(self) -> None:
        """Ask no more until the next call."""
        self.settle_until = self.check_until = NEVER
