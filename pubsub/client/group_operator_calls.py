"""The arguments and the steps of a client's calls about consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pubsub.base.limits import ATTEMPTS_MAX, LOST_SECONDS_MIN, PARTS_MAX
from pubsub.client import group_requests
from pubsub.client.arguments import check_seconds, check_truth
from pubsub.client.group_facts import GroupFacts, GroupLetter, MemberFacts
from pubsub.client.requests import Proxies
from pubsub.client.session import Session
from pubsub.client.topic_settings import proxies_of
from pubsub.errors import CallerError
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, WAIT
from pubsub.protocol.names import check_id, check_topic, parse_position

Result = TypeVar("Result")


def check_group(topic: str, name: str) -> None:
    """Check the names of a topic and of a group.

    Raises:
        InvalidName: one is not allowed.
    """
    check_topic(topic)
    check_id("group", name)


def check_ids(ids: Sequence[str]) -> None:
    """Check the form of the IDs of dead letters.

    Raises:
        CallerError: one has another form.
    """
    for one in ids:
        try:
            place = parse_position(one)
        except ValueError:
            place = None
        if place is None:
            raise CallerError(f"{one[:80]!r} is no ID of a dead letter, such as 0123456789abcdef.7")


def changed_values(
    on_lost: str | None, lost_seconds: float | None, attempts: int | None, mode: str | None, parts: int | None
) -> dict[str, Any]:
    """Return the values of a group to change, as `group_requests.change` takes them.

    Raises:
        CallerError: one is not allowed, or none is given.
    """
    values: dict[str, Any] = {}
    if on_lost is not None:
        _one_of("on_lost", on_lost, (WAIT, REDELIVER))
        values["on_lost"] = on_lost
    if lost_seconds is not None:
        if isinstance(lost_seconds, int | float) and lost_seconds < LOST_SECONDS_MIN:
            raise CallerError(f"lost_seconds is at least {LOST_SECONDS_MIN}, not {lost_seconds:g}")
        check_seconds("lost_seconds", lost_seconds)
        values["lost_ms"] = round(lost_seconds * 1000)
    if attempts is not None:
        _within("attempts", attempts, ATTEMPTS_MAX)
        values["attempts"] = attempts
    if mode is not None:
        _one_of("mode", mode, (SHARED, KEYED))
        values["mode"] = mode
    if parts is not None:
        _within("parts", parts, PARTS_MAX)
        if mode != KEYED:
            raise CallerError("parts goes with the mode keyed: name both")
        values["parts"] = parts
    if not values:
        raise CallerError("name a value to change: on_lost, lost_seconds, attempts, or mode with parts")
    return values


def _one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise CallerError(f"{name} is {' or '.join(allowed)}, not {str(value)[:60]!r}")


def _within(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise CallerError(f"{name} is a number from 1 to {most:,}, not {value!r:.60}")


class GroupCalls:
    """The calls of one client about groups.

    Args:
        session: names the proxies and the keys.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def groups(self, topic: str | None) -> list[GroupFacts]:
        if topic is None:
            with proxies_of(self._session) as proxies:
                return group_requests.groups_everywhere(proxies, self._session.name)
        check_topic(topic)
        with proxies_of(self._session) as proxies:
            return group_requests.list_groups(proxies, self._session.name, topic)

    def members(self, topic: str, name: str) -> list[MemberFacts]:
        return self._on(topic, name, lambda proxies, sender: group_requests.list_members(proxies, sender, topic, name))

    def letters(self, topic: str, name: str) -> list[GroupLetter]:
        return self._on(topic, name, lambda proxies, sender: group_requests.list_letters(proxies, sender, topic, name))

    def release(self, topic: str, name: str, client: str, store: str, *, lost_disk: bool, force: bool) -> int:
        check_id("client ID", client)
        check_truth("lost_disk", lost_disk)
        check_truth("force", force)

        def work(proxies: Proxies, sender: str) -> int:
            group = group_requests.find_group(proxies, sender, topic, name)
            members = group_requests.list_members(proxies, sender, topic, name)
            member = group_requests.find_member(members, topic, name, client, store)
            return group_requests.release(proxies, sender, topic, group, member, lost_disk=lost_disk, force=force)

        return self._on(topic, name, work)

    def redrive(self, topic: str, name: str, ids: Sequence[str] | None, *, drop: bool) -> int:
        chosen = [] if ids is None else list(ids)
        check_ids(chosen)
        if ids is not None and not chosen:
            return 0

        def work(proxies: Proxies, sender: str) -> int:
            group = group_requests.find_group(proxies, sender, topic, name)
            if chosen:
                letters = group_requests.list_letters(proxies, sender, topic, name)
                group_requests.check_letters(letters, topic, name, chosen)
            return group_requests.redrive(proxies, sender, topic, group, chosen, drop=drop)

        return self._on(topic, name, work)

    def resume(self, topic: str, name: str, *, skip: bool) -> int:
        check_truth("skip", skip)

        def work(proxies: Proxies, sender: str) -> int:
            group = group_requests.find_group(proxies, sender, topic, name)
            return group_requests.resume(proxies, sender, topic, group, skip=skip)

        return self._on(topic, name, work)

    def change(self, topic: str, name: str, *wanted: Any) -> GroupFacts:
        values = changed_values(*wanted)

        def work(proxies: Proxies, sender: str) -> GroupFacts:
            group = group_requests.find_group(proxies, sender, topic, name)
            return group_requests.change(proxies, sender, topic, group, values)

        return self._on(topic, name, work)

    def _on(self, topic: str, name: str, work: Callable[[Proxies, str], Result]) -> Result:
        check_group(topic, name)
        with proxies_of(self._session) as proxies:
            return work(proxies, self._session.name)
