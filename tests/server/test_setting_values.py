"""The values of settings: what becomes of those of two holders, and their texts.

The rules are those of docs/explanation/retention.md, T12, T13, T14 and T15.
"""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol.topic_settings import EVER, Amount, Values, parse_drop, parse_keep
from pubsub.server.storage.schema import read_settings
from pubsub.server.topic.settings import ALTERNATIVES_MAX, DEFAULTS, LINEAGE_MAX, Settings, merged
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep.keeping import released
from tests.server.stage import Stage


@pytest.mark.parametrize("seed", range(20))
def test_merges_of_settings_do_not_depend_on_the_receiver(seed: int) -> None:
    random = Random(seed)
    known = [DEFAULTS]
    for number in range(30):
        one, other = random.choice(known), random.choice(known)
        assert merged(one, other) == merged(other, one)
        if random.random() < 0.5:
            known.append(merged(one, other))
        else:
            amount = random.choice([Amount(age=number), Amount(size=number), EVER])
            known.append(one.changed(f"{number + 1:016x}", number, Values(amount, EVER)))
        assert len(known[-1].keep) <= ALTERNATIVES_MAX
        assert len(known[-1].lineage) <= LINEAGE_MAX


def test_many_alternatives_become_one_that_keeps_as_much_as_each() -> None:
    merging = DEFAULTS
    for number in range(20):
        merging = merged(merging, DEFAULTS.changed(f"{number + 1:016x}", number, Values(Amount(age=number + 1), EVER)))
    assert max(one.age or 0 for one in merging.keep) == 20
    assert len(merging.keep) <= ALTERNATIVES_MAX


def test_a_long_history_of_sets_forgets_the_oldest_and_then_reports_a_conflict() -> None:
    old = DEFAULTS.changed("f" * 16, 1, Values(Amount(age=5), EVER))
    new = old
    for number in range(LINEAGE_MAX + 5):
        new = new.changed(f"{number + 1:016x}", number + 2, Values(Amount(age=9), EVER))
    found = merged(old, new)
    assert (found.conflict, set(found.keep)) == (True, {Amount(age=5), Amount(age=9)})


def test_equal_values_that_were_set_at_two_holders_are_no_conflict() -> None:
    one, other = (DEFAULTS.changed(version * 16, 1, Values(Amount(age=5), EVER)) for version in "ab")
    assert merged(one, other).conflict is False


@pytest.mark.parametrize(
    "text",
    [
        '["",0,[],[],[[]]]',
        '["",0,[],[[]],[]]',
        json.dumps(["", 0, [], [[n] for n in range(1, 10)], [[]]]),
        json.dumps(["", 0, ["a" * 16] * 257]),
        '["x"]',
        '["",0,[],[[-1]]]',
        "[]x",
    ],
)
def test_settings_that_no_release_writes_are_refused_wherever_they_are_read(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_settings(text)


# Texts


@pytest.mark.parametrize("text", ["none", "ever", "7m", "36h", "7d,10GiB", "1s,3B,1000 records", "5KiB", "1 records"])
def test_a_text_of_keep_is_read_and_written_alike(text: str) -> None:
    settings = Settings(keep=(parse_keep(text),))
    assert settings.texts["keep"] == [text]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("7d", "none", True),
        ("7d,10GiB", "none", True),
        ("ever", "7d", True),
        ("30d", "7d", True),
        ("7d", "7d,10GiB", True),
        ("7d,10GiB", "7d", False),
        ("1d", "7d", False),
        ("none", "7d", False),
        ("7d", "ever", False),
        ("1000 records", "7d", False),
    ],
)
def test_an_amount_keeps_as_much_as_another_if_it_lets_nothing_go_that_the_other_keeps(
    new: str, old: str, expected: bool
) -> None:
    assert parse_keep(new).keeps_as_much_as(parse_keep(old)) is expected


def test_texts_may_have_spaces_and_a_single_record() -> None:
    assert parse_keep("7 d, 10 GiB, 1 record") == Amount(7 * 86_400 * 10**6, 10 * 2**30, 1)
    assert parse_drop("never") == parse_drop("") == EVER


# Counting


def test_the_place_of_an_amount_is_found_as_by_looking_at_every_batch(stage: Stage) -> None:
    random = Random(7)
    counter = 1
    for _ in range(60):
        number = random.randrange(1, 6)
        stage.put("t", counter, [b"x" * random.randrange(1, 50)] * number)
        counter += number
        stage.now += random.choice([0, 0, 1.0])
    topic = stage.core.state.topics["t"]
    reader, log = stage.core.state.reader, topic.open
    rows = list(reader.stamps(log.number, 1, 1000))
    ends = [total for *_, total in rows[1:]] + [log.total]
    for _ in range(300):
        age, size, records = random.randrange(40 * 10**6), random.randrange(1, log.total), random.randrange(1, log.end)
        found = released(topic, (Amount(size=size),), stage.stamp(), reader)[log.id]
        assert found == max([row[0] for row in rows if log.total - row[3] >= size])
        assert released(topic, (Amount(records=records),), stage.stamp(), reader)[log.id] == log.end - records
        found = released(topic, (Amount(age=age),), stage.stamp(), reader)[log.id]
        assert found == max([1, *(row[0] + row[1] for row in rows if row[2] <= stage.stamp() - age)])
        several = released(topic, (Amount(age, size, records),), stage.stamp(), reader)[log.id]
        each = [Amount(age=age), Amount(size=size), Amount(records=records)]
        assert several == max(released(topic, (one,), stage.stamp(), reader)[log.id] for one in each)
        both = released(topic, each, stage.stamp(), reader)[log.id]
        assert both == min(released(topic, (one,), stage.stamp(), reader)[log.id] for one in each)
    assert ends
    assert released(topic, (EVER,), stage.stamp(), reader) == {log.id: log.low}


class Nothing:
    """A reader that is not needed: numbers of records follow from offsets."""


def counted(logs: list[Log], history: tuple[Span, ...], records: int) -> dict[str, int]:
    topic = Topic(1, "t", logs[-1], {log.id: log for log in logs}, history=history)
    return released(topic, (Amount(records=records),), 0, Nothing())  # type: ignore[arg-type]


def test_records_that_another_log_may_have_too_do_not_count() -> None:
    a, b, c = (character * 16 for character in "abc")
    logs = [Log(1, a, end=4), Log(2, b, end=4), Log(3, c, end=3)]
    history = (Span(a, 1, 4), Span(b, 1, 4, watermark=3), Span(c, 1))
    assert counted(logs, history, 3) == {a: 3, b: 1, c: 1}
    assert counted(logs, history, 2) == {a: 4, b: 4, c: 1}


def test_offsets_that_a_restored_copy_lacks_do_not_count() -> None:
    a, b = "a" * 16, "b" * 16
    logs = [Log(1, a, end=OFFSET_MAX, unknown=OFFSET_MAX - 6), Log(2, b)]
    assert counted(logs, (Span(a, 1, OFFSET_MAX), Span(b, 1)), 2) == {a: 4, b: 1}
