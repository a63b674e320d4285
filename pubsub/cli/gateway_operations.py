"""Operator actions that a gateway offers: the same actions as the commands, without a question to confirm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from pubsub.cli.operating import SENDER, cluster
from pubsub.cli.server import drain_server, stop_draining
from pubsub.cli.topic import move_topic
from pubsub.cli.unsubscribing import end_pattern, end_subscription, find_ending, waiting_for
from pubsub.client import group_requests
from pubsub.client.group_operator_calls import check_group
from pubsub.client.requests import Proxies
from pubsub.client.topic_deletion import delete, find_deletion
from pubsub.client.topic_objects import check_creation, create, find_purge, purge
from pubsub.client.topic_settings import change_settings, check_settings, read_settings
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.errors import NotNow
from pubsub.protocol.names import check_topic
from pubsub.protocol.patterns import is_pattern

GROUP_LETTERS_MAX: Final = 1_000
"""Dead letters of a group in one answer."""

GROUP_MEMBERS_MAX: Final = 4_096
"""Members of a group in one answer."""

PATIENCE_SECONDS: Final = 2.0
"""Time limit for the answer of one process."""

SETTINGS_SECONDS: Final = 10.0
"""Time limit for an answer about a topic's settings."""

WAIT_SECONDS: Final = 60.0
"""Time limit until the result is visible; for a drain, until each topic has moved."""


class ClusterOperations:
    """Operations on the cluster that the settings name.

    Args:
        loaded: settings with the proxies, and with a key that has the right to operate.
        keys: directory with the users' own keys, `USER.key`.
    """

    def __init__(self, loaded: Loaded[ClientSettings], keys: Path) -> None:
        self._loaded, self._keys = loaded, keys

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
        """End a client's subscription or pattern; raises as `pubsub topic unsubscribe`."""
        with cluster(self._loaded, PATIENCE_SECONDS, WAIT_SECONDS) as found:
            if is_pattern(topic):
                ending = find_ending(found, topic, client)
                waiting = ending.given_up
                end_pattern(found, ending)
                return {"topic": topic, "client": client, "given_up": waiting}
            view = found.look(topic)
            owner = view.owner(topic)
            client, waiting = waiting_for(found, view, topic, owner, client)
            end_subscription(found, view, topic, owner, client)
        return {"topic": topic, "client": client, "given_up": waiting}

    def settings(self, user: str, topic: str) -> dict[str, Any]:
        """Return a topic's settings, asked with the user's own key if there is one; raises as `pubsub topic show`."""
        check_settings(topic, {})
        with self._proxies(self._keys / f"{user}.key") as proxies:
            return asdict(read_settings(proxies, f"{user}.settings", topic))

    def groups(self, user: str, topic: str) -> list[dict[str, Any]]:
        """Return the groups of a topic, asked with the user's own key if there is one."""
        check_topic(topic)
        with self._proxies(self._keys / f"{user}.key") as proxies:
            return [asdict(one) for one in group_requests.list_groups(proxies, f"{user}.groups", topic)]

    def group(self, user: str, topic: str, name: str) -> dict[str, Any]:
        """Return a group with its members and dead letters; raises as `pubsub group show`."""
        check_group(topic, name)
        with self._proxies(self._keys / f"{user}.key") as proxies:
            sender = f"{user}.groups"
            found = group_requests.find_group(proxies, sender, topic, name)
            members = group_requests.list_members(proxies, sender, topic, name)
            letters = group_requests.list_letters(proxies, sender, topic, name, GROUP_LETTERS_MAX)
        return asdict(found) | {
            "member_facts": [asdict(one) for one in members[:GROUP_MEMBERS_MAX]],
            "letters": [asdict(one) for one in letters],
        }

    def act_on_group(self, action: str, topic: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Act on a group; raises as the commands of `pubsub group`."""
        check_group(topic, name)
        with self._proxies() as proxies:
            found = group_requests.find_group(proxies, SENDER, topic, name)
            return {"topic": topic, "group": name} | group_requests.act(proxies, SENDER, topic, found, action, values)

    def configure(self, topic: str, values: Mapping[str, str | None], base: str | None) -> dict[str, Any]:
        """Change a topic's settings; returns those in force, and raises as `pubsub topic set`."""
        check_settings(topic, values)
        with self._proxies() as proxies:
            return asdict(change_settings(proxies, SENDER, topic, values, base))

    def create(self, topic: str, values: Mapping[str, str | None]) -> dict[str, Any]:
        """Create a topic; raises as `pubsub topic create`."""
        check_creation(topic, values)
        with self._proxies() as proxies:
            found, new = create(proxies, SENDER, topic, values)
        return asdict(found) | {"new": new}

    def purge(self, topic: str, *, unread: bool) -> dict[str, Any]:
        """Purge a topic; raises as `pubsub topic purge`."""
        check_settings(topic, {})
        with self._proxies() as proxies:
            found = find_purge(proxies, SENDER, topic, unread=unread)
            return asdict(purge(proxies, SENDER, topic, found, unread=unread))

    def delete(self, topic: str, *, force: bool) -> dict[str, Any]:
        """Delete a topic; raises as `pubsub topic delete`."""
        check_settings(topic, {})
        with self._proxies() as proxies:
            found = find_deletion(proxies, SENDER, topic, force=force)
            return asdict(delete(proxies, SENDER, topic, found, force=force))

    def _proxies(self, key: Path | None = None) -> Proxies:
        settings = self._loaded.settings
        proxies = Proxies.of(settings if key is None or not key.exists() else replace(settings, key_file=key))
        proxies.timeout_seconds = SETTINGS_SECONDS
        return proxies

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
