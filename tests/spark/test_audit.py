"""The audit: each kind of flaw is planted and found, and nothing else is.

All that is planted lies in one set of records, a topic for each case, and is audited once: an audit takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pubsub.spark.audit import Audit, Flaw
from pubsub.spark.records import ParquetRecord

pytestmark = pytest.mark.spark

PUBLISHER = "alice/00000000000000aa"
LOG = "00000000000000bb"
STEP = 2_000_000
"""Microseconds from one line to the next, of whomever: more than the skew."""


class Record:
    """One client's record, line by line, on the topic of the case."""

    def __init__(self, client: str, clock: Iterator[int], boot: str = "host") -> None:
        self.client, self._clock, self.boot = client, clock, boot
        self.session = self._n = 0
        self.topic = ""
        self.lines: list[dict[str, Any]] = []
        self.open()

    def line(self, kind: str, **facts: Any) -> None:
        self._n += 1
        whole = {"client": self.client, "session": self.session, "n": self._n, "at": next(self._clock), "kind": kind}
        self.lines.append(whole | facts)

    def open(self) -> None:
        self.session, self._n = self.session + 1, 0
        self.line("open", boot=self.boot, publisher=PUBLISHER if self.client == "alice" else f"{self.client}/1")

    def about(self, kind: str, **facts: Any) -> None:
        self.line(kind, topic=self.topic, **facts)

    def puts(self, first: int, count: int, result: str) -> None:
        self.about("put", publisher=PUBLISHER, first=first, count=count, result=result)

    def put(self, first: int, count: int = 1, result: str = "acknowledged") -> None:
        """Begun, and what became of it; "" is nothing yet."""
        for each in filter(None, ("begun", result)):
            self.puts(first, count, each)

    def subscription(self, on: bool, *results: str) -> None:
        for result in results or ("asked", "answered"):
            self.about("subscription", on=on, result=result)

    def continues(self) -> None:
        """From another state directory."""
        self.open()
        self.about("subscription", on=True, result="asked", continues=True)
        self.about("subscription", on=True, result="answered")

    def get(self, first: int, count: int = 1, publisher: str = PUBLISHER, **more: int) -> None:
        place = {"log": LOG, "offset": first}
        self.about("delivery", publisher=publisher, first=first, count=count, **place, result="taken", **more)

    def drained(self) -> None:
        self.about("drained")


