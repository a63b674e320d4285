"""The services of the broker itself, with names that begin with `mmi.` (RFC 8).

`mmi.service NAME` returns 200 or 404, as in the RFC. This broker adds three:

* `mmi.workers NAME` returns 200 and the number of the service's workers.
* `mmi.pending NAME` returns 200 and the number of requests to the service that wait or are with a worker. It counts
  only the requests of the connection that asks.
* `mmi.report` returns 200 and the contents of `pubsub service list` as JSON.

Every other such name returns 501.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

from pubsub.services.core.interface import Frames
from pubsub.services.core.majordomo.records import Service, Worker

OK: Final = b"200"
NOT_FOUND: Final = b"404"
NOT_IMPLEMENTED: Final = b"501"

SHOWN_MAX: Final = 1_000
"""Services in one report, the first ones by name."""


class Managed(Protocol):
    """The part of a broker that its own services read."""

    @property
    def services(self) -> Mapping[bytes, Service]: ...

    @property
    def workers(self) -> Mapping[bytes, Worker]: ...

    @property
    def counters(self) -> Counter[str]: ...


def answer(name: bytes, body: Frames, broker: Managed, client: bytes, now: float) -> Frames:
    """Return the reply of one of the broker's own services.

    Args:
        name: name of the service, with `mmi.`.
        client: routing ID of the asking client.
        now: monotonic seconds.
    """
    if name == b"mmi.service":
        service = broker.services.get(body[-1])
        return (OK,) if service is not None and service.workers else (NOT_FOUND,)
    if name == b"mmi.workers":
        service = broker.services.get(body[-1])
        return OK, b"%d" % (service.workers if service is not None else 0)
    if name == b"mmi.pending":
        return OK, b"%d" % _pending(body[-1], client, broker)
    if name == b"mmi.report":
        return OK, json.dumps(report(broker, now)).encode()
    return (NOT_IMPLEMENTED,)


def _pending(name: bytes, client: bytes, broker: Managed) -> int:
    service = broker.services.get(name)
    if service is None:
        return 0
    taken = (worker.request for worker in broker.workers.values() if worker.service is service)
    return sum(one is not None and one.client == client for one in (*service.requests, *taken))


def report(broker: Managed, now: float) -> dict[str, object]:
    names = sorted(broker.services)[:SHOWN_MAX]
    since: dict[bytes, float] = {}
    for worker in broker.workers.values():
        if worker.request is not None:
            name = worker.service.name
            since[name] = min(since.get(name, now), worker.request.begun)
    return {
        "services": [_described(broker.services[name], now - since.get(name, now)) for name in names],
        "services_in_all": len(broker.services),
        "workers": len(broker.workers),
        "counters": dict(sorted(broker.counters.items())),
    }


def _described(service: Service, longest: float) -> dict[str, object]:
    return {
        "name": service.name.decode(errors="replace"),
        "workers": service.workers,
        "idle": len(service.idle),
        "waiting": len(service.requests),
        "longest_seconds": round(longest, 1),
        "answered": service.answered,
        "given_up": service.given_up,
    }
