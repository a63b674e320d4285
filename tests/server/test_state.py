"""The memory of a server: the revert of a failed commit, and its questions about a topic."""

from __future__ import annotations

from pubsub.protocol.transfers import Transfer
from pubsub.server.topic import changes as c
from pubsub.server.topic.loaded import QuarantinedTopic
from pubsub.server.topic.topic import Topic
from tests.server.stage import Stage

OTHER = "b" * 16


def nothing(_: str) -> Topic | None:
    """The store holds no topic."""
    return None


def test_a_topic_made_in_a_failed_loop_does_not_exist(stage: Stage) -> None:
    state = stage.core.state
    state.create("t")
    assert state.announcements == {"t": state.topics["t"].open.id}
    state.revert(nothing)
    assert (state.topics, state.announcements, state.uncommitted.rows) == ({}, {}, [])


def test_a_reverted_topic_is_reloaded_and_records_its_changes_again(stage: Stage) -> None:
    stage.put("t", 1)
    state = stage.core.state
    topic = state.remove("t")
    state.announce_given(topic, Transfer("s2", "t", "done", "1", store=OTHER, change=4))
    assert (state.topics, list(state.given)) == ({}, ["t"])
    state.revert(lambda name: next(stage.store.topics(name)))
    assert (list(state.topics), state.given) == (["t"], {})
    state.topics["t"].freeze("tcp://x:1")
    assert c.TopicChanged in map(type, state.changes(stage.now))


def test_the_change_number_is_reverted_and_counted_anew(stage: Stage) -> None:
    stage.put("t", 1)
    state, before = stage.core.state, stage.core.state.change
    state.count_change = True
    state.create("u")
    assert c.ChangeCounted(before + 1, state.stamps.last) in state.changes(stage.now)
    state.revert(nothing)
    assert (state.change, state.count_change) == (before, True)


def test_a_lack_of_sole_ownership_is_known_without_a_question(stage: Stage) -> None:
    stage.put("t", 1)
    state = stage.core.state
    assert not state.is_not_sole_owner("t")
    for make, unmake in (
        (lambda: state.contest(state.topics["t"], OTHER, "s2"), lambda: state.topics["t"].settle(OTHER)),
        (lambda: state.held.update(t="why"), state.held.clear),
        (lambda: setattr(state, "stale", "why"), lambda: setattr(state, "stale", "")),
        (lambda: state.given.update(t=f"s2.{OTHER},,"), state.given.clear),
    ):
        make()
        assert state.is_not_sole_owner("t")
        unmake()
        assert not state.is_not_sole_owner("t")


def test_undoing_reverts_the_latest_change_first(stage: Stage) -> None:
    state, uncommitted = stage.core.state, stage.core.state.uncommitted
    for reason in ("one", "two"):
        uncommitted.keep(state, "stale")
        state.stale = reason
        uncommitted.keep_item(state.held, "t")
        state.held["t"] = reason
    uncommitted.keep(state, "quarantined")
    state.quarantined = [QuarantinedTopic("t", OTHER, "why", 1)]
    uncommitted.revert()
    assert (state.stale, state.held, state.quarantined) == ("", {}, [])
    uncommitted.keep_item(state.held, "t")
    state.held["t"] = "three"
    uncommitted.committed()
    uncommitted.revert()
    assert state.held == {"t": "three"}, "what is durable stays"


def test_a_backlog_behind_missing_rows_counts(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    for counter in (1, 2, 3):
        stage.put("t", counter, [b"x" * 88], previous=counter - 1)
    stage.store.db.execute("delete from batch where key & 0xffffffffff = 1")
    stage.restart()
    topic = stage.core.state.topics["t"]
    stage.core.state.measure(topic)
    assert topic.backlog_bytes == 200
