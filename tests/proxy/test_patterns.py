"""Patterns at one proxy: what it confirms, tells, keeps and lists.

The rules are those of docs/explanation/families.md, FA2, FA3, FA5, FA6 and FA9.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import StoreDamaged
from pubsub.protocol import Operate, Report, Status
from pubsub.protocol.families import Matching, Pattern, Patterns
from pubsub.protocol.pattern_table import CLIENT_PATTERNS_MAX, NO_PATTERNS, PatternRow, PatternTable
from pubsub.proxy.remembered import Remembered
from pubsub.proxy.routes_file import RoutesStore
from tests.proxy.stage import Said, Stage

ORDERS = PatternRow("ann", "orders.>", 5, True, 70)


class Server:
    """A server that stores the patterns that it is told."""

    def __init__(self, stage: Stage, name: str = "s1") -> None:
        self.stage, self.name, self.known = stage, name, PatternTable()

    def announce(self, topics: dict[str, str] | None = None, *, patterns: str | None = None) -> None:
        """Announce all; an earlier release names no patterns."""
        digest = self.known.digest if patterns is None else patterns
        self.hear(self.stage.announce_all(self.name, topics or {}, digest))

    def hear(self, said: list[Said]) -> Patterns | None:
        """Take in what the proxy tells, and answer; returns what it told."""
        told = [one.message for one in said if one.link == self.name.encode() and isinstance(one.message, Patterns)]
        for message in told:
            for row in message.rows or ():
                self.known.admit(row)
        return told[-1] if told else None

    def answer(self, *rows: PatternRow) -> list[Said]:
        for row in rows:
            self.known.admit(row)
        self.stage.from_server(self.name.encode(), b"", Patterns(self.name, self.known.digest, rows))
        return self.stage.said()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def answers(said: list[Said]) -> list[Status]:
    return [one.message for one in said if not one.to_server and isinstance(one.message, Status)]


def ask(stage: Stage, number: int = 5, stamp: int = 70, *, end: int = 0, pattern: str = "orders.>") -> list[Said]:
    return stage.request(Pattern("ann", pattern, number, stamp, end))


def served(stage: Stage) -> Server:
    """A server that is announced, with the topics orders.eu and audit."""
    server = Server(stage)
    server.announce({"orders.eu": "x", "audit": "y"})
    return server


def topics(stage: Stage, pattern: str = "orders.>", **more: Any) -> list[Status]:
    return answers(stage.request(Matching("ann", pattern, **more)))


def test_a_pattern_is_answered_when_a_server_has_stored_it(stage: Stage) -> None:
    server = served(stage)
    said = ask(stage)
    assert answers(said) == []
    assert stage.core.table.changes.patterns == {ORDERS.key: ORDERS}
    assert server.hear(said) == Patterns("p1", PatternTable([ORDERS]).digest, (ORDERS,))
    (answer,) = answers(server.answer())
    assert (answer.outcome.value, answer.number, answer.stamp) == ("success", 5, 70)
    (again,) = answers(ask(stage))
    assert (again.outcome.value, again.stamp) == ("success", 70)


def test_without_a_server_a_pattern_waits(stage: Stage) -> None:
    assert ask(stage) == []
    server = served(stage)
    assert server.known.rows == {ORDERS.key: ORDERS}
    (answer,) = answers(server.answer())
    assert answer.outcome.value == "success"


def test_the_proxys_clock_counts_without_a_stamp_and_the_first_one_stays(stage: Stage) -> None:
    server = served(stage)
    server.hear(ask(stage, stamp=0))
    (answer,) = answers(server.answer())
    assert answer.stamp == stage.core.replies._stamps.reading(stage.now)
    stage.now += 1
    (again,) = answers(ask(stage, stamp=0))
    assert again.stamp == answer.stamp


def test_an_end_stays_as_a_number(stage: Stage) -> None:
    server = served(stage)
    server.hear(ask(stage))
    server.answer()
    server.hear(ask(stage, 6, end=1))
    assert [one.outcome.value for one in answers(server.answer())] == ["success"]
    (late,) = answers(ask(stage))
    assert (late.outcome.value, late.number) == ("superseded", 6)
    assert stage.core.patterns.known.rows[ORDERS.key] == PatternRow("ann", "orders.>", 6, False, 0)


@pytest.mark.parametrize("pattern", ["orders", "$calls.*", "a*b"])
def test_only_a_pattern_is_one(stage: Stage, pattern: str) -> None:
    (answer,) = answers(ask(stage, pattern=pattern))
    assert answer.outcome.value == "refused"
    (listed,) = topics(stage, pattern) if pattern != "$calls.*" else answers(ask(stage, pattern=pattern))
    assert listed.outcome.value == "refused"


def test_one_pattern_too_many_names_the_limit(stage: Stage) -> None:
    for number in range(CLIENT_PATTERNS_MAX):
        ask(stage, pattern=f"a{number}.>")
    (answer,) = answers(ask(stage))
    assert (answer.outcome.value, answer.reason) == ("full", "CLIENT_PATTERNS_MAX")


def test_the_routes_file_keeps_patterns(tmp_path: Path) -> None:
    stage = Stage()
    ask(stage)
    ask(stage, 9, end=1, pattern="*")
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    store.close()
    store = RoutesStore(tmp_path)
    remembered = store.load()
    store.close()
    assert set(remembered.patterns) == {ORDERS, PatternRow("ann", "*", 9, False, 0)}
    assert Stage(remembered=remembered).core.patterns.known.rows == stage.core.patterns.known.rows


def test_a_proxy_that_lost_its_file_learns_from_a_server_and_shows_until_then_that_it_lacks_something(
    stage: Stage,
) -> None:
    server = Server(stage)
    server.known.admit(ORDERS)
    server.announce({"t": "x"})
    assert stage.whole("s1", "t").patterns == ""
    server.answer(ORDERS)
    assert stage.whole("s1", "t").patterns == server.known.digest
    assert stage.core.table.changes.patterns == {ORDERS.key: ORDERS}


def test_patterns_of_one_server_are_told_to_the_others(stage: Stage) -> None:
    one, other = Server(stage, "s1"), Server(stage, "s2")
    one.announce()
    other.announce()
    said = one.answer(ORDERS)
    assert other.hear(said) == Patterns("p1", one.known.digest, (ORDERS,))
    assert one.hear(said) is None


def test_a_server_of_an_earlier_release_is_told_nothing_and_gets_no_rights(stage: Stage) -> None:
    stage.core.patterns.may_get = lambda client, topic: False
    server = Server(stage)
    server.announce({"orders.eu": "x"}, patterns="")
    assert server.hear(ask(stage)) is None
    assert stage.whole("s1", "orders.eu").body == b"orders.eu="


def test_without_patterns_nothing_is_told_or_added(stage: Stage) -> None:
    server = Server(stage)
    said = stage.announce_all("s1", {"orders.eu": "x"}, NO_PATTERNS)
    assert server.hear(said) is None
    answer = stage.whole("s1", "orders.eu")
    assert (answer.body, answer.patterns) == (b"orders.eu=", "")


def test_an_answer_about_sole_ownership_names_subscribers_without_the_right(stage: Stage) -> None:
    server = served(stage)
    stage.core.patterns.may_get = lambda client, topic: topic == "orders.eu"
    server.answer(ORDERS, PatternRow("bob", ">", 1, True, 1))
    answer = stage.whole("s1", "orders.eu", "orders.us", "audit")
    assert answer.body == b"orders.eu= orders.us= audit=\nann orders.us\nbob orders.us audit"


def test_matching_topics_are_listed_and_a_question_waits_for_a_new_one(stage: Stage) -> None:
    server = served(stage)
    (first,) = topics(stage)
    assert first.body == b"orders.eu"
    assert topics(stage, known=first.checksum, wait_ms=5000) == []
    server.stage.announce("s1", {"audit.x": "z"}, change=2, partial=1, previous=1)
    assert stage.said() == []
    header = stage.announce_all("s1", {"orders.us": "u", "orders.eu": "x"}, NO_PATTERNS, change=3)
    (second,) = answers(header)
    assert second.body == b"orders.eu orders.us"
    (empty,) = topics(stage, known=second.checksum)
    assert (empty.outcome.value, empty.body) == ("empty", b"")


def test_a_question_without_news_is_answered_after_its_wait(stage: Stage) -> None:
    served(stage)
    (first,) = topics(stage)
    assert topics(stage, known=first.checksum, wait_ms=1000) == []
    assert stage.core.deadline <= stage.now + 1
    said = stage.sleep(1.0)
    assert [one.outcome.value for one in answers(said)] == ["empty"]


def test_only_topics_that_the_client_may_get_are_listed(stage: Stage) -> None:
    served(stage)
    stage.core.patterns.may_get = lambda client, topic: topic == "audit"
    assert [one.body for one in topics(stage, ">")] == [b"audit"]


def test_a_damaged_row_stops_the_proxy_as_any_other(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    assert store._db is not None
    store._db.execute("insert into pattern values ('ann', 'orders', 1, 1, 1)")
    with pytest.raises(StoreDamaged):
        store.load()
    store.close()
    assert Remembered().patterns == ()


def test_an_operator_ends_a_pattern_with_a_number_and_a_late_order_changes_nothing(stage: Stage) -> None:
    server = served(stage)
    server.hear(ask(stage))
    server.answer()
    end = Operate("op", "-", "unsubscribe", topic="orders.>", subscriber="ann", number=5)
    told = stage.request(end)
    assert answers(told) == []  # It waits until a server has stored the end.
    server.hear(told)
    (done,) = answers(server.answer())
    assert (done.outcome.value, done.number) == ("success", 5)
    assert server.known.rows[ORDERS.key] == PatternRow("ann", "orders.>", 5, False, 0)
    assert [one.outcome.value for one in answers(stage.request(end))] == ["success"]  # A repeat finds it done.
    server.hear(ask(stage, 6))
    server.answer()
    (late,) = answers(stage.request(end))
    assert (late.outcome.value, late.number) == ("superseded", 6)
    assert stage.core.patterns.known.rows[ORDERS.key].on


@pytest.mark.parametrize("facts", [{"topic": "orders.eu"}, {"subscriber": "a b"}, {"topic": "$calls.*"}])
def test_an_operator_ends_only_patterns_of_clients(stage: Stage, facts: dict[str, str]) -> None:
    named = {"topic": "orders.>", "subscriber": "ann"} | facts
    if " " in named["subscriber"]:
        named["subscriber"] = "*ann:orders.>"
    (answer,) = answers(stage.request(Operate("op", "-", "unsubscribe", number=5, **named)))
    assert answer.outcome.value == "refused"


def test_a_client_that_waits_for_topics_is_told_of_the_end(stage: Stage) -> None:
    server = served(stage)
    server.hear(ask(stage))
    server.answer()
    (listed,) = topics(stage, "orders.>")
    question = Matching("ann", "orders.>", listed.checksum, 1000)
    assert answers(stage.request(question)) == []
    other = stage.request(Matching("bob", "orders.>", listed.checksum, 1000), client=b"B")
    assert answers(other) == []
    told = stage.request(Operate("op", "-", "unsubscribe", topic="orders.>", subscriber="ann", number=5), client=b"O")
    assert [(one.link, one.message.outcome.value, one.message.number) for one in told if not one.to_server] == [
        (b"C", "superseded", 5)
    ]
    (again,) = answers(stage.request(question))
    assert (again.outcome.value, again.number) == ("superseded", 5)


def test_the_report_lists_patterns_and_about_one_pattern_its_ended_rows_too(stage: Stage) -> None:
    ask(stage)
    ask(stage, 9, pattern="ended.*")
    ask(stage, 10, end=1, pattern="ended.*")
    assert report(stage)["patterns"] == [ORDERS._asdict()]
    assert report(stage, "ended.*")["patterns"] == [PatternRow("ann", "ended.*", 10, False, 0)._asdict()]
    assert report(stage, "orders.>")["patterns"] == [ORDERS._asdict()]
    assert report(stage, "orders.eu")["patterns"] == []


def report(stage: Stage, topic: str = "") -> dict[str, Any]:
    (answer,) = answers(stage.request(Report("op", "-", topic)))
    return dict(json.loads(bytes(answer.body)))
