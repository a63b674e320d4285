"""Titanic: the order of disk and answers, and the run, kept, closed and forgotten requests."""

from __future__ import annotations

import pytest

from pubsub.services.core.titanic.protocol import KEY_LEAD, NO_ID
from pubsub.services.core.titanic.requests import Entry, State
from tests.services.titanic.rig import Rig

KEY = KEY_LEAD + b"mine"


def accepted(rig: Rig, *body: bytes) -> bytes:
    """The ID of a request that was accepted."""
    status, name = rig.ask("request", *(body or (b"echo", b"hello")))
    assert status == b"200"
    return name


def ran(rig: Rig, *reply: bytes) -> None:
    """The request that waits is run, and answered so."""
    (asked,) = rig.calls()
    assert asked.frames[2:] == (b"mmi.workers", b"echo")
    (run,) = rig.calls(rig.answer(asked, b"200", b"1"))
    assert run.frames[2:] == (b"echo", b"hello")
    rig.answer(run, *reply)


def test_a_request_is_accepted_only_when_it_is_on_the_disk() -> None:
    rig = Rig()
    rig.give("request", b"echo", b"hello")
    assert not any(act.frames[2:3] == (b"\x03",) for act in rig.core.take_sends())
    assert any(b"200" in act.frames for act in rig.settle())


def test_a_request_is_run_and_its_reply_kept_until_it_is_closed() -> None:
    rig = Rig()
    name = accepted(rig)
    asked = list(rig.sent)
    assert rig.ask("reply", name) == (b"300",)
    rig.sent = asked
    ran(rig, b"did", b"it")
    assert rig.ask("reply", name) == (b"200", b"did", b"it")
    assert rig.ask("reply", name.upper()) == (b"200", b"did", b"it")
    assert rig.ask("close", name) == (b"200",)
    assert rig.ask("reply", name) == (b"400",)
    assert rig.ask("close", name) == (b"200",)
    assert rig.core.requests.by_id == {}


def test_a_service_without_workers_is_asked_for_once_a_second_and_sent_nothing() -> None:
    rig = Rig()
    accepted(rig)
    asked = rig.calls()
    for _ in range(5):
        assert [act.frames[2] for act in asked] == [b"mmi.workers"]
        rig.answer(asked[0], b"200", b"0")
        asked = rig.calls(rig.wait(1.0))


def test_a_broker_without_numbers_is_asked_whether_there_is_a_worker() -> None:
    rig = Rig()
    accepted(rig)
    (asked,) = rig.calls()
    (again,) = rig.calls(rig.answer(asked, b"501"))
    assert again.frames[2:] == (b"mmi.service", b"echo")
    (run,) = rig.calls(rig.answer(again, b"200"))
    assert run.frames[2:] == (b"echo", b"hello")


def test_running_requests_do_not_exceed_the_workers() -> None:
    rig = Rig()
    accepted(rig)
    (asked,) = rig.calls()
    for _ in range(4):
        accepted(rig)
    runs = rig.calls(rig.answer(asked, b"200", b"2"))
    assert len(runs) == 2
    assert len(rig.calls(rig.answer(runs[0], b"done"))) == 1


def test_a_request_that_got_no_reply_in_time_is_run_again_after_a_pause() -> None:
    rig = Rig(reply_seconds=5.0)
    accepted(rig)
    (asked,) = rig.calls()
    rig.answer(asked, b"200", b"1")
    runs = []
    for _ in range(60):
        for act in rig.calls(rig.wait(1.0)):
            if act.frames[2].startswith(b"mmi."):
                rig.answer(act, b"200", b"1" if act.frames[2] == b"mmi.workers" else b"0")
                runs += [run for run in rig.calls() if run.frames[2] == b"echo"]
            else:
                runs.append(act)
    assert 3 <= len(runs) <= 6
    rig.answer(runs[-1], b"at last")
    assert rig.replied() == 1


def test_a_request_with_the_same_key_is_the_same_request() -> None:
    rig = Rig()
    name = accepted(rig, KEY, b"echo", b"hello")
    asked = list(rig.sent)
    assert accepted(rig, KEY, b"echo", b"hello") == name
    assert len(rig.core.requests.by_id) == 1
    rig.sent = asked
    ran(rig, b"did it")
    assert accepted(rig, KEY, b"echo", b"hello") == name
    assert rig.ask("close", name) == (b"200",)
    assert accepted(rig, KEY, b"echo", b"hello") == name
    assert rig.ask("reply", name) == (b"400",)


def test_two_requests_with_one_key_in_one_commit_are_one() -> None:
    rig = Rig()
    rig.give("request", KEY, b"echo", b"hello")
    rig.give("request", KEY, b"echo", b"hello")
    answers = {act.frames[5:] for act in rig.settle() if act.frames[2:3] == (b"\x03",)}
    assert len(answers) == 1
    assert rig.transactions == [["Accepted"]]


def test_a_key_of_another_request_is_refused() -> None:
    rig = Rig()
    accepted(rig, KEY, b"echo", b"hello")
    assert rig.ask("request", KEY, b"echo", b"other")[0][:3] == b"400"
    assert rig.ask("request", KEY, b"other", b"hello")[0][:3] == b"400"


