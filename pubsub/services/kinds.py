"""Which patterns there are, by the names that options and arguments have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import uuid4

from pubsub.services.core.interface import CallerCore, Port, WorkerCore
from pubsub.services.core.lazy import ReplyServer, lazy_caller
from pubsub.services.core.majordomo.client import majordomo_caller
from pubsub.services.core.majordomo.worker import MajordomoWorker
from pubsub.services.core.paranoid import ParanoidQueue, ParanoidWorker
from pubsub.services.core.queue import PirateQueue
from pubsub.services.core.simple import SimpleQueue, SimpleWorker
from pubsub.services.core.titanic.client import TitanicCaller

CALLERS: Final[Mapping[str, Callable[[Sequence[str]], CallerCore]]] = {
    "lazy": lazy_caller,
    "mdp": majordomo_caller,
    "mdp2": partial(majordomo_caller, version=2),
    "titanic": lambda addresses: TitanicCaller(addresses, lambda: uuid4().bytes),
    # Freelance and Binary Star:
}
"""How to call -> the core that does, from the addresses."""

WORKERS: Final[Mapping[str, Callable[[str, str], WorkerCore]]] = {
    "mdp": MajordomoWorker,
    "mdp2": partial(MajordomoWorker, version=2),
    "simple": lambda name, address: SimpleWorker(address),
    "paranoid": lambda name, address: ParanoidWorker(address),
}
"""How to work -> the worker's core, from the service's name and the address of its queue or broker."""


class Server(NamedTuple):
    """A worker that callers reach without a queue.

    Attributes:
        core: from its service's name and the address that it listens on.
        ports: from that address.
    """

    core: Callable[[str, str], WorkerCore]
    ports: Callable[[str], Sequence[Port]]


SERVERS: Final[Mapping[str, Server]] = {
    "lazy": Server(
        lambda name, address: ReplyServer(name=name), lambda address: (Port("requests", address, gated=True),)
    ),
    # Freelance:
}
"""How to serve -> the server."""

QUEUES: Final[Mapping[str, Callable[[str, float, int], PirateQueue]]] = {
    "simple": lambda name, heartbeat_seconds, liveness: SimpleQueue(name),
    "paranoid": ParanoidQueue,
}
"""How to queue -> the queue's core, from the service's name, the seconds between heartbeats and the liveness."""
