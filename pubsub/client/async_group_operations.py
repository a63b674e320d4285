"""The calls of `AsyncClient` that look at consumer groups and act on them, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub.client.group_operations import GroupOperationCalls

if TYPE_CHECKING:
    from pubsub.client.group_facts import GroupFacts, GroupLetter, MemberFacts


class AsyncGroupOperations(GroupOperationCalls):
    """Calls of `AsyncClient` about consumer groups, for operators."""

    async def groups(self, topic: str | None = None) -> list[GroupFacts]:
        """Return the consumer groups of a topic, or of all; errors as `Client.groups`."""
        return await asyncio.to_thread(self._groups.groups, topic)

    async def group_members(self, topic: str, group: str) -> list[MemberFacts]:
        """Return the members of a group; errors as `Client.group_members`."""
        return await asyncio.to_thread(self._groups.members, topic, group)

    async def group_dead_letters(self, topic: str, group: str) -> list[GroupLetter]:
        """Return the dead letters of a group; errors as `Client.group_dead_letters`."""
        return await asyncio.to_thread(self._groups.letters, topic, group)

    async def release_member(
        self, topic: str, group: str, client: str, *, store: str = "", lost_disk: bool = False, force: bool = False
    ) -> int:
        """Give up all that a silent member holds; arguments and errors as `Client.release_member`."""
        release = self._groups.release
        return await asyncio.to_thread(release, topic, group, client, store, lost_disk=lost_disk, force=force)

    async def redrive_group(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Hand dead letters of a group out again; arguments and errors as `Client.redrive_group`."""
        return await asyncio.to_thread(self._groups.redrive, topic, group, ids, drop=False)

    async def drop_group_letters(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters of a group; arguments and errors as `Client.redrive_group`."""
        return await asyncio.to_thread(self._groups.redrive, topic, group, ids, drop=True)

    async def resume_group(self, topic: str, group: str, *, skip: bool) -> int:
        """Resume a group that a restore suspended; arguments and errors as `Client.resume_group`."""
        return await asyncio.to_thread(self._groups.resume, topic, group, skip=skip)

    async def change_group(
        self,
        topic: str,
        group: str,
        *,
        on_lost: str | None = None,
        lost_seconds: float | None = None,
        attempts: int | None = None,
        mode: str | None = None,
        parts: int | None = None,
    ) -> GroupFacts:
        """Change values of a group; arguments and errors as `Client.change_group`."""
        values = on_lost, lost_seconds, attempts, mode, parts
        return await asyncio.to_thread(self._groups.change, topic, group, *values)
