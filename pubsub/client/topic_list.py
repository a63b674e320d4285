"""List the topics of the cluster with their figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pubsub.client.requests import Answer, Proxies
from pubsub.monitoring import retained
from pubsub.protocol.messages import Report


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as `pubsub topic list` shows it. Figures are None while a server of the topic does not answer.

    Attributes:
        topic: its name.
        servers: IDs of the servers that hold it; more than one while they merge.
        records: stored messages.
        bytes: of these messages.
        subscribers: number of its subscribers.
        keep, drop, expire: its settings in force.
    """

    topic: str
    servers: tuple[str, ...]
    records: int | None = None
    bytes: int | None = None
    subscribers: int | None = None
    keep: str | None = None
    drop: str | None = None
    expire: str | None = None


@dataclass(slots=True)
class _Sum:
    """The figures of one topic at its servers."""

    holders: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    records: int = 0
    bytes: int = 0
    subscribers: set[str] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=retained.unknown)

    def add(self, server: str, held: dict[str, Any]) -> None:
        self.holders.add(server)
        self.told.add(server)
        self.records += held["records"]
        self.bytes += held["bytes"]
        self.subscribers |= held["subscribers"].keys()
        retained.add(self.settings, held)

    def facts(self, topic: str) -> TopicFacts:
        servers = tuple(sorted(self.holders))
        if not servers or self.told != self.holders:
            return TopicFacts(topic, servers)
        known = [self.settings.get(name) for name in ("keep", "drop", "expire")]
        return TopicFacts(topic, servers, self.records, self.bytes, len(self.subscribers), *known)


def list_topics(proxies: Proxies, sender: str) -> list[TopicFacts]:
    """Return the topics in the order of their names.

    Raises:
        Unavailable, KeyRefused, NotAllowed: no proxy answered.
    """
    seconds = proxies.timeout_seconds
    reports = [one for one in proxies.reports("list", sender, seconds).values() if isinstance(one, dict)]
    alive = {server["id"] for report in reports for server in report["servers"] if server["alive"]}
    asked = [(address, server) for address in proxies.addresses for server in sorted(alive)]
    answers = proxies.read_each([(address, Report(sender, server)) for address, server in asked], seconds)
    return _summed(reports, zip((server for _, server in asked), answers, strict=True))


def _summed(reports: Iterable[dict[str, Any]], answers: Iterable[tuple[str, Answer]]) -> list[TopicFacts]:
    topics: dict[str, _Sum] = {}
    for report in reports:
        for entry in report["topics"]:
            topics.setdefault(entry["topic"], _Sum()).holders |= {holder["server"] for holder in entry["holders"]}
    told: dict[str, dict[str, Any]] = {server: facts for server, facts in answers if isinstance(facts, dict)}
    for server, facts in told.items():
        for name, held in facts["topics"].items():
            topics.setdefault(name, _Sum()).add(server, held)
    return [topics[name].facts(name) for name in sorted(topics)]
