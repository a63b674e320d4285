"""Defaults of settings by pattern, and ages by a wrong clock (docs/explanation/defaults.md, Y1, Y2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Outcome, Report
from pubsub.protocol.messages import Periodic
from tests.server import test_retention
from tests.server.stage import Stage, put
from tests.server.test_settings import configure, in_force, put_each

DAY = 86_400.0
KILO = b"x" * 1000


def begun(directory: Path, *rules: str, **changed: Any) -> Stage:
    return Stage(directory, topic_defaults=rules, **changed)


def stored(stage: Stage, topic: str = "t") -> int:
    return len(test_retention.stored(stage, topic))


def reported(stage: Stage, topic: str = "") -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(bytes(stage.ask(Report("op", "s1", topic), origin=b"").body))
    return facts


def test_the_first_rule_that_matches_says_what_is_kept(tmp_path: Path) -> None:
    stage = begun(tmp_path, "audit.> keep=ever", "> keep=1000s")
    for topic in ("audit.a", "t"):
        assert stage.ask(put(topic, 1, [b"x"])).outcome is Outcome.SUCCESS
    stage.sleep(500)
    assert stored(stage, "audit.a") == stored(stage, "t") == 1
    stage.sleep(1500)
    assert (stored(stage, "audit.a"), stored(stage, "t")) == (1, 0)
    stage.close()


def test_a_topic_tells_the_pattern_that_its_values_are_from(tmp_path: Path) -> None:
    stage = begun(tmp_path, "audit.> keep=90d")
    facts = in_force(stage, "audit.a")
    assert (facts["keep"], facts["match"], facts["own"]["keep"]) == (["90d"], "audit.>", [""])
    configure(stage, "audit.a", drop="30d")
    facts = in_force(stage, "audit.a")
    assert (facts["keep"], facts["drop"], facts["own"]) == (
        ["90d"],
        ["30d"],
        {"keep": [""], "drop": ["30d"], "expire": [""], "rate": [""], "bytes": [""], "tombstones": [""]},
    )
    topic = reported(stage, "audit.a")["topics"]["audit.a"]
    default = dict.fromkeys(("keep", "expire", "rate", "bytes"), "default audit.>")
    assert topic["settings_from"] == {**default, "drop": "topic", "tombstones": "built-in"}
    assert (topic["keep"], topic["keep_seconds"]) == ("90d", 90 * DAY)
    stage.close()


def test_an_own_value_is_preferred_to_the_default_for_each_setting(tmp_path: Path) -> None:
    stage = begun(tmp_path, "> keep=ever")
    configure(stage, keep="none")
    put_each(stage, 1, 3)
    stage.sleep(1000)
    assert stored(stage) == 0
    configure(stage, keep="")
    put_each(stage, 4, 6)
    stage.sleep(1000)
    assert stored(stage) == 3
    stage.close()


def test_another_rule_counts_from_the_next_start_on(tmp_path: Path) -> None:
    stage = begun(tmp_path, "> keep=ever")
    put_each(stage, 1, 3)
    stage.sleep(1000)
    assert stored(stage) == 3
    stage.close()
    stage.settings = Stage.settings_of(tmp_path, topic_defaults=("> keep=2 records",))
    stage.open()
    stage.sleep(1000)
    assert stored(stage) == 2
    stage.close()


def test_nothing_goes_by_a_default_while_another_server_has_other_defaults(tmp_path: Path) -> None:
    stage = begun(tmp_path, "> keep=1000s")
    stage.other_defaults = "s2,s3"
    put_each(stage, 1, 3)
    configure(stage, "own", keep="1000s", drop="never")
    stage.ask(put("own", 1, [b"x"]))
    stage.sleep(2000)
    assert (stored(stage), stored(stage, "own")) == (3, 0)
    assert reported(stage, "t")["topics"]["t"]["not_let_go"] == "other defaults at s2, s3"
    stage.other_defaults = ""
    stage.sleep(100)
    assert stored(stage) == 0
    assert not reported(stage, "t")["topics"]["t"]["not_let_go"]
    stage.close()


def test_the_limit_on_history_takes_no_body_by_a_default_while_another_server_has_other_defaults(
    tmp_path: Path,
) -> None:
    stage = begun(tmp_path, history_bytes_max=300)
    stage.others, stage.other_defaults = "s2", "s2"
    for counter in range(1, 21):
        stage.put("t", counter, [b"x" * 88])
    stage.sleep(80)
    assert test_retention.sizes(stage) == [100] * 20
    assert stage.core.state.counters["held_by_other_defaults"]
    configure(stage, keep="none", drop="never")
    stage.sleep(80)
    assert test_retention.sizes(stage) == [0] * 17 + [100] * 3, "the topic's own settings need no default"
    stage.close()


def test_the_built_in_default_waits_for_other_servers_too(tmp_path: Path) -> None:
    stage = begun(tmp_path)
    stage.other_defaults = "s2"
    put_each(stage, 1, 3)
    stage.sleep(2000)
    assert stored(stage) == 3
    stage.other_defaults = ""
    stage.sleep(100)
    assert stored(stage) == 0
    stage.close()


def test_what_a_default_drops_is_reported_as_dropped_also_without_the_rule(tmp_path: Path) -> None:
    stage = begun(tmp_path, "> keep=none drop=500s")
    stage.put("t", 1, [b"x"])
    subscribed = stage.subscribe("a", "t", 1)
    put_each(stage, 2, 4)
    stage.sleep(2000)
    stage.close()
    stage.settings = Stage.settings_of(tmp_path)
    stage.open()
    lost = stage.get("a", "t", subscribed.position, 1)
    assert (lost.outcome, lost.reason) == (Outcome.LOST, "dropped")
    stage.close()


def test_the_digest_is_told_in_full_announcements_and_none_without_rules(tmp_path: Path) -> None:
    told = []
    for name, rules in (("a", ()), ("b", ("> keep=7d",)), ("c", ("> keep=1w",)), ("d", ("> keep=8d",))):
        stage = begun(tmp_path / name, *rules)
        stage.sleep(6)
        said = [out.message for out in stage.sent if isinstance(out.message, Periodic) and not out.message.partial]
        (digest,) = {message.defaults for message in said}
        told.append(digest)
        stage.close()
    assert not told[0]
    assert told[1] == told[2] != told[3]


# Ages and the clock


def test_a_clock_that_is_days_ahead_lets_nothing_go_by_age(tmp_path: Path) -> None:
    stage = begun(tmp_path)
    configure(stage, keep="7d", drop="never")
    put_each(stage, 1, 3)
    stage.wall += 8 * DAY
    stage.proxies_behind = 8 * DAY
    stage.restart()
    stage.sleep(2000)
    assert stored(stage) == 3
    facts = reported(stage)
    assert facts["trusts_ages"] is False
    assert facts["clock_ahead_seconds"] == pytest.approx(8 * DAY)
    assert "clock" in facts["topics"]["t"]["not_let_go"]
    for proxy in stage.core.proxies.all:  # The clocks of the proxies were wrong.
        proxy.clock = stage.wall
    stage.sleep(100)
    assert stored(stage) == 0
    stage.close()


def test_an_earlier_life_with_a_wrong_clock_lets_nothing_go_either(tmp_path: Path) -> None:
    stage = begun(tmp_path)
    configure(stage, keep="7d", drop="never")
    put_each(stage, 1, 3)
    stage.wall += 8 * DAY
    stage.proxies_behind = 8 * DAY
    stage.restart()
    stage.put("t", 4, [b"x"])
    stage.wall -= 8 * DAY
    stage.proxies_behind = 0.0
    stage.restart()
    stage.sleep(2000)
    assert stored(stage) == 4
    stage.close()


def test_bytes_and_records_count_whatever_the_clock_says(tmp_path: Path) -> None:
    stage = begun(tmp_path)
    stage.proxies_behind = None
    stage.restart()
    configure(stage, keep="7d,2 records", drop="never")
    put_each(stage, 1, 5)
    stage.sleep(2000)
    assert stored(stage) == 2
    stage.close()


@pytest.mark.parametrize(("known", "trusted"), [((0.0, None), False), ((0.0, 0.0), True), ((-20.0, 0.0), False)])
def test_a_majority_of_the_proxies_decides(tmp_path: Path, known: tuple[float | None, ...], trusted: bool) -> None:
    stage = begun(tmp_path)
    for proxy, ahead in zip(stage.core.proxies.all, known, strict=True):
        proxy.clock = None if ahead is None else stage.wall + ahead
    assert stage.core.proxies.trusts_ages(stage.now) is trusted
    stage.close()
