"""A service as one of a Binary Star pair: two more sockets, a clock, and a last check before it sends."""

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

    from pubsub.services.access import Locks

HEARTBEAT_SECONDS_MIN: Final = 0.7
"""Shortest heartbeat in seconds: a started server listens for two, and the other may need 1 s of that to reconnect."""


class WakefulClock(SystemClock):
    """A clock that runs on while the machine sleeps, so that a server notices its absence (Linux only)."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.clock_gettime(_CLOCK)


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Pairing(NamedTuple):
    """Addresses at which the two servers of a pair exchange their state (the Guide, chapter 4, *Binary Star*).

    Attributes:
        state: address on which this server publishes its state; the Guide's 5003 and 5004.
        peer: address on which the other server does.
        heartbeat: seconds, the same at both servers.
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
        """Return the engine that runs the service as one of the pair; arguments as in `Engine`.

        Args:
            ports: ports of the service.

        Raises:
            ConfigurationError: this server could never receive the state of the other.
        """
        if self.peer == self.state:
            raise ConfigurationError(
                f"{self.peer} is the address of this server's own state; name the address of the other server"
            )
        if locks is not None and locks.listening is not None and locks.pair is None:
            raise ConfigurationError(
                f"this server has keys, but the key of {self.peer} is not known: name it with --peer-key pk_…"
            )
        clock = WakefulClock()
        # The other's state is read before requests, so that a server that was replaced takes none.
        every = (Port(PEER, self.peer, PortKind.SUBSCRIBER), *ports, Port(STATE, self.state, PortKind.PUBLISHER))

        def confirm() -> None:
            core.confirm(clock.monotonic())

        return Engine(core, every, locks=locks, context=context, clock=clock, commit=confirm, told=told)
