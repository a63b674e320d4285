"""Quotas of clients at the proxies: some runs have them, as if each client's key had a line with a quota.

    1   a proxy lets no put of a client pass above its quota: one second's worth at once, and the debt of one put
    2   a put that is put off is stored in the end (the run settles)

The check keeps its own account of each client at each proxy's process.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from pubsub.proxy.client_quotas import ClientQuotas
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.keyed import KeyedTraffic
from pubsub.proxy.rights import Asked, Course
from pubsub.proxy.traffic import Traffic
from pubsub.security.access import ALLOWED
from pubsub.security.questions import question
from tests.simulation.limiting import Account

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.world import World

RATES: Final = (None, 40, 100)
BYTES: Final = (None, 2_000, 8_000)

Quota = tuple[int | None, int | None]


class _Rights:
    """Every client may do all; puts are below a quota."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    def request(self, user: str, head: bytes) -> Asked:
        return Asked(Course.GOES, ALLOWED, question(head.split(b"-", 3)[-1]), self._quota)

    def tagged(self, user: str, link: bytes) -> bytes:
        return link


@contextlib.contextmanager
def paced(world: World, history: History) -> Iterator[None]:
    """Hand puts to the proxies' own code for clients with a quota, and judge each one that passes."""
    if not world.fate.paced:
        yield
        return
    random = Random(f"quotas of clients of {world.seed}")
    quota: Quota = random.choice(RATES), random.choice(BYTES)
    quota = quota if any(quota) else (40, None)
    from_client, took, message = Traffic._from_client, ClientQuotas.took, ProxyCore.reject
    accounts: dict[tuple[int, str], Account] = {}

    def seen_from_client(self: Any, sock: Any, client: bytes, head: bytes, now: float) -> bool:
        link = world.network.links.get(client)
        if link is None or not head.split(b"-", 3)[-1].startswith(b"PUT "):
            return from_client(self, sock, client, head, now)
        if self._access is None:
            users = SimpleNamespace(authorized=SimpleNamespace(by_user=dict.fromkeys(world.hosts)))
            self._access = SimpleNamespace(
                rights=_Rights(quota),
                quotas=ClientQuotas(users),  # type: ignore[arg-type]
                counters=Counter(),
                deadline=float("inf"),
                note=lambda *said: None,
            )
        return KeyedTraffic._of_client(self, sock, link.owner.name, client, head, now)

    def seen_took(self: ClientQuotas, user: str, head: bytes, size: int) -> None:
        now = world.now
        account = accounts.get((id(self), user))
        if account is None or account.state is not self:
            account = accounts[id(self), user] = Account(quota, self, now)
        count = re.search(rb" count=([0-9]+)", head)
        if not account.append((1 if count is None else int(count[1]), size), now):
            history.violate(f"a put of {user} at {now:.3f} passed above its quota {quota}")
        history.counters["puts below a client's quota"] += 1
        took(self, user, head, size)

    def seen_reject(self: Any, client: bytes, head: bytes, outcome: Any, *more: Any, **named: Any) -> Any:
        history.counters["puts above a client's quota"] += "after" in named
        return message(self, client, head, outcome, *more, **named)

    with (
        mock.patch.object(Traffic, "_from_client", seen_from_client),
        mock.patch.object(ClientQuotas, "took", seen_took),
        mock.patch.object(ProxyCore, "reject", seen_reject),
    ):
        yield
