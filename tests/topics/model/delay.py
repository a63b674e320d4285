"""A random model of delayed messages (T29), in the world of looking back.

A delayed put is judged by the publisher's chain and moves `last`, and its message waits in a row. The sole owner
appends a row that is due, under a publisher of the log's own. The readers and seekers check as in looking
back. In addition, no message may come before it is due.

T29 as first written lets rows with a counter up to the other side's `last` go in a merge. If both sides drop such rows,
a message that waits at both is lost (`both`). If only the given side does, a message that the given side has delivered
comes again (`delivered`). A repeat may arrive at another server after the message is due. If that server stores it at
once, the other's row and this record hide each other, or both are delivered (`always`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.topics.model.messages import Answer, Put
from tests.topics.model.readers import Reader, Seeker
from tests.topics.model.retention import Policy
from tests.topics.model.rules import LOOKING_BACK, all_but
from tests.topics.model.topic import Content, Topic
from tests.topics.model.world import World

RULES: Final = {
    "sole_owner": "T29: only the sole owner appends due messages",
    "always": "T29: a delayed put that arrives after it is due becomes a row too",
    "publisher": "T29: it goes under the publisher of the log's delayed messages, with that publisher's own counter",
    "last": "T29: a delayed put moves `last`, so that a repeat is a duplicate",
    "commit": "T29: the row goes in the commit that appends its message",
    "travels": "T29: rows travel with the topic",
    "both": "T29: in a merge, a row that waits at both sides stays, once",
    "delivered": "T29: in a merge, a row goes if the other side has its counter and no row, at either side",
}


class Row(NamedTuple):
    """A message that waits."""

    due: int
    publisher: str
    counter: int
    content: Content


class DelayingTopic(Topic):
    """A topic with the rows that wait."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.delayed: set[Row] = set()

    def merge(self, other: Topic, rules: Mapping[str, bool]) -> str:
        assert isinstance(other, DelayingTopic)
        mine, its = self.delayed, other.delayed
        if not rules["travels"]:
            its = set()
        only_mine = {row for row in mine - its if row.counter > other.last.get(row.publisher, 0)}
        only_its = {row for row in its - mine if row.counter > self.last.get(row.publisher, 0)}
        if not rules["delivered"]:
            only_mine = mine - its
        self.delayed = only_mine | only_its | (mine & its if rules["both"] else set())
        return super().merge(other, all_but(LOOKING_BACK))


class DelayingWorld(World):
    """A world with publishers that delay some of their puts."""

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        super().__init__(seed, all_but(LOOKING_BACK))
        self.mine, self.policy, self.views = rules, Policy("ever"), []
        self.readers = [Reader(self, "x0"), Reader(self, "x1"), Seeker(self, "r0")]

    def make(self, log: str) -> Topic:
        return DelayingTopic(log)

    def draw_due(self) -> int:
        return self.clock + self.random.randrange(5, 100) if self.random.random() < 0.4 else 0

    def _put(self, server: int, topic: Topic, time: int, put: Put) -> Answer | None:
        assert isinstance(topic, DelayingTopic)
        last, end = topic.last.get(put.publisher, 0), put.counter + len(put.contents) - 1
        at_once = not put.due or (time >= put.due and not self.mine["always"])
        if at_once or end <= last or put.previous > last or (put.marked and not self.is_sole_owner(server)):
            return super()._put(server, topic, time, put)
        for counter, content in enumerate(put.contents, put.counter):
            topic.delayed.add(Row(put.due, put.publisher, counter, content))
            self.figures["delayed"] += 1
        if self.mine["last"]:
            topic.last[put.publisher] = end
        return Answer("success", number=end)

    def operate(self) -> None:
        owners = [server for server in self.holders() if server not in self.frozen]
        if self.random.random() < self.splits or not owners:
            self._merge_some(owners)
            return
        server = self.random.choice(owners)
        if self.is_sole_owner(server) or not self.mine["sole_owner"]:
            self._deliver(server, self.now() + self.skew[server])

    def _deliver(self, server: int, time: int) -> None:
        """Append the due messages, by due time, publisher and counter."""
        topic = self._topic(server)
        assert isinstance(topic, DelayingTopic)
        for row in sorted(row for row in topic.delayed if row.due <= time):
            if self.mine["publisher"]:
                publisher = f"%delay:{topic.open}"
                counter = topic.last.get(publisher, 0) + 1
                self._append(topic, time, publisher, counter, (row.content,))
            else:
                last = topic.last[row.publisher]
                self._append(topic, time, row.publisher, row.counter, (row.content,))
                topic.last[row.publisher] = max(last, row.counter)
            self.figures["delivered"] += 1
            if self.mine["commit"] or self.random.random() < 0.9:
                topic.delayed.discard(row)
            if max(self.puts[row.content].stamps) < row.due:
                self.object_to("before it is due", f"{row.content}")

    def _merge(self, giver: int, receiver: int) -> None:
        rules, self.rules = self.rules, {**self.rules, **self.mine}
        super()._merge(giver, receiver)
        self.rules = rules

    def settle(self, server: int) -> None:
        self.clock += 1_000
        self._deliver(server, self.clock)
