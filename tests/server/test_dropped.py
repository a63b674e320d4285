"""Messages that the setting `drop` let go: what a subscriber, a check of the store and a merge say of them later."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Outcome, Position
from pubsub.protocol.topic_settings import EVER, NONE, Amount, Values
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Verdict
from pubsub.server.topic.settings import DEFAULTS, Settings, merged
from tests.server.moving import Pair
from tests.server.stage import Stage
from tests.server.test_settings import KILO, configure, in_force, put_each


def dropping(stage: Stage, topic: str = "t") -> None:
    """Let two batches go that bob has not received, and keep a third."""
    stage.subscribe("bob", topic, 5)
    configure(stage, topic, drop="1h")
    put_each(stage, 1, 2, body=KILO)
    stage.sleep(3000)
    put_each(stage, 3, 3, body=b"young")
    stage.sleep(1000)
    assert stage.core.state.counters["batches_dropped"] == 2


def losses(stage: Stage) -> list[str]:
    """Return the reason of each loss that bob is told before the first message."""
    found: list[str] = []
    place: Position | None = None
    while (answer := stage.get("bob", "t", place, 5)).outcome is Outcome.LOST:
        place = answer.message
        found.append(answer.reason)
    assert answer.outcome is Outcome.SUCCESS
    return found


def test_a_check_does_not_take_dropped_messages_for_damage(stage: Stage) -> None:
    dropping(stage)
    stage.close()
    found = check(stage.settings.directory)
    assert found.verdict is Verdict.INTACT
    assert [(one.records, one.dropped, one.lost) for one in found.topics] == [(3, 2, 0)]
    assert "2 of them without bytes, which the server dropped on purpose" in "\n".join(found.sentences())


def test_a_loss_names_the_setting_and_a_check_finds_no_damage_after_drop_is_never_again(stage: Stage) -> None:
    dropping(stage)
    assert configure(stage, drop="never").outcome is Outcome.SUCCESS
    stage.restart()
    assert losses(stage) == ["dropped"]
    stage.close()
    assert check(stage.settings.directory).verdict is Verdict.INTACT


def test_a_loss_names_the_setting_after_the_topic_has_moved(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    dropping(pair["s2"])
    configure(pair["s2"], drop="")
    pair.merge("s2", "s1")
    pair.turns()
    assert in_force(pair["s1"])["drop"] == ["never"]
    assert losses(pair["s1"]) == ["dropped"]
    pair.close()


def test_settings_that_never_dropped_leave_bodies_that_are_missing_a_damage(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, keep="1h")
    put_each(stage, 1, 2)
    stage.close()
    stage.open()
    stage.store.db.execute("update batch set body = null")
    stage.close()
    found = check(stage.settings.directory)
    assert found.verdict is Verdict.DAMAGED
    assert found.topics[0].lost == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_merge_knows_that_either_holder_may_have_dropped(order: tuple[int, int]) -> None:
    dropped = DEFAULTS.changed("a" * 16, 1, Values(NONE, Amount(age=1))).changed("b" * 16, 2, Values(NONE, EVER))
    for other in (DEFAULTS, DEFAULTS.changed("c" * 16, 3, Values(NONE, EVER)), Settings("b" * 16)):
        both = dropped, other
        assert merged(both[order[0]], both[order[1]]).dropped
