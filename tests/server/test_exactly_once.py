"""Random histories of one server against a simple oracle: exactly once, in order, over crashes and full disks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pubsub.protocol import Get, Outcome, Position, Subscribe
from pubsub.protocol.names import Start
from tests.server.stage import Stage, bodies, put

pytestmark = pytest.mark.timeout(600)
"""Some ten thousand steps with a disk in them: a busy machine takes its time."""

WHO = st.sampled_from(["bob", "carol"])
TOPIC = st.sampled_from(["t", "t", "t", "u"])
PUBLISHER = st.sampled_from(["alice", "erin"])


class Subscriber:
    """What one client knows of one subscription, and what it is to receive."""

    def __init__(self) -> None:
        self.on = False
        self.number = 0
        self.last: Position | None = None
        self.after: Position | None = None
        self.expected: list[bytes] = []
        """Records from the one behind `last` on."""
        self.ahead = 0
        """How many of them were received already, up to `after`."""


class History(RuleBasedStateMachine):
    """Clients that behave, a server that crashes and runs out of disk."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stage = Stage(
            Path(self.folder.name), retention_hold_seconds=13.0, answer_records_max=4, backlog_bytes_max=10_000
        )
        self.number = 10
        self.subscribers: dict[tuple[str, str], Subscriber] = {}
        self.puts: dict[tuple[str, str], list[tuple[int, int, list[bytes]]]] = {}
        self.records: dict[str, list[tuple[int, bytes]]] = {}
        """By topic, the stamp and the body of each record that was ever taken; the first one has the offset 1."""

    def teardown(self) -> None:
        self.stage.close()
        self.folder.cleanup()

    def subscriber(self, who: str, topic: str) -> Subscriber:
        return self.subscribers.setdefault((who, topic), Subscriber())

    def next(self, count: int = 1) -> int:
        self.number += count
        return self.number - count

    @initialize()
    def begin(self) -> None:
        for who in ("bob", "carol"):
            self.subscribe(who, "t", on=True, full=False)

    @rule(who=WHO, topic=TOPIC, on=st.booleans(), full=st.sampled_from([False, False, False, True]))
    def subscribe(self, who: str, topic: str, on: bool, full: bool) -> None:
        mine = self.subscriber(who, topic)
        number = self.next()
        self.stage.fail_commit = full
        request = self.stage.subscribe if on else self.stage.unsubscribe
        answer = request(who, topic, number, epoch=1)
        self.stage.fail_commit = self.stage.core.state.full = False
        if full:
            assert answer.outcome is Outcome.FULL
            return
        assert (answer.outcome, answer.number) == (Outcome.SUCCESS, number)
        mine.on, mine.number, mine.expected, mine.ahead = on, number, [], 0
        mine.last = mine.after = answer.position

    @rule(who=WHO, topic=TOPIC, pick=st.integers(0, 1_000), kind=st.sampled_from(["earliest", "stamp", "record"]))
    def subscribe_from(self, who: str, topic: str, pick: int, kind: str) -> None:
        """Begin anew among what the topic holds."""
        held = self.stage.core.state.topics.get(topic)
        records = self.records.get(topic, [])
        if held is None or not records:
            return
        index = pick % len(records)
        stamp, low = 0, held.open.low
        start: Start = "earliest"
        if kind == "record":
            start = (held.open.id, index + 1)
            low = max(index + 1, low)
        elif kind == "stamp":
            start = stamp = records[index][0]
            low = max(low, 1 + next(place for place, (its, _) in enumerate(records) if its >= stamp))
        mine, number = self.subscriber(who, topic), self.next()
        answer = self.stage.ask(Subscribe(who, topic, number, 1, start=start))
        if kind == "record" and index + 1 < low:
            assert (answer.outcome, answer.position) == (Outcome.GONE, (held.open.id, low - 1))
            return
        assert (answer.outcome, answer.position) == (Outcome.SUCCESS, (held.open.id, low - 1))
        mine.on, mine.number, mine.ahead = True, number, 0
        mine.expected = [body for its, body in records[low - 1 :] if its >= stamp]
        mine.last = mine.after = answer.position

    @rule(who=WHO, topic=TOPIC, back=st.integers(1, 5), on=st.booleans())
    def late_subscription(self, who: str, topic: str, back: int, on: bool) -> None:
        mine = self.subscriber(who, topic)
        if mine.number > back:
            request = self.stage.subscribe if on else self.stage.unsubscribe
            assert request(who, topic, mine.number - back, epoch=1).outcome is Outcome.SUPERSEDED

    @rule(
        publisher=PUBLISHER,
        topic=TOPIC,
        count=st.integers(1, 6),
        size=st.integers(0, 40),
        full=st.sampled_from([False, False, True]),
    )
    def new_put(self, publisher: str, topic: str, count: int, size: int, full: bool) -> None:
        history = self.puts.setdefault((publisher, topic), [])
        counter = self.next(count)
        records = [b"%d:" % (counter + index) + b"x" * size for index in range(count)]
        previous = history[-1][0] + history[-1][1] - 1 if history else 0
        self.stage.fail_commit = full
        answer = self.stage.ask(put(topic, counter, records, sender=publisher, previous=previous))
        self.stage.fail_commit = self.stage.core.state.full = False
        if answer.outcome is Outcome.FULL:
            assert full or answer.reason == "backlog_bytes_max"
            return
        assert (answer.outcome, answer.last) == (Outcome.SUCCESS, counter + count - 1)
        history.append((counter, count, records))
        stamp = self.stage.core.state.stamps.last
        self.records.setdefault(topic, []).extend((stamp, body) for body in records)
        for (_, name), mine in self.subscribers.items():
            if name == topic and mine.on:
                mine.expected += records

    @rule(publisher=PUBLISHER, topic=TOPIC, data=st.data())
    def repeated_put(self, publisher: str, topic: str, data: st.DataObject) -> None:
        history = self.puts.get((publisher, topic))
        if history:
            counter, _, records = data.draw(st.sampled_from(history))
            again = put(topic, counter, records, sender=publisher, previous=data.draw(st.integers(0, counter)))
            assert self.stage.ask(again).outcome is Outcome.DUPLICATE

    @rule(publisher=PUBLISHER, topic=TOPIC, ahead=st.integers(1, 9))
    def put_too_early(self, publisher: str, topic: str, ahead: int) -> None:
        early = put(topic, self.number + ahead + 1, sender=publisher, previous=self.number + ahead)
        assert self.stage.ask(early).outcome is Outcome.GAP

    @rule(
        who=WHO,
        topic=TOPIC,
        most=st.integers(1, 9),
        durable=st.booleans(),
        wait=st.booleans(),
        full=st.sampled_from([False, False, False, True]),
    )
    def get(self, who: str, topic: str, most: int, durable: bool, wait: bool, full: bool) -> None:
        mine = self.subscriber(who, topic)
        request = Get(who, topic, mine.last, mine.number, 1, mine.after, most, 0, 500 * wait)
        if not mine.on:
            assert self.stage.ask(request).outcome is Outcome.UNKNOWN
            return
        self.stage.fail_commit = full
        callback = self.stage.say(request)
        self.stage.loop()
        if wait:
            self.stage.sleep(0.6)
        self.stage.fail_commit = self.stage.core.state.full = False
        answer = self.stage.answered(callback)
        if answer.outcome is Outcome.FULL:
            assert full
            return
        rest = mine.expected[mine.ahead :]
        if answer.outcome is Outcome.EMPTY:
            assert rest == []
            return
        records = bodies(answer)
        assert records == rest[: len(records)]
        assert 0 < len(records) <= min(most, 4)
        mine.ahead += len(records)
        mine.after = answer.message
        if durable:
            self.commit(who, topic)

    @rule(who=WHO, topic=TOPIC)
    def commit(self, who: str, topic: str) -> None:
        """What was received is durable at the client; the next GET says so."""
        mine = self.subscriber(who, topic)
        mine.expected, mine.ahead = mine.expected[mine.ahead :], 0
        mine.last = mine.after

    @rule(who=WHO, topic=TOPIC)
    def forget(self, who: str, topic: str) -> None:
        """The client crashed: what was not durable is asked for again."""
        mine = self.subscriber(who, topic)
        mine.ahead, mine.after = 0, mine.last

    @rule(seconds=st.sampled_from([0.05, 0.3, 5.0, 20.0]))
    def sleep(self, seconds: float) -> None:
        self.stage.sleep(seconds)

    @rule()
    def crash(self) -> None:
        self.stage.restart()

    @invariant()
    def memory_is_what_is_stored(self) -> None:
        """But for acknowledgements, which may wait for a commit to ride on."""
        self.stage.sleep(0.25)
        stored = {topic.name: topic for topic in self.stage.store.topics()}
        assert stored.keys() == self.stage.core.state.topics.keys()
        for name, topic in self.stage.core.state.topics.items():
            assert facts(stored[name]) == facts(topic)


def facts(topic: Any) -> tuple[Any, ...]:
    return topic.number, topic.history, topic.last, topic.subscriptions, topic.open, topic.logs


class LongerHistory(History):
    """The same; pytest collects each of them once."""


def histories(count: int) -> settings:
    return settings(
        max_examples=count, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )  # fmt: skip


TestHistory = History.TestCase
TestHistory.settings = histories(30)
TestMoreHistories = pytest.mark.nightly(LongerHistory.TestCase)
TestMoreHistories.settings = histories(400)
