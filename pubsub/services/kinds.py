"""Which patterns there are, by the names that options and arguments have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import uuid4

from pubsub.services.core.binary_star.caller import StarCaller
from pubsub.services.core.freelance.one_at_a_time import OneAtATime
from pubsub.services.core.freelance.servers import SequencedServer, TrackedServer
from pubsub.services.core.freelance.shotgun import Shotgun
from pubsub.services.core.freelance.tracked import Tracked
from pubsub.services.core.interface import CallerCore, Patience, Port, WorkerCore
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
    "freelance1": OneAtATime,
    "freelance2": Shotgun,
    "freelance3": Tracked,
    "star": StarCaller,
}
"""How to call -> the core that does, from the addresses."""

TELLING: Final = frozenset({"mdp", "mdp2"})
"""Kinds of callers whose broker says whether a service has workers."""

USUAL: Final[Mapping[str, Patience]] = {
    "freelance1": Patience(1.0, 3),
    "freelance2": Patience(2.5, 1),
    "freelance3": Patience(1.0, 3),
    "star": Patience(1.0, 4),
}
"""How long callers of a kind wait that are not told; of every other kind as `Patience` has it."""

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
        ports: from that address, and the one by which callers know it.
    """

    core: Callable[[str, str], WorkerCore]
    ports: Callable[[str, str], Sequence[Port]]


def _reply_server(name: str, address: str) -> WorkerCore:
    return ReplyServer(name=name)


def _gated(address: str, known_as: str) -> Sequence[Port]:
    return (Port("requests", address, gated=True),)


def _known_by_its_address(address: str, known_as: str) -> Sequence[Port]:
    """RFC 10, *Request and Reply Routing*; where the port is yet to be found out the server has no name."""
    name = known_as.encode() if len(known_as) <= _IDENTITY_BYTES_MAX and not known_as.endswith((":0", "*")) else b""
    return (Port("requests", address, identity=name),)


_IDENTITY_BYTES_MAX: Final = 255

SERVERS: Final[Mapping[str, Server]] = {
    "lazy": Server(_reply_server, _gated),
    "freelance1": Server(_reply_server, _gated),
    "freelance2": Server(lambda name, address: SequencedServer(name=name), _gated),
    "freelance3": Server(lambda name, address: TrackedServer(name=name), _known_by_its_address),
}
"""How to serve -> the server."""

QUEUES: Final[Mapping[str, Callable[[str, float, int], PirateQueue]]] = {
    "simple": lambda name, heartbeat_seconds, liveness: SimpleQueue(name),
    "paranoid": ParanoidQueue,
}
"""How to queue -> the queue's core, from the service's name, the seconds between heartbeats and the liveness."""
