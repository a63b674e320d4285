"""A shared group: claims, offers, what goes back, and what is done."""

from __future__ import annotations

import pytest

from pubsub.protocol import Outcome
from pubsub.protocol.group_bodies import Dead, Later, Range, Tried
from pubsub.server.requests.groups import SLOT_SECONDS, expiry
from tests.server.groups.workers import Given, Worker, act, another, facts, fill, filled, log_of
from tests.server.stage import Stage, put


def test_what_is_claimed_with_the_answer_comes_with_its_records(stage: Stage) -> None:
    one = filled(stage, 10)
    log = log_of(stage)
    answer = one.work(4)
    assert answer.held == (Range(log, 1, 5),)
    assert answer.bodies == [b"1", b"2", b"3", b"4"]
    answer = one.work(2, done=[Range(log, 1, 3)], keep=[Range(log, 3, 5)])
    assert answer.held == (Range(log, 3, 7),)
    assert answer.bodies == [b"5", b"6"]
    two = another(one, "w2")
    assert two.work(100).held == (Range(log, 7, 11),)
    assert facts(stage)["claimed"] == 8
    assert facts(stage)["waiting"] == 0


def test_what_a_member_does_not_name_goes_back_and_is_given_to_another(stage: Stage) -> None:
    one = filled(stage, 6)
    log = log_of(stage)
    one.work(6)
    answer = one.work(0, keep=[Range(log, 3, 4)], done=[Range(log, 6, 7)])
    assert answer.held == (Range(log, 3, 4),)
    two = another(one, "w2")
    assert two.work(10).bodies == [b"1", b"2", b"4", b"5"]
    assert stage.core.state.topics["t"].subscriptions["%billing"].cursor.backlog[0].low == 7


