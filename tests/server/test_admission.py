"""The requests refused before any work, and the limit that is named first."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol import Outcome
from pubsub.server.requests import admission as module
from pubsub.server.state import publishers
from pubsub.server.state.replies import Origin
from tests.server.stage import Stage, put

ORIGIN = Origin(0, b"c", 1)


def turned_away(stage: Stage, topic: str = "t") -> tuple[Outcome, str] | None:
    """What a request is answered before anybody looks at it."""
    if not stage.core.admission.rejects(ORIGIN, topic):
        return None
    ((_, answer),) = stage.core.state.replies.take()
    return answer.outcome, answer.reason  # type: ignore[union-attr]


def test_only_topics_held_back_or_on_their_way_are_refused(stage: Stage) -> None:
    stage.put("t", 1)
    state = stage.core.state
    assert (turned_away(stage), turned_away(stage, "unknown")) == (None, None)
    state.topics["t"].freeze("tcp://x:1")
    assert turned_away(stage) == (Outcome.MOVED, "")
    state.held["t"] = "it is old"
    assert turned_away(stage) == (Outcome.UNAVAILABLE, "the_topic_is_held_back:_it_is_old")
    state.stale = "all of it"
    why = "this_server_runs_on_an_older_copy_of_its_store:_all_of_it"
    assert turned_away(stage) == turned_away(stage, "unknown") == (Outcome.UNAVAILABLE, why)


def test_a_refusal_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, topics_max=1, publishers_max=1, subscribers_max=1, backlog_bytes_max=1000)
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"x" * 500])
    admission, state = stage.core.admission, stage.core.state
    topic, known = state.topics["t"], state.publishers.find(f"alice/{put('t', 1).publisher}")
    small, large = put("t", 2), put("t", 2, [b"x" * 900])
    assert admission.put(topic, known, small) == ""
    assert admission.put(topic, known, large) == "backlog_bytes_max"
    assert admission.put(topic, None, small) == "publishers_max"
    assert admission.put(None, None, small) == "topics_max"
    assert admission.subscription(topic, "eve", on=True) == "subscribers_max"
    assert admission.subscription(topic, "bob", on=True) == ""
    assert admission.stage(topic, f"alice/{small.publisher}", 900, new=True) == "backlog_bytes_max"
    monkeypatch.setattr(module, "STAGES_MAX", 0)
    assert admission.stage(topic, f"alice/{small.publisher}", 1, new=True) == "STAGES_MAX"
    assert admission.stage(topic, f"alice/{small.publisher}", 1, new=False) == ""
    monkeypatch.setattr(publishers, "STORE_PUBLISHERS_MAX", 1)
    assert admission.publish(None, "carl/0", 1) == "STORE_PUBLISHERS_MAX"
    topic.open.end = OFFSET_MAX
    assert (
        admission.put(topic, known, small) == admission.publish(topic, f"alice/{small.publisher}", 1) == "OFFSET_BITS"
    )
    state.full = True
    assert admission.put(None, None, small) == admission.publish(None, "carl/0", 1) == "disk"
    assert admission.subscription(topic, "bob", on=False) == "", "that frees space"
    assert admission.subscription(topic, "eve", on=False) == "disk"
    stage.close()


def test_puts_of_one_loop_count_towards_the_backlog(tmp_path: Path) -> None:
    stage = Stage(tmp_path, backlog_bytes_max=500)
    stage.subscribe("bob", "t", 5)
    said = [stage.say(put("t", counter, [b"k" * 400], previous=counter - 1)) for counter in (1, 2, 3)]
    stage.loop()
    assert [stage.answered(one).outcome for one in said] == [Outcome.SUCCESS, Outcome.FULL, Outcome.GAP]
    stage.close()
