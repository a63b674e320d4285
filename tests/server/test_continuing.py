"""A client continues, from another state directory, the present subscription under its ID."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import Outcome, Position, Status, Subscribe
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.topic.spans import Span
from tests.server.moving import Pair, put, split
from tests.server.stage import Stage, bodies


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, "s1", "s2")
    yield made
    made.close()


def subscribing(number: int, who: str = "bob") -> Subscribe:
    return Subscribe(who, "t", number, number, continues=1)


def on(stage: Stage, number: int, who: str = "bob") -> Status:
    """SUBSCRIBE from a directory without an intent."""
    return stage.ask(subscribing(number, who))


def waiting(stage: Stage, number: int, last: Position | None = None, who: str = "bob") -> list[tuple[bytes, bool]]:
    """All that comes, each message with its mark, as the client would ask for it; nothing is acknowledged."""
    out: list[tuple[bytes, bool]] = []
    after = last
    while True:
        status = stage.get(who, "t", last, number, after=after)
        if status.outcome is Outcome.EMPTY:
            return out
        out += [(body, bool(status.doubtful)) for body in bodies(status)]
        after = status.message


def spans(stage: Stage, who: str = "bob") -> tuple[Span, ...]:
    return stage.core.state.topics["t"].subscriptions[who].cursor.backlog


def test_messages_for_a_lost_directory_go_to_the_next_one(stage: Stage) -> None:
    assert on(stage, 5).outcome is Outcome.SUCCESS
    stage.put("t", 1, [b"a", b"b", b"c"])
    again = on(stage, 9)
    assert (again.outcome, again.number, again.doubtful) == (Outcome.SUCCESS, 9, 0)
    assert waiting(stage, 9) == [(b"a", False), (b"b", False), (b"c", False)]
    assert stage.get("bob", "t", None, 5).outcome is Outcome.SUPERSEDED
    counters = stage.core.state.counters
    assert (counters["subscriptions_made"], counters["subscriptions_continued"]) == (1, 1)


def test_delivered_unacknowledged_messages_are_marked_in_separate_answers(stage: Stage) -> None:
    on(stage, 5)
    log = stage.put("t", 1, [b"a", b"b"]).log
    stage.put("t", 3, [b"c"], previous=2)
    assert bodies(stage.get("bob", "t", (log, 1), 5, records_max=1)) == [b"b"]
    assert on(stage, 9).doubtful
    first = stage.get("bob", "t", (log, 1), 9)
    assert (bodies(first), first.doubtful) == ([b"b"], 1)
    assert waiting(stage, 9, (log, 1)) == [(b"b", True), (b"c", False)]
    assert stage.core.state.counters["delivered_doubtful"] == 2
    assert waiting(stage, 9, (log, 2)) == [(b"c", False)], "acknowledging takes the mark along"
    assert not on(stage, 9).doubtful


def test_each_continued_subscribe_marks_anew_and_merges_neighbouring_spans(stage: Stage) -> None:
    on(stage, 5)
    log = stage.put("t", 1, [b"a", b"b", b"c", b"d"]).log
    for number in (6, 7, 8):
        stage.get("bob", "t", None, number - 1, after=(log, number - 6) if number > 6 else None, records_max=1)
        on(stage, number)
        assert spans(stage) == (Span(log, 1, number - 4, doubtful=True), Span(log, number - 4))
    assert [mark for _, mark in waiting(stage, 8)] == [True, True, True, False]


def test_an_earlier_position_keeps_the_delivered_state(stage: Stage) -> None:
    on(stage, 5)
    log = stage.put("t", 1, [b"a", b"b", b"c"]).log
    stage.get("bob", "t", None, 5, after=(log, 1))
    stage.get("bob", "t", None, 5, records_max=1)  # The process has died, and asks from its place.
    on(stage, 9)
    assert [mark for _, mark in waiting(stage, 9)] == [True, True, True]


def test_the_same_number_is_the_same_answer_and_a_lower_one_is_superseded(stage: Stage) -> None:
    on(stage, 9)
    log = stage.put("t", 1, [b"a"]).log
    stage.get("bob", "t", None, 9)
    stage.sole_owner = None
    same = on(stage, 9)
    assert (same.outcome, same.position, same.doubtful) == (Outcome.SUCCESS, (log, 0), 0)
    assert on(stage, 8).outcome is Outcome.SUPERSEDED
    assert stage.ask(Subscribe("bob", "t", 10, 8, continues=1)).outcome is Outcome.SUPERSEDED, "an earlier epoch"


def test_a_subscribe_without_continues_begins_at_the_end(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    stage.sole_owner = None
    assert stage.subscribe("bob", "t", 9).outcome is Outcome.SUCCESS, "and asks nobody"
    stage.put("t", 2, [b"b"], previous=1)
    assert waiting(stage, 9) == [(b"b", False)]


def test_an_inactive_subscription_is_made_at_the_end(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    stage.unsubscribe("bob", "t", 6)
    stage.put("t", 2, [b"b"], previous=1)
    on(stage, 7)
    stage.put("t", 3, [b"c"], previous=2)
    assert waiting(stage, 7) == [(b"c", False)]
    assert stage.core.state.counters["subscriptions_continued"] == 0


@pytest.mark.parametrize("here", ["on", "off", "none"])
@pytest.mark.parametrize("sole_owner", [False, None])
def test_a_subscribe_that_continues_waits_until_the_topic_is_known_to_be_whole(
    stage: Stage, here: str, sole_owner: bool | None
) -> None:
    stage.put("t", 1)
    if here != "none":
        on(stage, 5)
    if here == "off":
        stage.unsubscribe("bob", "t", 6)
    stage.sole_owner = sole_owner
    callback = stage.say(subscribing(9))
    stage.sleep(3)
    answer = stage.answered(callback)
    assert (answer.outcome, answer.reason) == (Outcome.BUSY, "topic_is_not_known_to_be_whole")
    subscription = stage.core.state.topics["t"].subscriptions.get("bob")
    assert (subscription and subscription.number) == {"on": 5, "off": 6, "none": None}[here]
    stage.sole_owner, stage.others = True, "s2"
    assert on(stage, 10).outcome is Outcome.BUSY
    stage.others = ""
    assert on(stage, 11).outcome is Outcome.SUCCESS


def test_a_subscribe_that_continues_makes_no_topic_before_it_is_known_to_be_whole(stage: Stage) -> None:
    stage.sole_owner = False
    assert on(stage, 5).outcome is Outcome.BUSY
    assert "t" not in stage.core.state.topics


def test_a_started_server_treats_all_messages_as_delivered(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a", b"b"])
    stage.restart()
    stage.put("t", 3, [b"c"], previous=2)
    on(stage, 9)
    assert waiting(stage, 9) == [(b"a", True), (b"b", True), (b"c", False)]


def test_a_server_whose_commit_failed_treats_all_messages_as_delivered(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    stage.get("bob", "t", None, 5)
    stage.fail_commit = True
    assert stage.put("t", 2, [b"b"], previous=1).outcome is Outcome.FULL
    stage.fail_commit = False
    on(stage, 9)
    assert waiting(stage, 9) == [(b"a", True)]


def test_an_undone_loop_has_continued_nothing(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    stage.get("bob", "t", None, 5)
    stage.fail_commit = True
    assert on(stage, 9).outcome is Outcome.FULL
    stage.fail_commit = False
    assert waiting(stage, 5) == [(b"a", False)]


def test_the_mark_survives_a_restart_and_later_messages_have_none(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    stage.get("bob", "t", None, 5)
    on(stage, 9)
    stage.restart()
    stage.put("t", 2, [b"b"], previous=1)
    assert waiting(stage, 9) == [(b"a", True), (b"b", False)]


def test_a_move_keeps_the_mark_and_moved_messages_count_as_delivered(pair: Pair) -> None:
    on(pair["s1"], 5)
    put(pair["s1"], "alice", 10, 0, b"a", b"b")
    log = pair["s1"].core.state.topics["t"].open.id
    pair["s1"].get("bob", "t", None, 5, records_max=1)
    on(pair["s1"], 6)
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert waiting(pair["s2"], 6) == [(b"a", True), (b"b", False)]
    put(pair["s2"], "alice", 12, 11, b"c")
    on(pair["s2"], 9)
    assert waiting(pair["s2"], 9) == [(b"a", True), (b"b", True), (b"c", False)]
    assert spans(pair["s2"])[0] == Span(log, 1, 3, doubtful=True)


def test_a_merge_keeps_the_mark_and_merged_messages_count_as_delivered(pair: Pair) -> None:
    split(pair)
    bob = pair["s1"]
    bob.get("bob", "t", None, 5, epoch=5, records_max=1)
    assert on(bob, 6).outcome is Outcome.SUCCESS
    bob.get("bob", "t", None, 6, epoch=6, records_max=1)
    for giver, receiver in (("s2", "s1"), ("s1", "s2")):  # Where it is merged into, and where it comes from.
        pair.merge(giver, receiver)
        pair.turns()
        assert pair.holders() == [receiver]
        expected = [(b"alice1", True), (b"alice2", False), (b"carl1", False), (b"carl2", False)]
        assert spans(pair[receiver])[0].doubtful
    assert waiting(pair["s2"], 6) == expected
    on(pair["s2"], 9)
    assert waiting(pair["s2"], 9) == [(body, True) for body, _ in expected]


def test_an_export_keeps_the_mark(stage: Stage, tmp_path: Path) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a", b"b"])
    stage.get("bob", "t", None, 5, records_max=1)
    on(stage, 9)
    stage.close()
    export_tree(stage.settings.directory, tmp_path / "tree")
    import_tree(tmp_path / "new", tmp_path / "tree")
    stage.settings = Stage.settings_of(tmp_path / "new")
    stage.open()
    position = stage.core.state.topics["t"].subscriptions["bob"].cursor.acknowledged
    assert waiting(stage, 9, position) == [(b"a", True), (b"b", False)]


def test_a_span_without_the_mark_is_stored_in_the_earlier_form(stage: Stage) -> None:
    on(stage, 5)
    stage.put("t", 1, [b"a"])
    text = stage.store.db.execute("select backlog from subscription").get
    assert text.count(",") == 4, "a span without the mark stands as it always did"


def test_a_worker_continues_the_calls_of_a_lost_directory_with_marks(stage: Stage) -> None:
    calls = "$calls.billing"
    stage.ask(Subscribe("w", calls, 5, 5, continues=1))
    stage.put(calls, 1, [b"call", b"more"])
    stage.get("w", calls, None, 5, records_max=1)
    assert stage.ask(Subscribe("w", calls, 9, 9, continues=1)).doubtful
    given = stage.get("w", calls, None, 9)
    assert (bodies(given), given.doubtful) == ([b"call"], 1)
