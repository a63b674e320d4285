"""Looks at what a topic holds: a range is read, nobody's position moves (docs/architecture.md, *Subscribe and get*)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pubsub.client.requests import NoAnswer, Proxies, reason_of
from pubsub.config.settings import ClientSettings
from pubsub.errors import NotAllowed, NotKnown, NotNow, Unavailable
from pubsub.protocol.messages import RETRY, Outcome, Read, Status
from pubsub.protocol.names import Position, format_position, parse_position
from pubsub.protocol.records import Records

BYTES_MAX: Final = 1024 * 1024
"""Bytes that are asked for in one look; one message is always handed out."""

PATIENCE_SECONDS: Final = 1.0
"""With one proxy."""

SECONDS: Final = 5.0
"""Until there is an answer, by whichever proxy."""

PAUSE_SECONDS: Final = 0.1
"""Before a question that was answered `retry` is asked again."""


class ClusterPeek:
    """Looks at topics for the users of a gateway.

    Args:
        settings: where the proxies are; its key is that of users who have none of their own.
        keys: directory with the users' own keys, `USER.key`.
    """

    def __init__(self, settings: ClientSettings, keys: Path) -> None:
        self._settings, self._keys = settings, keys

    def __call__(self, user: str, topic: str, after: str | None, most: int) -> dict[str, Any]:
        """Up to `most` messages; see `peek`."""
        own = self._keys / f"{user}.key"
        settings = replace(self._settings, key_file=own) if own.exists() else self._settings
        return peek(settings, f"{user}.peek", topic, after, most)


def peek(settings: ClientSettings, sender: str, topic: str, after: str | None, most: int) -> dict[str, Any]:
    """Messages that a topic holds, the oldest first.

    Args:
        settings: where the proxies are, and by which key they know us.
        sender: who asks, as the cluster's rights have it.
        after: the position behind which they are, "-1" for the oldest; None: the newest.
        most: messages.

    Returns:
        `held`, how many there are, and `messages`, each with `position`, `publisher`, `counter`, `stamp`, `key`,
        `headers` (as a batch holds them) and `body`; `next`, behind which there are more, or None.

    Raises:
        NotKnown: there is no such topic; NotNow: that position is not there any more; NotAllowed, Unavailable.
    """
    with Proxies.of(settings) as proxies:
        plan = _ask(proxies, Read(sender, topic, None))
        facts = json.loads(bytes(plan.body))
        legs, latest = facts["legs"], parse_position(facts["latest"])
        held = sum(stop - low for _, low, stop, _ in legs)
        while True:
            behind = _newest(legs, held - most, plan.position) if after is None else parse_position(after)
            wanted = Read(sender, topic, behind, latest, records_max=most, bytes_max=BYTES_MAX)
            start = behind if behind is not None else plan.position
            messages, place = _look(proxies, wanted, start, latest, held)
            if after is not None or place == latest or most == 1:
                break
            most = max(1, most // 2)  # Of large messages fewer: those that were asked for are the last ones.
    return {"held": held, "messages": messages, "next": None if place == latest else format_position(place)}


def _look(
    proxies: Proxies, wanted: Read, place: Position | None, latest: Position | None, held: int
) -> tuple[list[dict[str, Any]], Position | None]:
    """Messages of a range, and the position of the last one; the end of the range where there are none."""
    if not held or place == latest:
        return [], latest
    found = _ask(proxies, wanted)
    messages: list[dict[str, Any]] = []
    if found.outcome is Outcome.SUCCESS:
        messages = list(islice(_messages(Records(bytes(found.body))), wanted.records_max))
    return messages, found.message or latest


def _newest(legs: Sequence[tuple[str, int, int, int]], skipped: int, start: Position | None) -> Position | None:
    """The position behind which all but so many records lie."""
    for log, low, stop, _ in legs:
        if 0 < skipped <= stop - low:
            return log, low + skipped - 1
        skipped -= stop - low
    return start


def _ask(proxies: Proxies, wanted: Read) -> Status:
    until = time.monotonic() + SECONDS
    while True:
        for address in proxies.addresses:
            (status,) = proxies.ask_each([(address, wanted)], PATIENCE_SECONDS)
            if isinstance(status, Status) and status.outcome not in RETRY:
                if status.outcome is Outcome.BEHIND:
                    raise NotNow(f"topic {wanted.topic} does not hold that position any more")
                if status.outcome is Outcome.REFUSED:
                    raise NotNow(f"topic {wanted.topic}: {status.reason.replace('_', ' ')}")
                return status
            if isinstance(status, NoAnswer) and status.error is NotAllowed:
                raise NotAllowed("peek", wanted.topic, status.reason)
        reason = reason_of(status)
        if isinstance(status, Status) and status.outcome is Outcome.UNKNOWN:
            raise NotKnown(f"topic {wanted.topic}: {reason}")
        if time.monotonic() >= until:
            raise Unavailable("peek", wanted.topic, SECONDS, reason)
        time.sleep(PAUSE_SECONDS)


def _messages(records: Records) -> Iterator[dict[str, Any]]:
    bodies = records.bodies()
    for run in records.runs:
        for index in range(len(run.ends)):
            yield {
                "position": format_position((run.log, run.offset + index)),
                "publisher": run.publisher,
                "counter": run.counter + index,
                "stamp": run.stamp,
                "key": run.keys[index] if run.keys else b"",
                "headers": run.headers[index] if run.headers else b"",
                "body": next(bodies),
            }
