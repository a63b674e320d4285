"""The patterns by their names in options and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import uuid4

from pubsub.errors import CallerError
from pubsub.services.core.binary_star.caller import StarCaller
from pubsub.services.core.freelance.one_at_a_time import OneAtATime
from pubsub.services.core.freelance.servers import SequencedServer, TrackedServer
from pubsub.services.core.freelance.shotgun import Shotgun
from pubsub.services.core.freelance.tracked import Tracked
from pubsub.services.core.interface import CallerCore, Patience, Port, WorkerCore
from pubsub.services.core.lazy import ReplyServer, lazy_caller
from pubsub.services.core.majordomo.client import majordomo_caller
from pubsub.services.core.majordomo.worker import MajordomoWorker, WorkerTimes
from pubsub.services.core.paranoid import HEARTBEAT_SECONDS, LIVENESS, ParanoidQueue, ParanoidWorker
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
"""Kind of caller -> its core, made from the addresses."""

TELLING: Final = frozenset({"mdp", "mdp2"})
"""Kinds of callers with a broker that can tell whether a service has workers."""

USUAL: Final[Mapping[str, Patience]] = {
    "freelance1": Patience(1.0, 3),
    "freelance2": Patience(2.5, 1),
    "freelance3": Patience(1.0, 3),
    "star": Patience(1.0, 4),
}
"""Default time and tries of a kind of caller. Every other kind has those of `Patience`."""


class Beats(NamedTuple):
    """Heartbeats of a worker; None: the default of its kind.

    Attributes:
        seconds: interval between heartbeats.
        liveness: number of silent intervals after which the queue or broker counts as dead.
    """

    seconds: float | None = None
    liveness: int | None = None


USUAL_BEATS: Final = Beats()


def _majordomo_worker(name: str, address: str, beats: Beats = USUAL_BEATS, version: int = 1) -> WorkerCore:
    usual = WorkerTimes()
    times = WorkerTimes(beats.seconds or usual.heartbeat_seconds, beats.liveness or usual.liveness)
    return MajordomoWorker(name, address, version, times)


def _simple_worker(name: str, address: str, beats: Beats = USUAL_BEATS) -> WorkerCore:
    if beats != USUAL_BEATS:
        raise CallerError(
            "workers of kind simple send no heartbeats: use kind paranoid, or leave out heartbeat and liveness"
        )
    return SimpleWorker(address)


def _paranoid_worker(name: str, address: str, beats: Beats = USUAL_BEATS) -> WorkerCore:
    return ParanoidWorker(address, beats.seconds or HEARTBEAT_SECONDS, beats.liveness or LIVENESS)


WORKERS: Final[Mapping[str, Callable[..., WorkerCore]]] = {
    "mdp": _majordomo_worker,
    "mdp2": partial(_majordomo_worker, version=2),
    "simple": _simple_worker,
    "paranoid": _paranoid_worker,
}
"""Kind of worker -> its core, made from the service's name, the address of its queue or broker, and `Beats`."""


class Server(NamedTuple):
    """A worker that callers reach without a queue.

    Attributes:
        core: makes the core from the service's name and the address to listen on.
        ports: makes the ports from that address and the address that callers use.
    """

    core: Callable[[str, str], WorkerCore]
    ports: Callable[[str, str], Sequence[Port]]


def _reply_server(name: str, address: str) -> WorkerCore:
    return ReplyServer(name=name)


def _gated(address: str, known_as: str) -> Sequence[Port]:
    return (Port("requests", address, gated=True),)


def _known_by_its_address(address: str, known_as: str) -> Sequence[Port]:
    """The identity of a freelance3 server is the address of its callers (RFC 10, *Request and Reply Routing*).

    Without a known port number it has no identity.
    """
    name = known_as.encode() if len(known_as) <= _IDENTITY_BYTES_MAX and not known_as.endswith((":0", "*")) else b""
    return (Port("requests", address, identity=name),)


_IDENTITY_BYTES_MAX: Final = 255

SERVERS: Final[Mapping[str, Server]] = {
    "lazy": Server(_reply_server, _gated),
    "freelance1": Server(_reply_server, _gated),
    "freelance2": Server(lambda name, address: SequencedServer(name=name), _gated),
    "freelance3": Server(lambda name, address: TrackedServer(name=name), _known_by_its_address),
}
"""Kind of server -> its core and ports."""

QUEUES: Final[Mapping[str, Callable[[str, float, int], PirateQueue]]] = {
    "simple": lambda name, heartbeat_seconds, liveness: SimpleQueue(name),
    "paranoid": ParanoidQueue,
}
"""Kind of queue -> its core, made from the service's name, the seconds between heartbeats and the liveness."""
