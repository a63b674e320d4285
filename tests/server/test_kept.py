"""What a report says of the settings of topics, and of the messages that stay or do not go by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Configure
from pubsub.protocol.topic_settings import encode_settings
from pubsub.server.requests import waiting
from tests.server.moving import Pair
from tests.server.stage import Stage
from tests.server.test_report import ask
from tests.server.test_settings import KILO, configure, put_each

NAMES = (
    "keep", "drop", "settings_conflict", "keep_seconds", "kept_bytes", "oldest_stored_seconds", "not_let_go",
)  # fmt: skip


def facts(stage: Stage, topic: str = "t") -> dict[str, Any]:
    found = ask(stage)["topics"][topic]
    return {name: found[name] for name in NAMES}


def test_a_topic_that_was_never_configured_has_the_defaults_and_no_figures(stage: Stage) -> None:
    put_each(stage, 1, 2)
    assert facts(stage) == dict(zip(NAMES, ("none", "never", False, None, None, None, ""), strict=True))


def test_kept_bytes_are_those_that_no_subscriber_needs(stage: Stage) -> None:
    configure(stage, keep="7d,10GiB", drop="30d")
    log = stage.subscribe("bob", "t", 5).log
    put_each(stage, 1, 4, body=KILO)
    found = facts(stage)
    assert [found[name] for name in NAMES[:5]] == ["7d,10GiB", "30d", False, 604_800.0, 0]
    size = stage.core.state.topics["t"].open.total
    stage.get("bob", "t", (log, 3), 5, records_max=0)
    assert facts(stage)["kept_bytes"] == size * 3 // 4
    stage.get("bob", "t", (log, 4), 5, records_max=0)
    assert facts(stage)["kept_bytes"] == size
    assert facts(stage)["oldest_stored_seconds"] == 8.0
    stage.restart()
    assert facts(stage)["kept_bytes"] == size


def test_an_empty_topic_keeps_nothing_and_has_no_oldest_message(stage: Stage) -> None:
    configure(stage, keep="ever")
    found = facts(stage)
    assert [found[name] for name in NAMES[3:]] == [None, 0, None, ""]


def test_a_batch_of_the_same_loop_counts(stage: Stage) -> None:
    configure(stage, keep="1h")
    put_each(stage, 1, 1, seconds=0)
    assert facts(stage)["kept_bytes"] == stage.core.state.topics["t"].open.total


def test_the_subscriber_that_holds_records_beyond_keep_is_named_until_it_takes_them(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("eve", "t", 5)
    configure(stage, keep="1m")
    put_each(stage, 1, 3)
    stage.sleep(30)
    assert facts(stage)["not_let_go"] == ""
    stage.get("eve", "t", (log, 3), 5, records_max=0)
    stage.sleep(120)
    assert facts(stage)["not_let_go"] == "subscriber bob"
    stage.get("bob", "t", (log, 3), 5, records_max=0)
    stage.sleep(30)
    assert facts(stage)["not_let_go"] == ""


def test_records_that_stay_without_sole_ownership_say_so_until_they_go(stage: Stage) -> None:
    configure(stage, keep="1m")
    put_each(stage, 1, 3)
    stage.sole_owner = False
    stage.sleep(120)
    assert facts(stage)["not_let_go"] == "not sole owner"
    stage.sole_owner = True
    stage.sleep(30)
    assert facts(stage)["not_let_go"] == ""
    assert facts(stage)["kept_bytes"] == 0


def test_without_settings_nothing_is_said_of_sole_ownership(stage: Stage) -> None:
    put_each(stage, 1, 3)
    stage.sole_owner = False
    stage.sleep(120)
    assert facts(stage)["not_let_go"] == ""


def test_other_settings_count_at_once(stage: Stage) -> None:
    configure(stage, keep="1m")
    put_each(stage, 1, 3)
    stage.sole_owner = False
    stage.sleep(120)
    stage.sole_owner = True
    configure(stage, keep="ever")
    stage.sleep(10)
    assert (facts(stage)["not_let_go"], facts(stage)["keep_seconds"]) == ("", None)


def test_a_conflict_shows_both_values(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    for name, keep in (("s1", "1h"), ("s2", "2h")):
        configure(pair[name], base="", keep=keep)
    pair.merge("s2", "s1")
    pair.turns()
    found = facts(pair["s1"])
    assert (set(found["keep"].split(" or ")), found["settings_conflict"]) == ({"1h", "2h"}, True)
    assert found["keep_seconds"] == 7200.0
    pair.close()


def test_ages_of_configured_topics_have_the_limit_of_all_lookups(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOKUPS_MAX", 2)
    for name in "abcd":
        stage.ask(Configure("ops", name, "a" * 16, values=encode_settings({"keep": "ever"})))
        stage.put(name, 1)
    found = ask(stage)
    ages = [found["topics"][name]["oldest_stored_seconds"] is None for name in "abcd"]
    assert (ages, found["left_out"]["ages"]) == ([False, False, True, True], 2)


def test_a_damaged_row_makes_the_kept_bytes_unknown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 2)

    def damaged(*_: object) -> None:
        raise StoreDamaged("store", "says the test")

    monkeypatch.setattr(stage.core.state, "total_before", damaged)
    assert facts(stage)["kept_bytes"] is None
    assert "t" in stage.core.state.damaged