def test_an_offer_binds_nothing_and_the_first_claim_has_it(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR3."""
    one = filled(stage, 3)
    log = log_of(stage)
    assert one.work(2, claim=False).offered == (Range(log, 1, 3),)
    two = another(one, "w2")
    assert two.work(2, claim=False).offered == (Range(log, 3, 4),)
    answer = two.work(0, claim=False, offered=[Range(log, 3, 4)])
    assert answer.offered == (Range(log, 3, 4),)
    taken = Given(two.status(two.message().say._replace(claim=(Range(log, 1, 2),))))
    assert taken.held == (Range(log, 1, 2),)
    refused = Given(one.status(one.message().say._replace(claim=(Range(log, 1, 2),), offered=(Range(log, 2, 3),))))
    assert refused.held == ()
    assert refused.offered == (Range(log, 2, 3),)


def test_what_is_done_counts_from_a_late_message_and_a_late_keep_does_not(stage: Stage) -> None:
    """The rules are docs/explanation/groups.md, GR4 and GR19."""
    one = filled(stage, 4)
    log = log_of(stage)
    one.work(4)
    late = one.message(one.message().say._replace(done=(Range(log, 1, 2),), keep=(Range(log, 2, 5),)))
    answer = one.work(0, keep=[Range(log, 3, 5)])
    assert answer.held == (Range(log, 3, 5),)
    status = stage.ask(late)
    assert (status.outcome, status.reason) == (Outcome.SUPERSEDED, "a_later_message_came")
    assert status.number == one.number
    two = another(one, "w2")
    assert two.work(9).bodies == [b"2"]


def test_a_repeat_of_the_last_message_is_answered_anew(stage: Stage) -> None:
    one = filled(stage, 4)
    message = one.message(records_max=2, claim=1)
    first, second = Given(stage.ask(message)), Given(stage.ask(message))
    assert first.records == second.records
    assert first.lines == second.lines


def test_a_waiting_message_is_answered_when_something_is_put(stage: Stage) -> None:
    one = filled(stage, 0)
    callback = one.send(records_max=5, claim=1, wait_ms=30_000)
    for _ in range(3):
        stage.loop()
    assert stage.answer(callback) is None
    fill(stage, 1, 2)
    stage.loop()
    assert Given(stage.answered(callback)).bodies in ([b"1"], [b"1", b"2"])


def test_a_waiting_message_ends_with_its_time(stage: Stage) -> None:
    one = filled(stage, 0)
    one.work()
    callback = one.send(records_max=5, claim=1, wait_ms=10_000)
    stage.sleep(9)
    assert stage.answer(callback) is None
    stage.sleep(1.1)
    assert stage.answered(callback).body == b""


def test_long_waits_that_began_at_different_times_end_together(stage: Stage) -> None:
    one = filled(stage, 0)
    two = another(one, "w2")
    stage.sleep(SLOT_SECONDS * 1.1 - stage.now % SLOT_SECONDS)  # A slot has just begun.
    first = one.send(records_max=5, claim=1, wait_ms=10_000)
    stage.loop()
    stage.sleep(SLOT_SECONDS / 2)
    second = two.send(records_max=5, claim=1, wait_ms=10_000)
    stage.loop()
    stage.sleep(10 - SLOT_SECONDS)
    assert stage.answer(first) is None
    assert stage.answer(second) is None
    stage.now = stage.core.group_memory.deadline()
    stage.loop()
    assert stage.answered(first).body == b""
    assert stage.answered(second).body == b""


@pytest.mark.parametrize("wait", [0.0, 0.3, 0.9, 1.0, 1.1, 10.0])
def test_a_wait_is_never_longer_and_hardly_shorter_than_asked(wait: float) -> None:
    for tenths in range(100):
        now = 1_000 + tenths / 10
        assert now + wait - SLOT_SECONDS < expiry(now, wait) <= now + wait
        assert wait >= 1 or expiry(now, wait) == now + wait


def test_a_later_message_ends_a_waiting_one_without_an_answer(stage: Stage) -> None:
    one = filled(stage, 0)
    one.work()
    first = one.send(records_max=5, claim=1, wait_ms=10_000)
    stage.loop()
    second = one.send(records_max=5, claim=1, wait_ms=10_000)
    fill(stage, 1, 1)
    stage.loop()
    assert stage.answer(first) is None
    assert Given(stage.answered(second)).bodies == [b"1"]


def test_the_last_message_of_a_process_gets_nothing_and_neither_does_a_waiting_one(stage: Stage) -> None:
    one = filled(stage, 0)
    one.work()
    waiting = one.send(records_max=5, claim=1, wait_ms=10_000)
    stage.loop()
    one.work(5, leave=1)
    fill(stage, 1, 3)
    stage.loop()
    assert stage.answer(waiting) is None
    assert facts(stage)["claimed"] == 0
    assert facts(stage, "members")["members"][0]["left"]


def test_a_member_that_is_silent_loses_its_offer_and_not_its_claims(stage: Stage) -> None:
    """The rules are docs/explanation/groups.md, GR10 and GR18."""
    one = filled(stage, 6)
    log = log_of(stage)
    one.work(2)
    one.work(2, keep=[Range(log, 1, 3)], claim=False)
    two = another(one, "w2")
    assert two.work(9).bodies == [b"5", b"6"]
    stage.sleep(4)
    answer = two.work(9, keep=[Range(log, 5, 7)])
    assert answer.offered == (Range(log, 3, 4),)  # It has a loss, so it is offered alone, and not claimed.
    assert answer.held == (Range(log, 5, 7),)
    told = facts(stage)
    assert (told["in_doubt"], told["in_doubt_members"], told["claimed"]) == (2, 1, 4)


def test_a_failed_record_comes_again_after_a_pause_that_doubles(stage: Stage) -> None:
    one = filled(stage, 1, attempts=9)
    log = log_of(stage)
    for attempt, pause in enumerate((1, 2, 4), 1):
        assert one.work(1).line(1).attempts == attempt - 1
        assert one.work(1, tried=[Tried(log, 1, attempt)]).held == ()
        stage.sleep(pause - 0.2)
        assert one.work(1, tried=[Tried(log, 1, attempt)]).held == ()
        stage.sleep(0.3)


def test_a_record_that_a_handler_puts_off_comes_at_its_time_and_the_attempt_does_not_count(stage: Stage) -> None:
    one = filled(stage, 1, attempts=1)
    log = log_of(stage)
    for attempt in (1, 2, 3):
        assert one.work(1).line(1).attempts == attempt - 1
        one.work(0, later=[Later(log, 1, 5000, attempt)])
        stage.sleep(4.9)
        assert one.work(1).held == ()
        stage.sleep(0.2)
    assert facts(stage)["dead_letters"] == 0


def test_used_up_attempts_make_a_dead_letter_which_is_redriven_and_dropped(stage: Stage) -> None:
    one = filled(stage, 2, attempts=2)
    log = log_of(stage)
    one.work(1)
    one.work(0, tried=[Tried(log, 1, 1)])
    stage.sleep(1.1)
    assert one.work(1).line(1).attempts == 1
    answer = one.work(1, tried=[Tried(log, 1, 2)])
    assert answer.bodies == [b"2"]
    told = facts(stage)
    assert (told["dead_letters"], told["waiting"]) == (1, 0)
    letter = facts(stage, "dead")["dead"][0]
    assert (letter["id"], letter["reason"], letter["attempts"]) == (f"{log}.1", "attempts_used_up", 2)
    assert act(stage, "redrive", one.subscription).records == 1
    again = one.work(9, done=[Range(log, 2, 3)])
    assert again.bodies == [b"1"]
    assert again.line(1).attempts == 2  # What counts begins anew, the number that is shown does not.
    one.work(0, dead=[Dead(log, 1, 3, "bad")])
    assert facts(stage, "dead")["dead"][0]["reason"] == "bad"
    assert act(stage, "drop", one.subscription).records == 1
    assert facts(stage)["dead_letters"] == 0


def test_a_dead_letter_shows_the_error_of_the_last_attempt_with_a_known_one(stage: Stage) -> None:
    one = filled(stage, 1, attempts=3)
    log = log_of(stage)
    one.work(1)
    one.work(0, tried=[Tried(log, 1, 1, "ValueError%3A%20one")])
    stage.sleep(1.1)
    one.work(1)
    one.work(0, tried=[Tried(log, 1, 2, "ValueError%3A%20two")])
    stage.restart()  # The error is in the store.
    stage.sleep(2.1)
    one.work(1)
    one.work(1, tried=[Tried(log, 1, 3)])  # That process ended in the handler: it knows no error.
    reason = "attempts_used_up%3A%20ValueError%3A%20two"
    assert facts(stage, "dead")["dead"][0]["reason"] == reason
    assert act(stage, "redrive", one.subscription).records == 1
    for attempt in (4, 5, 6):
        one.work(1)
        one.work(0, tried=[Tried(log, 1, attempt)])
        stage.sleep(5)
    one.work(1)
    assert facts(stage, "dead")["dead"][0]["reason"] == "attempts_used_up"  # A redrive begins anew.


def test_what_is_released_waits_again_and_is_marked(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR11."""
    one = filled(stage, 3)
    log = log_of(stage)
    one.work(3)
    member = facts(stage, "members")["members"][0]
    refused = act(stage, "release", one.subscription, member="w1", store=one.store, number=member["number"])
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "the_member_is_heard")
    stage.sleep(4)
    late = act(stage, "release", one.subscription, member="w1", store=one.store, number=member["number"] - 1)
    assert late.outcome is Outcome.SUPERSEDED
    assert act(stage, "release", one.subscription, member="w1", store=one.store, number=member["number"]).records == 3
    two = another(one, "w2")
    given = two.work(9)
    assert given.bodies == [b"1", b"2", b"3"]
    assert given.line(1).doubtful
    assert one.work(0, keep=[Range(log, 1, 4)]).held == ()
    one.work(0, done=[Range(log, 1, 2)])
    assert two.work(0, keep=[Range(log, 1, 4)]).held == (Range(log, 2, 4),)
    assert facts(stage)["counts"]["done_after_release"] == 1


