"""The values of settings: what becomes of those of two holders, and their texts.

The rules are those of docs/explanation/retention.md, T12 and T13.
"""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from pubsub.protocol.topic_settings import EVER, Amount, parse_drop, parse_keep
from pubsub.server.storage.schema import read_settings
from pubsub.server.topic.settings import ALTERNATIVES_MAX, DEFAULTS, LINEAGE_MAX, Settings, merged


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
            known.append(one.changed(f"{number + 1:016x}", number, amount, EVER))
        assert len(known[-1].keep) <= ALTERNATIVES_MAX
        assert len(known[-1].lineage) <= LINEAGE_MAX


def test_many_alternatives_become_one_that_keeps_as_much_as_each() -> None:
    merging = DEFAULTS
    for number in range(20):
        merging = merged(merging, DEFAULTS.changed(f"{number + 1:016x}", number, Amount(age=number + 1), EVER))
    assert max(one.age or 0 for one in merging.keep) == 20
    assert len(merging.keep) <= ALTERNATIVES_MAX


def test_a_long_history_of_sets_forgets_the_oldest_and_then_reports_a_conflict() -> None:
    old = DEFAULTS.changed("f" * 16, 1, Amount(age=5), EVER)
    new = old
    for number in range(LINEAGE_MAX + 5):
        new = new.changed(f"{number + 1:016x}", number + 2, Amount(age=9), EVER)
    found = merged(old, new)
    assert (found.conflict, set(found.keep)) == (True, {Amount(age=5), Amount(age=9)})


def test_equal_values_that_were_set_at_two_holders_are_no_conflict() -> None:
    one, other = (DEFAULTS.changed(version * 16, 1, Amount(age=5), EVER) for version in "ab")
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
