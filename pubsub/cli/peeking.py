"""Reads stored messages of a topic without moving any position (docs/explanation/spark-exchange.md, K7)."""

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
"""Bytes requested in one read; one message is returned even if it is larger."""

PATIENCE_SECONDS: Final = 1.0
"""Time limit for one proxy."""

SECONDS: Final = 5.0
"""Time limit for an answer from any proxy."""

PAUSE_SECONDS: Final = 0.1
"""Pause before a request that was answered with `retry` is sent again."""


class ClusterPeek:
    """Reads topics for the users of a gateway.

    Args:
        settings: the proxies, and the key for users without a key of their own.
        keys: directory with the users' own keys, `USER.key`.
    """

    def __init__(self, settings: ClientSettings, keys: Path) -> None:
        self._settings, self._keys = settings, keys

    def __call__(self, user: str, topic: str, after: str | None, most: int) -> dict[str, Any]:
        """Return up to `most` messages; see `peek`."""
        own = self._keys / f"{user}.key"
        settings = replace(self._settings, key_file=own) if own.exists() else self._settings
        return peek(settings, f"{user}.peek", topic, after, most)


def peek(settings: ClientSettings, sender: str, topic: str, after: str | None, most: int) -> dict[str, Any]:
    """Return stored messages of a topic, the oldest first.

    Args:
        settings: the proxies and our key.
        sender: name of the requester in the cluster's access list.
        after: return messages after this position; "-1" begins at the oldest, None returns the newest.
        most: maximum number of messages.

    Returns:
        `held`, the number of stored messages, and `messages`. Each has `position`, `publisher`, `counter`, `stamp`,
        `key`, `headers` (as a batch encodes them) and `body`. `next` is the position to continue after, or None at the
        end.

    Raises:
        NotKnown: there is no such topic.
        NotNow: the topic does not hold that position any more.
        NotAllowed, Unavailable: the request is not allowed, or no answer came in time.
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
            most = max(1, most // 2)  # Large messages: ask for fewer, so that the last one is included.
    return {"held": held, "messages": messages, "next": None if place == latest else format_position(place)}


def _look(
    proxies: Proxies, wanted: Read, place: Position | None, latest: Position | None, held: int
) -> tuple[list[dict[str, Any]], Position | None]:
    """Return messages of a range and the position of the last one, or the end of the range if there are none."""
    if not held or place == latest:
        return [], latest
    found = _ask(proxies, wanted)
    messages: list[dict[str, Any]] = []
    if found.outcome is Outcome.SUCCESS:
        messages = list(islice(_messages(Records(bytes(found.body))), wanted.records_max))
    return messages, found.message or latest


def _newest(legs: Sequence[tuple[str, int, int, int]], skipped: int, start: Position | None) -> Position | None:
    """Return the position after which all but `skipped` messages follow."""
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
                    raise NotNow(
                        f"topic {wanted.topic} does not hold that position any more; begin with -1, the oldest"
                    )
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