class World:
    """A publisher and two subscribers; what they record in each case."""

    def __init__(self) -> None:
        self.clock = iter(range(0, 1 << 60, STEP))
        self.alice, self.bob, self.carol = (Record(name, self.clock) for name in ("alice", "bob", "carol"))
        self.dave = Record("dave", self.clock, "another host")
        self.both = (self.bob, self.carol)
        self.all = (self.alice, *self.both, self.dave)
        for case in [name for name in dir(self) if name.startswith("case_")]:
            for record in self.all:
                record.topic = case.removeprefix("case_")
            for record in self.both:
                record.subscription(True)
            getattr(self, case)()

    def write(self, directory: Path) -> list[str]:
        """Lines of one, lines of another in no order, Parquet of a third; one of them twice."""
        texts = {one.client: [json.dumps(line) + "\n" for line in one.lines] for one in self.all}
        texts["carol"].reverse()
        for name in ("alice", "carol", "dave"):
            (directory / f"{name}.jsonl").write_text("".join(texts[name]))
        sink = ParquetRecord(directory / "bob.parquet")
        sink.write("".join(texts["bob"]).encode())
        sink.close()
        with (directory / "alice.jsonl").open("a") as file:
            file.write('{"client":"bob","sess\n\n')
        return [str(directory), str(directory / "alice.jsonl")]

    def case_clean(self) -> None:
        self.alice.put(1, 1000)
        self.alice.put(1001, 10, "discarded")
        self.alice.put(1011, 5, "in_doubt")
        self.alice.put(1016, 1)
        for each in self.both:
            each.get(1, 400)
            each.get(401, 600)
            each.get(1011, 5)  # In doubt, to all.
            each.get(1016)
            each.drained()

    def case_between(self) -> None:
        self.alice.put(1, 10)
        self.bob.get(1, 10)
        self.carol.get(1, 4)
        self.carol.get(7, 4)

    def case_drained(self) -> None:
        self.alice.put(1, 10)
        self.bob.drained()
        self.alice.put(11)

    def case_not_yet_answered(self) -> None:
        self.carol.subscription(False)
        self.carol.subscription(True, "asked")
        self.alice.put(1)
        self.carol.subscription(True, "answered")
        self.alice.put(2)
        for each in self.both:
            each.get(2)
            each.drained()

    def case_given_up(self) -> None:
        self.alice.put(1, 3)
        self.bob.get(1)
        self.carol.get(1, 3)
        self.bob.subscription(False)
        self.alice.put(4)
        self.carol.get(4)

    def case_halves(self) -> None:
        self.alice.put(1, 1, "in_doubt")
        self.bob.get(1)
        self.carol.drained()

    def case_nobody(self) -> None:
        self.alice.put(1, 1, "refused")
        self.alice.put(2, 1, "")
        for each in self.both:
            each.drained()

    def case_doubled(self) -> None:
        self.alice.put(1, 10)
        for each in self.both:
            each.get(1, 10)
        self.bob.open()
        self.bob.get(3, 2)

    def case_reordered(self) -> None:
        self.alice.put(1, 10)
        self.bob.get(1, 10)
        for first, count in ((1, 2), (5, 6), (3, 2)):
            self.carol.get(first, count)

    def case_new_session(self) -> None:
        self.alice.put(1, 10)
        self.bob.get(1, 10)
        self.carol.get(1, 5)
        self.carol.open()
        self.carol.get(6, 5)

    def case_foreign(self) -> None:
        self.alice.put(1, 2)
        self.bob.get(1, 3)
        self.carol.get(1, 2)
        self.carol.get(7, 1, "mallory/1")

    def case_silence(self) -> None:
        self.alice.put(1, 3)
        self.carol.get(1, 3)
        self.bob.get(1)
        self.bob.subscription(False, "asked")
        self.bob.get(2)
        self.bob.subscription(False, "answered")
        self.bob.get(3)

    def case_early(self) -> None:
        self.bob.subscription(False)
        self.alice.put(1)
        self.carol.get(1)
        self.bob.subscription(True)
        self.bob.get(1)

    def case_skew(self) -> None:
        self.alice.put(1)
        self.dave.line("subscription", topic="skew", on=True, result="known")
        self.alice.put(2)
        for each in (self.bob, self.dave):  # Half a second later, by a clock that may be a second ahead.
            each.drained()
            each.lines[-1]["at"] = self.alice.lines[-1]["at"] + 500_000

    def case_killed(self) -> None:
        self.alice.put(1, 10)
        self.carol.get(1, 10)
        self.bob.get(1, 2)
        self.bob.get(4, 2)
        self.bob.open()  # Killed; what it took, up to 8, was not written.
        self.bob.subscription(True, "known")
        self.bob.about("taken_before", publisher=PUBLISHER, first=8, count=1)
        self.bob.get(10)

    def case_killed_for_good(self) -> None:
        self.alice.put(1, 10)
        self.carol.get(1, 10)
        self.bob.get(1, 2)

    def case_recorded_late(self) -> None:
        self.alice.about("put_before", publisher=PUBLISHER, first=5, count=1)
        self.alice.put(7)
        for each in self.both:
            each.get(4, 2)
            each.get(6)
            each.get(7)

    def case_gap(self) -> None:
        self.alice.line("gap", count=3)
        self.alice.about("gap", publisher=PUBLISHER, first=3, count=2)
        self.alice.put(1, 2)
        for each in self.both:
            each.get(1, 5)

    def case_continued(self) -> None:
        self.alice.put(1, 6)
        self.bob.get(1, 4)
        self.bob.continues()
        self.bob.get(2, 3, doubtful=True)
        self.bob.get(5, 2)
        self.carol.get(1, 3)
        self.carol.continues()
        self.carol.get(4, 3)
        for each in self.both:
            each.drained()

    def seeks(self, record: Record) -> None:
        record.about("subscription", on=True, result="asked", start="@0")
        record.about("subscription", on=True, result="answered")

    def case_sought(self) -> None:
        self.alice.put(1, 6)
        for each in self.both:
            each.get(1, 4)
            self.seeks(each)
            each.get(1, 6, replay=1)
            self.seeks(each)
            each.get(3, 4, replay=2)
            each.drained()

    def case_sought_wrongly(self) -> None:
        self.alice.put(1, 6)
        self.bob.get(1, 6)
        self.seeks(self.bob)
        self.bob.get(1, 6, replay=1)
        self.bob.get(4, replay=1)
        self.carol.get(1, 6)
        self.seeks(self.carol)
        self.carol.get(1, replay=1)
        self.carol.get(3, 4, replay=1)
        self.carol.get(2, replay=1)

    def case_continued_wrongly(self) -> None:
        self.alice.put(1, 6)
        self.bob.get(1, 4)
        self.bob.continues()
        self.bob.get(3, 2, doubtful=True)
        self.bob.get(4)  # Without the mark, and the mark is there once.
        self.bob.get(6)
        self.carol.get(1, 6)

    def case_kept_from_before(self) -> None:
        for result in ("unfinished", "acknowledged"):
            self.alice.puts(1, 2, result)
        self.bob.get(1, 2)
        self.carol.drained()  # Nobody knows when they began.


