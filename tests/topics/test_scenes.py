"""Scenes behind rules that a random run seldom needs, or that the design first had otherwise."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.topics.model.delay import RULES as DELAY_RULES
from tests.topics.model.delay import DelayingTopic, Row
from tests.topics.model.messages import Start
from tests.topics.model.retention import Policy, retain
from tests.topics.model.rules import LOOKING_BACK, all_but
from tests.topics.model.settings import RULES as SETTINGS_RULES
from tests.topics.model.settings import UNSET, Values, merged
from tests.topics.model.settings import Row as SettingsRow
from tests.topics.model.starting import begin
from tests.topics.model.topic import Subscription, Topic

RULES = all_but(LOOKING_BACK)


def topic_of(log: str, *records: tuple[str, int, int]) -> Topic:
    """Return a topic with these records: publisher, counter, stamp."""
    topic = Topic(log)
    for publisher, counter, stamp in records:
        topic.append(publisher, counter, (publisher, counter), stamp, stamp)
    return topic


def shown(topic: Topic) -> list[tuple[str, int]]:
    return [record.content for _, record in topic.shown()]


@pytest.mark.parametrize(("left_out", "found"), [((), []), (("elder",), [("q", 1)])])
def test_a_deleted_key_stays_deleted_when_a_late_put_began_the_topic_elsewhere(
    left_out: tuple[str, ...], found: list[tuple[str, int]]
) -> None:
    old = topic_of("A", ("q", 1, 10), ("q", 3, 20))  # A value, and the tombstone of its key.
    old.compacted = {("A", 1), ("A", 2)}
    new = topic_of("D", ("q", 1, 90))  # The put of the value arrives again at a server without the topic.
    new.merge(old, all_but(LOOKING_BACK, *left_out))
    assert shown(new) == found


@pytest.mark.parametrize(("left_out", "found"), [((), [("p", 2), ("q", 1)]), (("beside",), [("q", 1)])])
def test_a_start_at_a_position_brings_later_records_of_the_log_that_comes_first(
    left_out: tuple[str, ...], found: list[tuple[str, int]]
) -> None:
    topic = topic_of("A", ("p", 1, 10), ("p", 2, 90))
    topic.merge(topic_of("B", ("q", 1, 50)), RULES)
    start = Start("position", position=("B", 1))  # Taken at B at 50, during the split; p2 was put afterwards, at A.
    begun = begin(topic, start, 100, all_but(LOOKING_BACK, *left_out), sole_owner=True)
    assert [record.content for _, record in topic.walk(begun.spans) if record] == found


@pytest.mark.parametrize(("left_out", "kept"), [((), 2), (("counted",), 1)])
def test_records_that_both_sides_had_do_not_count_twice(left_out: tuple[str, ...], kept: int) -> None:
    topic = topic_of("A", ("p", 1, 10), ("p", 2, 20), ("p", 3, 30))
    topic.merge(topic_of("B", ("p", 1, 12), ("p", 2, 22)), RULES)  # Both puts were repeated there.
    topic.append("p", 4, ("p", 4), 40, 40)
    rules = all_but(LOOKING_BACK, *left_out)
    retain(topic, Policy("records", 2), 50, rules, Counter(), sole_owner=True)
    assert len(shown(topic)) == kept


def test_drop_reports_only_records_that_the_subscriber_is_owed() -> None:
    topic = topic_of("A", ("p", 1, 10), ("p", 2, 60))
    other = Topic("B")
    other.subscriptions["x"] = Subscription(1, True, 50, other.beginning(), ("B", 0))  # It began at the end, at 50.
    topic.merge(other, RULES)
    policy = Policy("age", 40, drop=90)
    retain(topic, policy, 200, RULES, Counter(), sole_owner=True)
    assert list(topic.walk(topic.subscriptions["x"].backlog)) == [(("A", 2), None)]


def test_two_sets_in_a_row_are_no_conflict_with_the_side_that_saw_none() -> None:
    first = SettingsRow("s1", Values(frozenset({("age", 90)})), 1, frozenset({""}))
    third = SettingsRow("s3", Values(frozenset({("records", 3)})), 3, frozenset({"", "s1", "s2"}))
    assert merged(first, third, all_but(SETTINGS_RULES)) == third
    base_alone = SettingsRow("s3", Values(frozenset({("records", 3)})), 3, frozenset({"s2"}))
    conflict = merged(first, base_alone, all_but(SETTINGS_RULES))
    assert conflict.conflict
    assert conflict.values.keep == {("age", 90), ("records", 3)}


def test_a_topic_without_settings_gives_way_in_a_merge() -> None:
    row = SettingsRow("s1", Values(frozenset({("age", 90)})), 1, frozenset({""}))
    assert merged(SettingsRow("", UNSET), row, all_but(SETTINGS_RULES)) == row


def test_a_message_that_waits_at_both_sides_waits_once_after_the_merge() -> None:
    row = Row(50, "p", 1, ("p", 1))
    for left_out, waiting in (((), {row}), (("both",), set())):
        one, other = DelayingTopic("A"), DelayingTopic("B")
        for topic in (one, other):
            topic.delayed, topic.last = {row}, {"p": 1}
        one.merge(other, all_but(DELAY_RULES, *left_out))
        assert one.delayed == waiting


def test_a_message_that_the_given_side_has_delivered_does_not_wait_any_more() -> None:
    row = Row(50, "p", 1, ("p", 1))
    one, other = DelayingTopic("A"), DelayingTopic("B")
    one.delayed, one.last = {row}, {"p": 1}
    other.append("%delay:B", 1, ("p", 1), 50, 50)
    other.last["p"] = 1
    one.merge(other, all_but(DELAY_RULES))
    assert (one.delayed, shown(one)) == (set(), [("p", 1)])
