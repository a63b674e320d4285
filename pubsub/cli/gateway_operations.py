"""Operator actions that a gateway offers: the same actions as the commands, without a question to confirm."""

from __future__ import annotations

from typing import Any, Final

from pubsub.cli.operating import cluster
from pubsub.cli.server import drain_server, stop_draining
from pubsub.cli.topic import end_subscription, move_topic, waiting_for
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.errors import NotNow

PATIENCE_SECONDS: Final = 2.0
"""Time limit for the answer of one process."""

WAIT_SECONDS: Final = 60.0
"""Time limit until the result is visible; for a drain, until each topic has moved."""


class ClusterOperations:
    """Operations on the cluster that the settings name.

    Args:
        loaded: settings with the proxies, and with a key that has the right to operate.
    """

    def __init__(self, loaded: Loaded[ClientSettings]) -> None:
        self._loaded = loaded

    def move(self, topic: str, to: str) -> dict[str, Any]:
        """Move a topic; returns and raises as `pubsub topic move`."""
        with cluster(self._loaded, PATIENCE_SECONDS, WAIT_SECONDS) as found:
            view = found.look(topic)
            giver = view.owner(topic)
            view.address_of(to)
            if giver != to:
                if view.draining(to):
                    raise NotNow(f"server {to} is draining and takes no topics; choose another server")
                move_topic(found, view, topic, giver, to)
        return {"topic": topic, "from": giver, "to": to, "moved": giver != to}

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        """End a client's subscription; raises as `pubsub topic unsubscribe`."""
        with cluster(self._loaded, PATIENCE_SECONDS, WAIT_SECONDS) as found:
            view = found.look(topic)
            owner = view.owner(topic)
            waiting = waiting_for(found, view, topic, owner, client)
            end_subscription(found, view, topic, owner, client)
        return {"topic": topic, "client": client, "given_up": waiting}

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        """Drain a server; raises as `pubsub server drain`."""
        with cluster(self._loaded, PATIENCE_SECONDS, WAIT_SECONDS) as found:
            view = found.look()
            view.address_of(server)
            if stop:
                stop_draining(found, view, server)
                return {"server": server, "draining": False, "moved": 0}
            if found.server_report(server, view)["topics"] and not set(view.receivers()) - {server}:
                raise NotNow(f"no other connected server takes topics, so {server} keeps its own; start one first")
            return {"server": server, "draining": True, "moved": len(drain_server(found, view, server, quiet=True))}