class Found:
    """What an audit said."""

    def __init__(self, audit: Audit, *, whole: bool = True) -> None:
        with closing(audit):
            self.flaws = list(audit.flaws())
            if whole:
                self.counts = audit.counts()
                missing = audit._sql("SELECT * FROM $missing").collect()
                self.missing = {(row.topic, row.client, row.counter): row for row in missing}

    def of(self, topic: str) -> list[Flaw]:
        return [flaw for flaw in self.flaws if flaw.topic == topic]

    def brief(self, topic: str) -> list[tuple[str, str, int]]:
        return [(flaw.kind, flaw.subscriber, flaw.counter) for flaw in self.of(topic)]

    def unrecorded(self, topic: str) -> list[tuple[str, int]]:
        return sorted((key[1], key[2]) for key, row in self.missing.items() if key[0] == topic and not row.recorded)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return World().write(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def found(session: Any, records: list[str]) -> Found:
    return Found(Audit(session, records))


@pytest.fixture(scope="module")
def strict(session: Any, records: list[str]) -> Found:
    """With everybody said to have drained, no skew, and publishers without a record left out."""
    return Found(Audit(session, records, drained=True, skew=0.0, partial=True), whole=False)


def test_a_clean_record_has_no_flaw(found: Found, strict: Found) -> None:
    for case in ("clean", "given_up", "nobody", "new_session", "kept_from_before", "continued", "sought"):
        assert found.of(case) == strict.of(case) == []


def test_a_message_that_comes_twice_in_one_replay_is_doubled_and_one_out_of_its_order_there_is_reordered(
    found: Found,
) -> None:
    assert found.brief("sought_wrongly") == [("doubled", "bob", 4), ("reordered", "carol", 2)]


def test_a_message_missing_between_others_is_lost(found: Found) -> None:
    assert found.brief("between") == [("lost", "carol", 5), ("lost", "carol", 6)]
    assert found.of("between")[0].publisher == PUBLISHER
    assert "earlier and later ones came" in found.of("between")[0].reason


def test_a_message_missing_before_a_drain_is_lost(found: Found, strict: Found) -> None:
    assert found.brief("drained") == [("lost", "bob", counter) for counter in range(1, 11)]
    assert "had drained" in found.of("drained")[0].reason
    assert strict.brief("drained") == [("lost", who, counter) for who in ("bob", "carol") for counter in range(1, 12)]


def test_a_put_from_before_the_answered_subscription_need_not_arrive(found: Found) -> None:
    assert found.brief("not_yet_answered") == [("lost", "bob", 1)]


def test_a_put_in_doubt_that_reached_some_subscribers_is_lost_for_the_others(found: Found) -> None:
    assert found.brief("halves") == [("lost", "carol", 1)]
    assert "in doubt, and others got it" in found.of("halves")[0].reason


def test_a_message_delivered_twice_is_doubled(found: Found) -> None:
    assert found.brief("doubled") == [("doubled", "bob", 3), ("doubled", "bob", 4)]
    assert found.of("doubled")[0].id == f"{LOG}.3"
    assert f"2 times, first as {LOG}.3" in found.of("doubled")[0].reason


def test_a_message_after_a_later_one_is_reordered(found: Found) -> None:
    assert found.brief("reordered") == [("reordered", "carol", 3), ("reordered", "carol", 4)]


def test_only_a_marked_message_may_be_repeated_after_a_continued_subscription(found: Found) -> None:
    assert found.brief("continued_wrongly") == [("doubled", "bob", 4), ("lost", "bob", 5)]


def test_a_message_without_a_put_is_unexplained(found: Found, strict: Found) -> None:
    assert [(flaw.kind, flaw.subscriber, flaw.counter, flaw.id, flaw.reason) for flaw in found.of("foreign")] == [
        ("unexplained", "bob", 3, f"{LOG}.3", "its publisher's record does not have it"),
        ("unexplained", "carol", 7, f"{LOG}.7", "its publisher has no record"),
    ]
    assert strict.brief("foreign") == [("unexplained", "bob", 3)]


def test_a_message_after_an_answered_unsubscribe_is_unexplained(found: Found) -> None:
    assert found.brief("silence") == [("unexplained", "bob", 3)]
    assert found.of("silence")[0].reason == "it came after the unsubscribe was answered"


def test_a_message_from_before_the_subscription_is_unexplained(found: Found) -> None:
    assert found.brief("early") == [("unexplained", "bob", 1)]
    assert found.of("early")[0].reason == "it was acknowledged before the subscription was asked for"


def test_clocks_of_different_hosts_may_differ_by_the_skew(found: Found, strict: Found) -> None:
    assert found.brief("skew") == [("lost", "bob", 1), ("lost", "bob", 2)]
    assert ("lost", "dave", 2) in strict.brief("skew")
    assert ("lost", "dave", 1) not in strict.brief("skew")


def test_deliveries_lost_by_a_kill_are_unrecorded_and_other_missing_ones_are_lost(found: Found) -> None:
    assert found.brief("killed") == [("lost", "bob", 3), ("lost", "bob", 9)]
    assert found.unrecorded("killed") == [("bob", 6), ("bob", 7), ("bob", 8)]


def test_a_killed_client_that_never_restarts_leaves_its_messages_open(found: Found) -> None:
    assert found.of("killed_for_good") == []
    assert [key[1:] for key, row in sorted(found.missing.items()) if key[0] == "killed_for_good" and not row.due] == [
        ("bob", counter) for counter in range(3, 11)
    ]


def test_a_put_from_before_the_recording_is_unrecorded(found: Found) -> None:
    assert found.brief("recorded_late") == [("unexplained", "bob", 6), ("unexplained", "carol", 6)]


def test_a_gap_in_a_publishers_record_is_unrecorded(found: Found) -> None:
    assert found.brief("gap") == [("unexplained", "bob", 5), ("unexplained", "carol", 5)]


def test_everything_is_counted(found: Found) -> None:
    lines = World()
    counts = found.counts
    assert counts["lines"] == sum([len(one.lines) for one in (*lines.all, lines.alice)])
    assert counts["damaged_lines"] == 2  # The file that they are in is read twice.
    assert (counts["clients"], counts["sessions"], counts["lines_missing"]) == (4, 10, 3)
    assert counts["unrecorded"] == 3 + 4 + 4
    for kind in ("lost", "doubled", "reordered", "unexplained"):
        assert counts[kind] == sum([flaw.kind == kind for flaw in found.flaws]) > 0
    assert counts["discarded"] == 10
    assert counts["in_doubt"] == 5 + 1 + 2
