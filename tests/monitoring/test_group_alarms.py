"""Alarms of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.monitoring.alarms import alarms
from pubsub.monitoring.group_alarms import GROUPS_MAX, group_alarms

QUIET: dict[str, Any] = {
    "name": "billing",
    "in_doubt": 0,
    "in_doubt_seconds": None,
    "in_doubt_names": [],
    "full": False,
    "dead_letters": 0,
    "suspended": False,
    "held_seconds_max": None,
    "waiting": 0,
    "members_heard": 0,
}


def servers(*groups: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"report": None}, {"report": {"topics": {"t": {"groups": list(groups)}, "u": {}}}}]


def test_a_quiet_group_gives_no_alarm() -> None:
    assert list(group_alarms(servers(QUIET))) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"in_doubt": 3, "in_doubt_seconds": 61.0, "in_doubt_names": [["w1", "a"]]}, "start w1 again"),
        ({"in_doubt": 1, "in_doubt_seconds": 61.0, "in_doubt_names": [["w1", "a"]]}, ": 1 message in doubt for 61 s"),
        ({"dead_letters": 2}, "it has 2 dead letters;"),
        ({"dead_letters": 1}, "it has 1 dead letter;"),
        ({"dead_letters": 2, "full": True}, "claims nothing"),
        ({"suspended": True, "waiting": 4}, "pubsub group resume t billing"),
        ({"held_seconds_max": 601.0}, "for 601 s without a pause"),
        ({"waiting": 5}, "5 messages waiting and no member is heard"),
        ({"waiting": 1}, "1 message waiting and no member is heard"),
    ],
)
def test_each_alarm_names_the_group_and_the_remedy(changed: dict[str, Any], text: str) -> None:
    (alarm,) = group_alarms(servers(QUIET | changed))
    assert alarm.startswith("group billing of t: ")
    assert text in alarm


@pytest.mark.parametrize("changed", [{"in_doubt_seconds": 60.0, "in_doubt": 1}, {"held_seconds_max": 600.0},
                                     {"waiting": 5, "members_heard": 1}])  # fmt: skip
def test_what_is_within_its_bound_gives_no_alarm(changed: dict[str, Any]) -> None:
    assert list(group_alarms(servers(QUIET | changed))) == []


def test_many_groups_of_one_kind_are_counted() -> None:
    found = list(group_alarms(servers(*[QUIET | {"dead_letters": 1}] * (GROUPS_MAX + 2))))
    assert len(found) == GROUPS_MAX + 1
    assert found[-1] == "2 more groups have dead letters"
    *_, one = group_alarms(servers(*[QUIET | {"full": True}] * (GROUPS_MAX + 1)))
    assert one == "1 more group is full of dead letters"


def test_they_are_among_the_alarms_of_a_report() -> None:
    report = {"proxies": [], "servers": [], "topics": [], "moves": []}
    report["servers"] = [{"id": "s1", "report": {"topics": {"t": {"groups": [QUIET | {"full": True}]}}}}]
    assert len(alarms(report)) == 1
