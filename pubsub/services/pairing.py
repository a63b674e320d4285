"""What a service needs to be one of a Binary Star pair: two more sockets, a clock, and a last look before it sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pubsub.base.clock import SystemClock
from pubsub.errors import ConfigurationError
from pubsub.services.core.binary_star.paired import PEER, STATE, Paired
from pubsub.services.core.binary_star.star import HEARTBEAT_SECONDS
from pubsub.services.core.binary_star.states import Role
from pubsub.services.core.interface import Event, Port, PortKind
from pubsub.services.engine import Engine

if TYPE_CHECKING:
    import zmq

    from pubsub.services.entrance import Locks

HEARTBEAT_SECONDS_MIN: Final = 0.7
"""The shortest heartbeat: a server that has started is heard once the other has connected again, which may take 1 s,
and that has to be over before the two heartbeats are in which it waits for it."""


class WakefulClock(SystemClock):
    """A clock that goes on while the machine sleeps, so that a server knows that it was away (Linux; else it stops)."""

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return time.clock_gettime(_CLOCK)


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Pairing(NamedTuple):
    """Where the two servers of a pair hear each other (the Guide, chapter 4, *Binary Star*).

    Attributes:
        role: which of them this is.
        state: address on which it says what it is; the Guide's 5003 and 5004.
        peer: where the other one does.
        heartbeat: seconds; the same at both.
    """

    role: Role
    state: str
    peer: str
    heartbeat: float = HEARTBEAT_SECONDS

    def engine(
        self,
        core: Paired[Any],
        ports: Sequence[Port],
        *,
        locks: Locks | None = None,
        context: zmq.Context[Any] | None = None,
        told: Callable[[Event, float], object] | None = None,
    ) -> Engine:
        """What runs the service as one of the pair; arguments as of `Engine`.

        Args:
            core: the service as one of a pair.
            ports: of the service.

        Raises:
            ConfigurationError: it would never hear the other one.
        """
        if self.peer == self.state:
            raise ConfigurationError(f"{self.peer} is where this server says what it is itself; the other is elsewhere")
        if locks is not None and locks.listening is not None and locks.pair is None:
            raise ConfigurationError(
                f"this server has keys, and nothing says what key {self.peer} has: --peer-key pk_…"
            )
        clock = WakefulClock()
        # What the other says is read before what clients want, so that no request is taken by who is not to take it.
        every = (Port(PEER, self.peer, PortKind.SUBSCRIBER), *ports, Port(STATE, self.state, PortKind.PUBLISHER))

        def confirm() -> None:
            core.confirm(clock.monotonic())

        return Engine(core, every, locks=locks, context=context, clock=clock, commit=confirm, told=told)