def test_a_group_that_gives_up_does_so_after_its_time(stage: Stage) -> None:
    one = filled(stage, 2, on_lost="redeliver", lost_ms=10_000)
    one.work(2)
    two = another(one, "w2")
    stage.sleep(9)
    assert two.work(5).bodies == []
    stage.sleep(2)
    given = two.work(5)
    assert given.bodies == [b"1", b"2"]
    assert all(line.doubtful for line in given.lines)


def test_claims_survive_a_crash_of_the_server_and_offers_do_not(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR2."""
    one = filled(stage, 6)
    log = log_of(stage)
    one.work(2)
    one.work(2, keep=[Range(log, 1, 3)], claim=False)
    stage.restart()
    two = another(one, "w2")
    assert two.work(9).bodies == [b"3", b"4", b"5", b"6"]
    assert one.work(0, keep=[Range(log, 1, 3)]).held == (Range(log, 1, 3),)


def test_a_claim_that_was_not_committed_was_not_answered(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR2."""
    one = filled(stage, 3)
    one.work()
    stage.fail_commit = True
    status = one.status(records_max=3, claim=1)
    assert status.outcome is Outcome.FULL
    stage.fail_commit = False
    assert facts(stage)["claimed"] == 0
    assert one.work(3).bodies == [b"1", b"2", b"3"]


@pytest.mark.parametrize("wanted", [1, 3])
def test_members_that_wait_share_what_there_is(stage: Stage, wanted: int) -> None:
    one = filled(stage, 0)
    one.work()
    workers = [one, *(another(one, f"w{n}") for n in range(2, 2 + wanted))]
    waits = [worker.send(records_max=100, claim=1, wait_ms=30_000) for worker in workers]
    stage.loop()
    stage.say(put("t", 1, [b"x"] * 12))
    stage.loop()
    assert {len(Given(stage.answered(wait)).records) for wait in waits} == {12 // (wanted + 1)}


def test_a_new_process_of_a_member_gets_back_what_it_does_not_know(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR8."""
    one = filled(stage, 5)
    log = log_of(stage)
    one.work(5)
    again = Worker(stage, "w1", opening=one.number + 10)
    again.subscription = one.subscription
    given = again.work(9, done=[Range(log, 1, 3)], tried=[Tried(log, 3, 1)])
    assert given.bodies == [b"4", b"5"]
    late = one.status(number=one.number)
    assert (late.outcome, late.reason, late.number) == (Outcome.SUPERSEDED, "opened_again", again.number)


def test_the_pause_after_a_killed_attempt_begins_with_the_members_last_sign(stage: Stage) -> None:
    """A killed member is usually back later than its pause: it continues with that record at once."""
    one = filled(stage, 2)
    log = log_of(stage)
    one.work(1)
    stage.sleep(0.6)
    again = Worker(stage, "w1", opening=one.number + 10)
    again.subscription = one.subscription
    assert again.work(1, tried=[Tried(log, 1, 1)]).bodies == [b"2"]
    stage.sleep(0.6)
    assert again.work(1, keep=[Range(log, 2, 3)]).line(1).attempts == 1


def test_an_attempt_counts_that_is_told_while_another_member_holds_the_record(stage: Stage) -> None:
    """Otherwise a message that kills two members in turn never becomes a dead letter (GR17)."""
    one = filled(stage, 2, attempts=2, on_lost="redeliver", lost_ms=1000)
    log = log_of(stage)
    one.work(1)
    stage.sleep(8)
    two = another(one, "w2")
    assert two.work(1).line(1).doubtful
    back = Worker(stage, "w1", opening=one.number + 10)
    back.subscription = one.subscription
    back.work(tried=[Tried(log, 1, 1)], later=[Later(log, 1, 60_000, 1)])
    assert two.work(keep=[Range(log, 1, 2)]).line(1).attempts == 1
    back.work(dead=[Dead(log, 1, 2, "no")])
    assert facts(stage)["dead_letters"] == 0
    two.work(tried=[Tried(log, 1, 2)])
    back.work(9)
    assert facts(stage)["dead_letters"] == 1


def test_a_message_that_waited_is_answered_with_offers(stage: Stage) -> None:
    """Its process may have ended, and a claim would be in doubt. The rule is docs/explanation/groups.md, GR27."""
    one = filled(stage, 0)
    one.work()
    waits = one.send(records_max=5, claim=1, wait_ms=30_000)
    stage.loop()
    fill(stage, 1, 1)
    stage.loop()
    given = Given(stage.answered(waits))
    assert (given.held, given.offered) == ((), (Range(log_of(stage), 1, 2),))


def test_all_claims_count_as_begun_after_a_power_cut(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR23."""
    one = filled(stage, 3)
    one.work(2)
    again = Worker(stage, "w1", opening=one.number + 10)
    again.subscription = one.subscription
    given = again.work(9, cut=1)
    assert given.bodies == [b"1", b"2", b"3"]
    assert [given.line(offset).attempts for offset in (1, 2, 3)] == [1, 1, 0]


def test_the_last_message_of_a_process_claims_nothing(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR28."""
    one = filled(stage, 3)
    log = log_of(stage)
    one.work(2, claim=False)
    last = Given(one.status(one.message().say._replace(claim=(Range(log, 1, 2),)), leave=1))
    assert last.lines == ()
    assert facts(stage)["claimed"] == 0
    assert another(one, "w2").work(9).bodies == [b"1", b"2", b"3"]
