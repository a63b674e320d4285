"""Alarms of a cluster report in words: full disks and backlogs, messages that wait or stay too long, stuck transfers.

A warning in the report is a problem that a process itself has found. An alarm is a number beyond a bound, and may be
normal for a system: a subscriber that is off over the weekend has a backlog until Monday.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

from pubsub.monitoring.group_alarms import group_alarms
from pubsub.protocol.topic_settings import CLOCK_AHEAD, NOT_SOLE_OWNER, OTHER_DEFAULTS

DISK_FREE_MIN: Final = 0.05
"""Fraction of free disk space below which there is an alarm."""

OLDEST_SECONDS_MAX: Final = 3600.0
"""Age of the oldest unacknowledged message above which there is an alarm."""

BACKLOG_SHARE_MAX: Final = 0.8
"""Share of a server's `backlog_bytes_max` above which the backlog of a topic is an alarm."""
OVERDUE_SECONDS_MAX: Final = 30.0
UNFINISHED_SECONDS_MAX: Final = 60.0
"""Time without a server's confirmation of a deletion above which there is an alarm."""

KEPT_SECONDS_MIN: Final = 3600.0
"""Age of the oldest stored message below which there is no alarm that a topic keeps more than its setting `keep`."""

KEPT_TIMES_MAX: Final = 2
"""Multiple of the age in `keep` above which there is an alarm."""

SUPERSEDED_SECONDS_MAX: Final = 86_400.0
"""Age of a superseded message that a subscriber holds, above which there is an alarm."""

TRIES_MAX: Final = 5
"""Unanswered tries at one chunk of a transfer above which there is an alarm."""

TOPICS_MAX: Final = 5
"""Topics named in alarms of one kind; one more sentence counts the others."""

Facts = Mapping[str, Any]


def alarms(report: Facts) -> list[str]:
    """Return one sentence for each alarm.

    Args:
        report: of the cluster, with `proxies`, `servers`, `topics` and `moves`.
    """
    topics = report["topics"]
    return [
        *_disks(report),
        *_clocks(report["servers"]),
        *_backlogs(report["servers"]),
        *_oldest(topics),
        *_conflicts(topics),
        *_overdue(topics),
        *_kept(topics),
        *_superseded(topics),
        *group_alarms(report["servers"]),
        *_moves(report["moves"]),
        *_deletions(report["proxies"]),
    ]


def words(seconds: float) -> str:
    """Return a duration in its two largest units."""
    for unit, size, name, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // part)} {name}"
    return f"{int(seconds)} s"


def _disks(report: Facts) -> Iterator[str]:
    for role, key in (("proxies", "address"), ("servers", "id")):
        for one in report[role]:
            facts = (one["report"] or {}).get("process") or {}
            size, free = facts.get("disk_size_bytes", 0), facts.get("disk_free_bytes", 0)
            if size and free < size * DISK_FREE_MIN:
                name = one["report"].get("proxy") or one[key]
                what = "proxy" if role == "proxies" else "server"
                left = f"{free // (1024 * 1024):,} MiB"
                yield f"{what} {name}: {free / size:.1%} of its disk is free, {left}; free space or enlarge the disk"


def _clocks(servers: list[Facts]) -> Iterator[str]:
    """Yield the servers that trust no age. Servers of earlier releases do not report it."""
    for server in servers:
        facts = server["report"] or {}
        if facts.get("trusts_ages") is False and facts["clock_ahead_seconds"] is not None:
            ahead = words(facts["clock_ahead_seconds"])
            yield (
                f"server {server['id']}: its timestamps are {ahead} ahead of the proxies' clocks, and no message"
                " goes by its age; set the clock of its host and start it again"
            )


def _backlogs(servers: list[Facts]) -> Iterator[str]:
    """Yield the topics with a backlog near its limit. Servers of earlier releases do not report the limit."""
    near = [
        (held["bytes"] / limit, name, server["id"], held["subscribers"])
        for server in servers
        if (limit := (server["report"] or {}).get("backlog_bytes_max"))
        for name, held in server["report"]["topics"].items()
        if held["bytes"] > BACKLOG_SHARE_MAX * limit
    ]
    for share, topic, server, subscribers in nlargest(TOPICS_MAX, near, key=lambda one: one[0]):
        text = f"topic {topic}: its backlog on {server} is at {share:.0%} of backlog_bytes_max; 100% refuses puts"
        waiting, name = max(((facts["waiting"], name) for name, facts in subscribers.items()), default=(0, ""))
        cause = f"; it waits for {name}: start {name}, or run pubsub topic unsubscribe {topic} --subscriber {name}"
        yield text + cause if waiting else text
    yield from _more(near, "have a backlog near backlog_bytes_max")


def _oldest(topics: list[Facts]) -> Iterator[str]:
    late = [one for one in topics if (one["oldest_unacknowledged_seconds"] or 0) > OLDEST_SECONDS_MAX]
    for topic in nlargest(TOPICS_MAX, late, key=lambda one: one["oldest_unacknowledged_seconds"]):
        name, facts = max(topic["subscribers"].items(), key=lambda one: one[1]["oldest_unacknowledged_seconds"] or 0)
        age = words(topic["oldest_unacknowledged_seconds"])
        late_one = f"topic {topic['topic']}: {name} has not acknowledged a message for {age}"
        yield f"{late_one}; {facts['waiting']:,} wait; check that {name} runs"
    yield from _more(late, f"have messages that wait for more than {words(OLDEST_SECONDS_MAX)}")


