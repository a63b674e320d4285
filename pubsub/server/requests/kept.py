"""What the settings of a topic keep and hold back, for a report.

A topic that no setting and no default concerns costs nothing here. Another one costs two lookups a log, without a body.

* `keep`, `drop`, `expire`: the settings in force as text. After a conflict several values, joined by " or ".
* `rate_limit`, `bytes_limit`: the settings `rate` and `bytes`.
* `throttled`, `throttled_seconds`: puts that were put off because of them, and the time during which puts waited.
* `settings_from`: by setting where its value is from; see `protocol.topic_defaults.source`.
* `settings_conflict`: True if two servers merged the topic with different settings.
* `keep_seconds`: the age beyond which `keep` lets a message go; null if no age does.
* `kept_bytes`: bytes that no subscriber needs. After a start, bodies that were dropped earlier may count.
* `oldest_stored_seconds`: age of the oldest stored message; null if there is none.
* `not_let_go`: the reason why messages stay that the settings let go: "not sole owner", or the subscriber that has not
  acknowledged them, or the servers with other defaults; "" if none stay.
* `superseded_seconds`: with `keep=latest`, age of the oldest superseded message that a subscriber needs; null if there
  is none, or for another topic.

The four before the last are null, null, null and "" for a topic that no setting and no default concerns.
"""

from __future__ import annotations

from typing import Any, Final

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol.topic_defaults import source
from pubsub.protocol.topic_settings import OR, PATTERNED
from pubsub.server.requests.waiting import Waiting
from pubsub.server.state.state import State
from pubsub.server.topic.compacted import within
from pubsub.server.topic.purged import unread_place
from pubsub.server.topic.settings import BUILT_IN, Settings
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Topic

_NAMES: Final = {"rate": "rate_limit", "bytes": "bytes_limit"}
"""Names in a report for settings with a name that a report has for something else."""


def kept(state: State, topic: Topic, waits: Waiting) -> dict[str, Any]:
    """Return these facts of a topic. Its `waiting_bytes` have just been measured."""
    settings = topic.in_force
    facts: dict[str, Any] = {_NAMES.get(name, name): OR.join(texts) for name, texts in settings.texts.items()}
    facts |= state.quotas.facts(topic)
    match = topic.policy.default.match
    facts["settings_from"] = {
        name: source(texts, match if name in PATTERNED else "") for name, texts in topic.settings.texts.items()
    }
    if settings is BUILT_IN:
        nothing = dict.fromkeys(("keep_seconds", "kept_bytes", "oldest_stored_seconds"))
        return {**facts, "settings_conflict": False, **nothing, "not_let_go": "", "superseded_seconds": None}
    age = waits.oldest(topic, [Span(log.id, max(log.low, log.bare)) for log in topic.logs.values()])
    return {
        **facts,
        "settings_conflict": settings.conflict,
        "keep_seconds": _seconds(settings),
        "kept_bytes": _kept_bytes(state, topic),
        "oldest_stored_seconds": None if age is None else round(age, 3),
        "not_let_go": topic.not_let_go,
        "superseded_seconds": waits.age(topic.superseded_since),
    }


def _seconds(settings: Settings) -> float | None:
    """Return the age beyond which `keep` lets a message go; None if no age does."""
    ages = [None if one is None else one.age for one in settings.keep]
    return None if None in ages else max(age or 0 for age in ages) / MICROSECONDS


def _kept_bytes(state: State, topic: Topic) -> int | None:
    stored = 0
    for log in topic.logs.values():
        low = max(log.low, log.bare, unread_place(topic, log.id))
        try:
            before = None if low >= log.end else state.total_before(log, low)
        except StoreDamaged:
            state.found_damaged(topic)
            return None
        stored += 0 if before is None else log.total - before
        stored -= sum(one.freed for one in within(topic.compacted.get(log.id, ()), low, log.end)[0])
    return max(0, stored - topic.waiting_bytes)
