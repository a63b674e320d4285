"""Trains at a server: each row is judged as a single put, and one answer names the last taken row.

The rule is docs/explanation/batches.md, B10.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.base.limits import TRAIN_ROWS_MAX
from pubsub.messenger.framing import pack
from pubsub.protocol import Outcome, Put, Status, encode
from pubsub.protocol.train import ROW_BYTES, join_table, split_train
from pubsub.server.topic.changes import BatchAppended, LastMoved
from tests.server.stage import Stage, bodies, put

LOG = "00000000000000aa"


class _Row:
    def __init__(self, one: Put) -> None:
        self.counter, self.previous, self.count, self.checksum = one.counter, one.previous, one.count, one.checksum
        self.size = len(one.body)


def train(*rows: Put, **changed: object) -> Put:
    """A train of these puts."""
    table = join_table([_Row(row) for row in rows])
    first = rows[0]
    made = replace(
        first, count=sum(row.count for row in rows), checksum=crc32(table), rows=len(rows),
        body=table + b"".join(bytes(row.body) for row in rows),
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]


def chain(*counters: int, previous: int = 0) -> list[Put]:
    """Puts of one record, each naming the one before."""
    return [
        put("t", counter, [b"%d" % counter], previous=before)
        for before, counter in zip((previous, *counters), counters, strict=False)
    ]


def said(answer: Status) -> tuple[Outcome, int]:
    return answer.outcome, answer.last


def test_the_rows_of_a_train_are_taken_in_one_commit_each_as_its_own_batch(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.commits = []
    answer = stage.ask(train(*chain(7, 8, 11)))
    assert said(answer) == (Outcome.SUCCESS, 11)
    (commit,) = stage.commits
    rows = [change for change in commit.changes if isinstance(change, BatchAppended)]
    assert [(row.offset, row.counter, row.count) for row in rows] == [(1, 7, 1), (2, 8, 1), (3, 11, 1)]
    assert [change.last for change in commit.changes if isinstance(change, LastMoved)] == [11]
    assert bodies(stage.get("bob", "t", None, 5)) == [b"7", b"8", b"11"]
    assert stage.core.state.counters["trains"] == 1


def test_a_repeated_train_is_recognized_row_by_row(stage: Stage) -> None:
    rows = chain(1, 2, 3, 4)
    assert said(stage.ask(train(*rows[:2]))) == (Outcome.SUCCESS, 2)
    assert said(stage.ask(train(*rows[:2]))) == (Outcome.DUPLICATE, 2)
    assert said(stage.ask(train(*rows))) == (Outcome.SUCCESS, 4)
    assert said(stage.ask(train(*rows[1:]))) == (Outcome.DUPLICATE, 4)
    assert stage.core.state.counters["duplicate"] == 2 + 2 + 3
    stage.restart()
    assert said(stage.ask(train(*rows))) == (Outcome.DUPLICATE, 4)
    assert stage.core.state.topics["t"].open.end == 5


def test_a_train_after_a_lost_one_is_a_gap_and_changes_nothing(stage: Stage) -> None:
    stage.ask(train(*chain(1, 2)))
    assert said(stage.ask(train(*chain(5, 6, previous=4)))) == (Outcome.GAP, 2)
    assert stage.core.state.topics["t"].open.end == 3
    assert stage.core.state.counters["trains_ended_early"] == 1


def test_a_rows_predecessor_is_found_within_a_train_too(stage: Stage) -> None:
    rows = chain(1, 2, 9)
    rows[2].previous = 5
    assert said(stage.ask(train(*rows))) == (Outcome.GAP, 2)


@pytest.mark.parametrize("ours", [False, True], ids=["a log that is nowhere", "the log that acknowledged all before"])
def test_a_gap_within_a_train_proves_nothing_about_a_log(stage: Stage, ours: bool) -> None:
    stage.put("t", 1)
    rows = chain(2, 9, previous=1)
    rows[1].previous = 5
    log = stage.core.state.topics["t"].open.id if ours else "f" * 16
    assert said(stage.ask(train(*rows, log=log, avoid=log))) == (Outcome.GAP, 2)
    assert said(stage.ask(put("t", 3, previous=2))) == (Outcome.SUCCESS, 3)
    assert stage.core.state.counters["puts_gone"] == 0


def test_a_damaged_row_ends_a_train_and_earlier_rows_are_taken(stage: Stage) -> None:
    rows = chain(1, 2, 3)
    rows[1].checksum ^= 1
    answer = stage.ask(train(*rows))
    assert said(answer) == (Outcome.REFUSED, 1)
    assert "checksum" in answer.reason
    assert answer.log == stage.core.state.topics["t"].open.id


def test_a_batch_with_another_count_than_its_row_ends_a_train(stage: Stage) -> None:
    rows = [put("t", 1, [b"a"]), put("t", 2, [b"b", b"c"], previous=1)]
    rows[1].count = 3
    assert said(stage.ask(train(*rows))) == (Outcome.REFUSED, 1)


def test_a_limit_ends_a_train_at_the_row_that_reaches_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, backlog_bytes_max=40)
    stage.subscribe("bob", "t", 5)
    answer = stage.ask(train(*chain(1, 2, 3, 4)))
    assert (answer.outcome, answer.reason, answer.last) == (Outcome.FULL, "backlog_bytes_max", 3)
    stage.close()


def test_a_train_on_a_full_disk_is_refused_completely(stage: Stage) -> None:
    stage.put("t", 1)
    rows = chain(2, 3, 4, previous=1)
    damaged = chain(2, 3, previous=1)
    damaged[1].checksum ^= 1
    callbacks = [stage.say(train(*rows)), stage.say(train(*damaged), origin=b"cY")]
    stage.fail_commit = True
    stage.loop()
    for callback in callbacks:
        answer = stage.answered(callback)
        assert said(answer) == (Outcome.FULL, -1)
    stage.fail_commit = False
    stage.sleep(1.0)
    stage.core.state.full = False
    assert said(stage.ask(train(*rows))) == (Outcome.SUCCESS, 4)


def test_a_refusal_on_a_full_disk_names_no_reverted_rows(stage: Stage) -> None:
    rows = chain(1, 2)
    rows[1].checksum ^= 1
    callback = stage.say(train(*rows))
    stage.fail_commit = True
    stage.loop()
    assert said(stage.answered(callback)) == (Outcome.FULL, -1)


def test_a_frozen_topic_answers_a_complete_train(stage: Stage) -> None:
    stage.put("t", 1)
    stage.core.state.topics["t"].freeze("tcp://s2@h:1")
    stage.loop()
    assert said(stage.ask(train(*chain(2, 3, previous=1)))) == (Outcome.MOVED, -1)


def test_a_train_for_a_gone_log_waits_completely_and_is_answered_gone(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    answer = stage.ask(train(*chain(8, 9, previous=7), log=LOG))
    assert answer.outcome is Outcome.GONE
    rows = chain(8, 9)
    assert said(stage.ask(train(*rows, log=LOG))) == (Outcome.SUCCESS, 9)


def test_cumulative_trains_of_one_loop_have_one_answer_unless_one_ends_early(stage: Stage) -> None:
    first = stage.say(train(*chain(1, 2), cumulative=1))
    second = stage.say(train(*chain(3, 4, previous=2), cumulative=1))
    damaged = chain(5, 6, previous=4)
    damaged[1].checksum ^= 1
    third = stage.say(train(*damaged, cumulative=1))
    stage.loop()
    assert stage.answer(first) is None
    assert said(stage.answered(second)) == (Outcome.SUCCESS, 4)
    assert said(stage.answered(third)) == (Outcome.REFUSED, 5)


@pytest.mark.parametrize(
    "changed",
    [{"rows": 1}, {"count": 1}, {"counter": 2}, {"previous": 9}, {"checksum": 1}, {"body": b""}, {"sole_owner": 1}],
)
def test_a_false_train_changes_nothing(stage: Stage, changed: dict[str, object]) -> None:
    answer = stage.ask(train(*chain(1, 2), **changed))
    assert said(answer) == (Outcome.REFUSED, -1)
    assert stage.core.state.topics == {}
    assert stage.core.state.counters["refused"] == 1


def test_a_train_counts_by_its_rows_towards_the_end_of_a_loop(stage: Stage) -> None:
    def taken(message: Put) -> int:
        head, body = encode(message)
        return stage.group_commit.handle(0, [b"cX", pack(0, 9, 0) + head, body], stage.now)

    assert taken(train(*chain(*range(1, TRAIN_ROWS_MAX + 1)))) == TRAIN_ROWS_MAX
    assert taken(put("t", 99)) == 1
    assert stage.group_commit.handle(0, [b"cX", b"nonsense"], stage.now) == 1


drawn_rows = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from([0, 0, 0, 0, 1, 3]), st.sampled_from([0] * 6 + [1]), st.integers(1, 3)
    ),
    min_size=1,
    max_size=6,
)
Drawn = list[tuple[int, int, int, int]]


def rows_of(drawn: Drawn, start: int) -> list[Put]:
    """Puts that mostly name the one before; some skip one, some are damaged."""
    out, last = [], start
    for gap, skipped, damaged, count in drawn:
        counter = last + gap + skipped
        one = put("t", counter, [b"%d" % n for n in range(count)], previous=counter - 1 if skipped else last)
        one.checksum ^= damaged
        out.append(one)
        last = counter + count - 1
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), drawn_rows), min_size=1, max_size=4))
def test_a_train_equals_its_single_rows_up_to_the_first_refused_one(
    trains: list[tuple[int, Drawn]],
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        together, singly = Stage(Path(one)), Stage(Path(other))
        try:
            for start, drawn in trains:
                rows = rows_of(drawn, start)
                answer = together.ask(train(*rows))
                for row in rows:
                    last = singly.ask(row)
                    if last.outcome not in {Outcome.SUCCESS, Outcome.DUPLICATE}:
                        break
                agree(answer, last, together, singly)
        finally:
            together.close()
            singly.close()


def agree(answer: Status, last: Status, together: Stage, singly: Stage) -> None:
    """The two servers hold the same, and the train was told what its last judged row was."""
    ends = {Outcome.SUCCESS: Outcome.DUPLICATE}  # A train of which some rows were new is a success.
    assert ends.get(answer.outcome, answer.outcome) is ends.get(last.outcome, last.outcome)
    held = [
        [(topic.last, topic.open.end, topic.open.total) for topic in stage.core.state.topics.values()]
        for stage in (together, singly)
    ]
    assert held[0] == held[1]
    if answer.outcome is not Outcome.REFUSED and held[0]:
        assert answer.last == max(held[0][0][0].values())


def test_a_train_splits_into_its_rows() -> None:
    rows = chain(1, 2, 5)
    assert split_train(train(*rows)) == rows
    assert ROW_BYTES == 28