def _conflicts(topics: list[Facts]) -> Iterator[str]:
    conflicts = [one for one in topics if one.get("settings_conflict")]
    for topic in conflicts[:TOPICS_MAX]:
        both = f"keep={topic['keep']} and drop={topic['drop']} after a merge"
        name = topic["topic"]
        yield f"topic {name}: its settings conflict, {both}; set them by pubsub topic set {name} keep=… drop=…"
    yield from _more(conflicts, "have conflicting settings")


def _overdue(topics: list[Facts]) -> Iterator[str]:
    late = [one for one in topics if (one.get("overdue_seconds") or 0) > OVERDUE_SECONDS_MAX]
    for topic in nlargest(TOPICS_MAX, late, key=lambda one: one["overdue_seconds"]):
        text = f"topic {topic['topic']}: a delayed message is overdue for {words(topic['overdue_seconds'])}"
        if topic.get("sole_owner"):
            yield f"{text}; check the disk and the log of its server"
        else:
            yield f"{text}; it goes when every proxy knows one owner: start the proxies and servers that are away"
    yield from _more(late, "have overdue delayed messages")


def _kept(topics: list[Facts]) -> Iterator[str]:
    beyond = [one for one in topics if _beyond(one) > 0]
    for topic in nlargest(TOPICS_MAX, beyond, key=_beyond):
        age, reason = words(topic["oldest_stored_seconds"]), topic["not_let_go"]
        held = f"topic {topic['topic']}: its oldest message is {age} old, and keep is {topic['keep']}"
        if reason == NOT_SOLE_OWNER:
            yield f"{held}; messages go when every proxy knows one owner: start the proxies and servers that are away"
        elif reason == CLOCK_AHEAD:
            yield f"{held}; {reason}: compare the clocks of its server and of the proxies"
        elif reason.startswith(OTHER_DEFAULTS):
            yield f"{held}; {reason}: give all servers the same defaults of topics"
        elif reason:
            yield f"{held}; {reason} needs it: check that it runs, or set drop"
        else:
            yield f"{held}; check that the disk of its server is not full"
    yield from _more(beyond, f"have messages of more than {KEPT_TIMES_MAX} times the age in keep")


def _superseded(topics: list[Facts]) -> Iterator[str]:
    """Yield the topics that a subscriber keeps from compaction (docs/explanation/compaction.md, KL2)."""
    held = [one for one in topics if (one.get("superseded_seconds") or 0) > SUPERSEDED_SECONDS_MAX]
    for topic in nlargest(TOPICS_MAX, held, key=lambda one: one["superseded_seconds"]):
        text = f"topic {topic['topic']}: a superseded message of {words(topic['superseded_seconds'])} stays"
        reason = topic["not_let_go"] or "a subscriber"
        yield f"{text}; {reason} needs it: check that it runs, or end its subscription"
    yield from _more(held, "have superseded messages that a subscriber needs")


def _beyond(topic: Facts) -> float:
    """Return the seconds by which the oldest message of a topic is too old; 0 or less if it is not."""
    keep, oldest = topic.get("keep_seconds"), topic.get("oldest_stored_seconds")
    return (oldest or 0) - max(KEPT_TIMES_MAX * keep, KEPT_SECONDS_MIN) if keep else 0.0


def _moves(moves: list[Facts]) -> Iterator[str]:
    silent = [one for one in moves if one["tries"] > TRIES_MAX]
    for move in silent[:TOPICS_MAX]:
        way = f"transfer from {move['server']} to {move['other']}"
        yield f"topic {move['topic']}: {way}, {move['tries']:,} tries without an answer; check {move['other']}"
    yield from _more(silent, "have transfers without an answer")


def _deletions(proxies: list[Facts]) -> Iterator[str]:
    """Yield the deletions that a holder of the topic has not stored. Earlier releases do not report them."""
    found: dict[tuple[str, str], float] = {}
    for proxy in proxies:
        for one in (proxy["report"] or {}).get("unfinished_deletions", ()):
            key = one["topic"], one["server"]
            found[key] = max(one["seconds"], found.get(key, 0.0))
    late = sorted((-seconds, *key) for key, seconds in found.items() if seconds > UNFINISHED_SECONDS_MAX)
    for seconds, topic, server in late[:TOPICS_MAX]:
        yield (
            f"topic {topic}: its deletion is unfinished for {words(-seconds)}, because server {server} has not stored"
            f" it; start {server}, or if it is lost, run pubsub topic abandon {topic} --server {server}"
        )
    yield from _more(late, "have unfinished deletions")


def _more(found: Sequence[object], what: str) -> Iterator[str]:
    if len(found) > TOPICS_MAX:
        yield f"{len(found) - TOPICS_MAX:,} more topics {what}"
