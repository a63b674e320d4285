"""Breakages of the rules of servers' defaults, and of ages by a wrong clock (docs/explanation/defaults.md)."""

from __future__ import annotations

import contextlib
from typing import Any

from pubsub.proxy.announcements import Announcements
from pubsub.proxy.routing_table import RoutingTable
from pubsub.server.ownership.proxies import Proxies
from tests.simulation.breakages.room import Room, substitute

breakage = Room("retaining: ")


@breakage("other defaults are not looked at")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, RoutingTable, "with_other_defaults", lambda self, server: "")


@breakage("a server's defaults are those of its first announcement")
def _(stack: contextlib.ExitStack) -> None:
    original = Announcements.take

    def take(self: Any, link: bytes, prefix: Any, message: Any, body: Any, now: float) -> None:
        known = self._table.servers.get(message.store)
        if known is not None and known.announced:
            message.defaults = known.defaults
        original(self, link, prefix, message, body, now)

    substitute(stack, Announcements, "take", take)


@breakage("ages are trusted with a wrong clock")
def _(stack: contextlib.ExitStack) -> None:
    substitute(stack, Proxies, "trusts_ages", lambda self, now: True)
