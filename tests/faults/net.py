"""Two proxies whose both sides are behind relays."""

from __future__ import annotations

from contextlib import ExitStack

from tests.faults.cluster import Cluster
from tests.faults.relay import Relay


class Net:
    """Relays before both sides of both proxies.

    Attributes:
        clients: the relays before the client sides, in the proxies' order; servers: before the others.
        direct: where the client sides are, past the relays.
    """

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        for _ in range(2):
            cluster.proxy()
        self.clients = [stack.enter_context(Relay(address)) for address in cluster.addresses]
        self.servers = [stack.enter_context(Relay(address)) for address in cluster.inner]
        self.direct = list(cluster.addresses)
        cluster.addresses[:] = [relay.endpoint for relay in self.clients]
        cluster.inner[:] = [relay.endpoint for relay in self.servers]

    @property
    def relays(self) -> list[Relay]:
        """All of them."""
        return [*self.clients, *self.servers]

    def heal(self) -> None:
        """All of it."""
        for relay in self.relays:
            relay.heal()