def test_two_equal_requests_without_keys_are_two() -> None:
    rig = Rig()
    assert accepted(rig) != accepted(rig)


def test_the_query_for_support_of_keys_is_answered() -> None:
    assert Rig().ask("reply", NO_ID) == (b"200", KEY_LEAD)


@pytest.mark.parametrize(
    "body",
    [
        (b"echo",),
        (b"", b"x"),
        (b"mmi.service", b"x"),
        (b"titanic.request", b"x"),
        (b"\x00", b"x"),
        (KEY_LEAD, b"echo", b"x"),
        (KEY_LEAD + b"x" * 256, b"echo", b"x"),
        (KEY,),
        (KEY, b"echo"),
    ],
)
def test_an_invalid_request_is_refused_and_not_kept(body: tuple[bytes, ...]) -> None:
    rig = Rig()
    assert rig.ask("request", *body)[0][:3] == b"400"
    assert rig.core.requests.by_id == {}


@pytest.mark.parametrize("body", [(b"x",), (b"",), (b"g" * 32,), (b"a" * 32, b"more"), (b"a" * 32,)])
def test_an_unknown_id_is_refused(body: tuple[bytes, ...]) -> None:
    rig = Rig()
    assert rig.ask("reply", *body) == (b"400",)
    assert rig.ask("close", *body) == (b"200",)


def test_a_full_disk_is_reported_until_there_is_room() -> None:
    rig = Rig()
    name = accepted(rig, KEY, b"echo", b"hello")
    asked = list(rig.sent)
    rig.full = True
    assert rig.ask("request", b"echo", b"x")[0][:3] == b"500"
    rig.sent = asked
    ran(rig, b"did it")
    assert rig.ask("reply", name) == (b"300",)
    assert rig.ask("close", name)[0][:3] == b"500"
    rig.full = False
    rig.wait(2.0)
    assert rig.ask("reply", name) == (b"200", b"did it")
    assert rig.core.counters["runs"] == 1
    assert accepted(rig, b"echo", b"x")


def test_requests_stay_within_the_limit() -> None:
    rig = Rig(requests_max=2)
    accepted(rig)
    name = accepted(rig)
    assert rig.ask("request", b"echo", b"hello")[0][:3] == b"500"
    rig.ask("close", name)
    accepted(rig)


def test_a_request_kept_for_long_enough_is_forgotten_with_its_key() -> None:
    rig = Rig(keep_seconds=1_000.0)
    name = accepted(rig, KEY, b"echo", b"hello")
    rig.wait(990.0)
    assert rig.ask("reply", name) == (b"300",)
    rig.wait(20.0)
    assert rig.ask("reply", name) == (b"400",)
    assert accepted(rig, KEY, b"echo", b"hello") != name


def test_the_age_continues_after_a_start_with_any_clock() -> None:
    entry = Entry(b"a" * 32, b"echo", b"", b"", State.REPLIED, age=5_000.0)
    rig = Rig([entry], age=5_900.0, keep_seconds=1_000.0)
    rig.bodies[entry.id] = (b"did it",)
    assert rig.ask("reply", entry.id) == (b"200", b"did it")
    assert rig.core.age(rig.now + 50.0) == 5_950.0
    rig.wait(99.0)
    assert rig.ask("reply", entry.id) == (b"200", b"did it")
    rig.wait(2.0)
    assert rig.ask("reply", entry.id) == (b"400",)


def test_the_age_is_stored_each_minute_while_requests_are_kept() -> None:
    rig = Rig()
    rig.wait(130.0)
    assert rig.transactions == []
    accepted(rig)
    rig.wait(130.0)
    assert rig.transactions.count(["Aged"]) == 2


def test_only_unanswered_requests_are_run_at_the_next_start() -> None:
    entries = [
        Entry(b"a" * 32, b"echo", b"", b"", State.PENDING, 0.0),
        Entry(b"b" * 32, b"other", b"", b"", State.REPLIED, 0.0),
        Entry(b"c" * 32, b"third", b"", b"", State.CLOSED, 0.0),
    ]
    rig = Rig(entries)
    assert [act.frames[2:] for act in rig.calls()] == [(b"mmi.workers", b"echo")]


def test_a_request_closed_while_it_waits_is_not_run() -> None:
    rig = Rig()
    name = accepted(rig)
    (asked,) = rig.calls()
    rig.ask("close", name)
    assert rig.calls(rig.answer(asked, b"200", b"1")) == []


def test_the_reply_to_a_request_that_was_closed_meanwhile_is_not_kept() -> None:
    rig = Rig()
    name = accepted(rig)
    (asked,) = rig.calls()
    (run,) = rig.calls(rig.answer(asked, b"200", b"1"))
    rig.ask("close", name)
    rig.answer(run, b"late")
    assert rig.replied() == 0


def test_a_reply_that_cannot_be_read_is_an_error_and_not_run_again() -> None:
    rig = Rig()
    name = accepted(rig)
    ran(rig, b"did it")
    rig.bodies.clear()
    assert rig.ask("reply", name) == (b"500",)
    assert rig.core.counters["runs"] == 1
