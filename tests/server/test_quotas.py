"""The quotas of topics at their owner: a put beyond them is `busy` for a time (docs/explanation/quotas.md, QU2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Outcome, Report
from pubsub.protocol.topic_defaults import default_for, digest, parse_default
from pubsub.protocol.topic_settings import EVER, Amount, Values, format_rate, parse_bytes, parse_rate
from pubsub.server.state.quotas import QUOTA_TOPIC
from pubsub.server.topic.settings import DEFAULTS, merged
from tests.server.stage import Stage, bodies, put
from tests.server.test_settings import configure, in_force
from tests.server.test_trains import chain, said, train


def facts(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(stage.ask(Report("op", "s1", "t"), origin=b"").body))["topics"]["t"]
    return found


@pytest.mark.parametrize(("text", "shown"), [("1000/s", "1000/s"), ("1 /s", "1/s"), ("none", "none"), ("", "none")])
def test_a_rate_is_read_and_shown(text: str, shown: str) -> None:
    assert format_rate(parse_rate(text)) == shown


@pytest.mark.parametrize(("text", "shown"), [("5MiB/s", "5MiB/s"), ("1024B/s", "1KiB/s"), ("none", "none")])
def test_bytes_are_read_and_shown(text: str, shown: str) -> None:
    assert format_rate(parse_bytes(text)) == shown


@pytest.mark.parametrize(
    "text", ["0/s", "1000", "-1/s", "1.5/s", "5MiB/s", "1d/s", "9" * 19 + "/s", "/s", "1 records/s"]
)
def test_another_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="messages a second such as 1000/s"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["5MiB", "5/s", "0B/s", "5MB/s", "7d/s"])
def test_other_bytes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bytes a second such as 5MiB/s"):
        parse_bytes(text)


def test_a_put_beyond_the_rate_is_busy_with_a_time_and_goes_after_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    configure(stage, rate="2/s")
    stage.subscribe("a", "t", 1)
    for counter in (1, 2):
        assert stage.put("t", counter, [b"x"]).outcome is Outcome.SUCCESS
    held = stage.put("t", 3, [b"x"])
    assert (held.outcome, held.reason, held.last) == (Outcome.BUSY, QUOTA_TOPIC, 2)
    assert 0 < held.after <= 500
    assert stage.put("t", 2, [b"x"]).outcome is Outcome.DUPLICATE, "a repeat costs nothing"
    stage.sleep(held.after / 1000)
    assert stage.put("t", 3, [b"x"]).outcome is Outcome.SUCCESS
    assert len(bodies(stage.get("a", "t", None, 1))) == 3
    found = facts(stage)
    assert (found["throttled"], found["rate_limit"], found["bytes_limit"]) == (1, "2/s", "none")
    assert found["throttled_seconds"] == pytest.approx(held.after / 1000, abs=0.01)
    assert isinstance(found["bytes"], int)
    assert stage.core.state.counters["throttled"] == 1
    stage.close()


def test_bytes_are_limited_too_and_a_large_batch_is_not_stuck(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    configure(stage, bytes="1KiB/s")
    assert stage.put("t", 1, [b"x" * 4000]).outcome is Outcome.SUCCESS, "it leaves a debt"
    held = stage.put("t", 2, [b"x" * 4000])
    assert held.outcome is Outcome.BUSY
    assert 2900 < held.after < 3100
    stage.sleep(held.after / 1000)
    assert stage.put("t", 2, [b"x" * 4000]).outcome is Outcome.SUCCESS
    stage.close()


def test_a_train_is_stored_up_to_the_quota(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    configure(stage, rate="2/s")
    answer = stage.ask(train(*chain(7, 8, 11)))
    assert said(answer) == (Outcome.BUSY, 8)
    stage.sleep(answer.after / 1000)
    assert said(stage.ask(train(*chain(7, 8, 11)))) == (Outcome.SUCCESS, 11)
    stage.close()


def test_two_publishers_share_the_quota_of_a_topic_and_other_topics_have_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    configure(stage, rate="1/s")
    assert stage.ask(put("t", 1, [b"x"], sender="one")).outcome is Outcome.SUCCESS
    assert stage.ask(put("t", 1, [b"x"], sender="two")).outcome is Outcome.BUSY
    for counter in range(1, 20):
        assert stage.put("free", counter, [b"x"]).outcome is Outcome.SUCCESS
    stage.close()


def test_another_value_counts_at_once_and_none_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    configure(stage, rate="1/s")
    assert stage.put("t", 1, [b"x"]).outcome is Outcome.SUCCESS
    assert stage.put("t", 2, [b"x"]).outcome is Outcome.BUSY
    configure(stage, rate="2/s")
    assert stage.put("t", 2, [b"x"]).outcome is Outcome.SUCCESS
    configure(stage, rate="none")
    for counter in range(3, 20):
        assert stage.put("t", counter, [b"x"]).outcome is Outcome.SUCCESS
    assert facts(stage)["throttled"] == 0
    stage.close()


def test_a_default_limits_topics_without_own_value_and_the_setting_survives_a_restart(tmp_path: Path) -> None:
    stage = Stage(tmp_path, topic_defaults=("t rate=1/s bytes=1MiB/s",))
    assert stage.put("t", 1, [b"x"]).outcome is Outcome.SUCCESS
    assert stage.put("t", 2, [b"x"]).outcome is Outcome.BUSY, "the put that created the topic is counted, too"
    configure(stage, rate="5/s")
    stage.restart()
    assert (in_force(stage)["rate"], in_force(stage)["bytes"]) == (["5/s"], ["1MiB/s"])
    for counter in range(2, 7):
        assert stage.put("t", counter, [b"x"]).outcome is Outcome.SUCCESS
    assert stage.put("t", 7, [b"x"]).outcome is Outcome.BUSY
    stage.close()


def test_rules_with_a_quota_have_another_digest() -> None:
    plain, limited = parse_default("a keep=7d"), parse_default("a keep=7d rate=5/s bytes=1KiB/s")
    assert str(limited) == "a keep=7d drop=never rate=5/s bytes=1KiB/s"
    assert digest([plain]) != digest([limited])
    assert default_for("a", [limited]).rate == Amount(records=5)


def test_of_two_quotas_set_during_a_split_the_newer_one_stays() -> None:
    old = DEFAULTS.changed("a" * 16, 1, Values(rate=Amount(records=5), throughput=EVER))
    new = DEFAULTS.changed("b" * 16, 2, Values(rate=EVER, throughput=Amount(size=9)))
    for found in (merged(old, new), merged(new, old)):
        assert (found.rate, found.throughput, found.conflict) == ((EVER,), (Amount(size=9),), True)
