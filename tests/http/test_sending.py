"""The sender's side without a network: the time of each stored change, and the content of the headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pubsub.errors import StorageError
from pubsub.http.core.answers import Answer
from pubsub.http.core.keys import CONFIRM, FINISHED, RESPONSE_URL
from pubsub.http.core.limits import CONFIRM_TRIES_MAX
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import outbox
from pubsub.http.storage.journal import Journal, OwnFile
from tests.http.rig import Clock

SETTINGS = HttpSettings()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sending(tmp_path: Path, clock: Clock) -> Iterator[Sending]:
    journal = Journal(OwnFile(tmp_path, ""), clock)
    yield Sending(journal, SETTINGS, Random(1))
    journal.close()


def put(sending: Sending, body: bytes = b"x") -> Outgoing:
    return sending.submit(Draft(Kind.PUT, "http://h/x", {}, body))


def finished(sending: Sending, request: Outgoing) -> str | None:
    return sending.headers(request).get(FINISHED)


def test_only_requests_below_every_open_one_are_reported_as_finished(sending: Sending) -> None:
    first, second, third = put(sending), put(sending), put(sending)
    assert [finished(sending, one) for one in (first, second, third)] == [None, None, None]
    sending.answered(second.id, Answer(200))
    assert finished(sending, third) is None
    sending.answered(first.id, Answer(500))
    assert finished(sending, third) is None
    sending.answered(first.id, Answer(404))
    assert finished(sending, third) == "2"


def test_a_request_that_was_never_stored_holds_nothing_up(sending: Sending) -> None:
    drafted: list[Outgoing] = []

    def fail() -> None:
        with sending.journal.transaction() as transaction:
            drafted.append(sending.add(transaction, Draft(Kind.SEND, "http://h/", {}, b"")))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    sending.withdrawn(drafted[0])
    assert sending.find(drafted[0].id) is None
    assert finished(sending, put(sending)) == "1"


def test_a_callers_own_key_does_not_finish_others(sending: Sending) -> None:
    put(sending)
    mine = sending.submit(Draft(Kind.PUT, "http://h/x", {}, b"", "mine"))
    assert finished(sending, mine) is None


def test_a_later_process_has_its_own_numbers_and_continues_open_requests(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(OwnFile(tmp_path, ""), clock)
    before = put(Sending(journal, SETTINGS, Random(1)))
    later = Sending(journal, SETTINGS, Random(2))
    assert later.begin()[0] == [before.id]
    assert finished(later, before) is None
    after = put(later)
    assert after.id.split("-")[0] != before.id.split("-")[0]
    assert finished(later, after) is None
    journal.close()


def test_a_job_names_the_url_of_its_result_and_waits_for_the_result(sending: Sending, clock: Clock) -> None:
    job = sending.submit(Draft(Kind.JOB, "http://h/j", {}, b"x", "", "http://l/r/"))
    assert job.headers[RESPONSE_URL] == f"http://l/r/{job.id}"
    assert sending.begin()[0] == [job.id]
    accepted = sending.answered(job.id, Answer(202))
    sending.end(job.id)
    assert accepted is not None
    assert accepted.state is State.ACCEPTED
    assert sending.begin()[0] == []
    with sending.journal.transaction() as transaction:
        before, after = sending.result(transaction, job.id, Answer(200, {}, b"r"), failed=False)
    sending.settled(before, after)
    assert after.answer == Answer(200, {}, b"r")
    clock.ahead += 8 * 86_400.0
    assert sending.begin()[0] == []


def test_an_accepted_job_expires_too(sending: Sending, clock: Clock) -> None:
    job = sending.submit(Draft(Kind.JOB, "http://h/j", {}, b"x", "", "http://l/r"))
    sending.begin()
    sending.answered(job.id, Answer(202))
    sending.end(job.id)
    clock.ahead += 8 * 86_400.0
    assert sending.begin()[0] == [job.id]
    expired = sending.load(job.id)
    assert expired is not None
    assert expired.state is State.EXPIRED


def test_a_confirmation_is_tried_a_limited_number_of_times(sending: Sending, clock: Clock) -> None:
    request = put(sending)
    sending.begin()
    sending.answered(request.id, Answer(200, {CONFIRM: "/c"}))
    sending.end(request.id)
    tries = 0
    while True:
        clock.ahead += 1000.0
        if not sending.begin()[0]:
            break
        loaded = sending.load(request.id)
        assert loaded is not None
        assert loaded.confirm == "http://h/c"
        sending.confirmed(request.id, success=False)
        sending.end(request.id)
        tries += 1
    assert tries == CONFIRM_TRIES_MAX


def test_expired_tombstones_are_removed_and_open_requests_stay(sending: Sending, clock: Clock) -> None:
    done, open_ = put(sending), put(sending)
    sending.answered(done.id, Answer(200))
    assert 0 < sending.sweep() <= SETTINGS.tombstone_seconds
    assert sending.find(done.id) is not None
    clock.ahead += SETTINGS.tombstone_seconds + 1.0
    assert sending.sweep() == float("inf")
    assert sending.find(done.id) is None
    assert sending.find(open_.id) is not None


def test_an_answer_to_a_forgotten_request_changes_nothing(sending: Sending) -> None:
    request = put(sending)
    assert sending.forget(request.id)
    assert sending.answered(request.id, Answer(200)) is None
    assert sending.failed(request.id, "") is None
    assert sending.refused(request.id, "") is None
    sending.confirmed(request.id, success=True)
    assert sending.load(request.id) is None
    assert sending.begin()[0] == []


def test_a_request_that_the_disk_refused_holds_nothing_up(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("/x", "refuses")

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "add", refuse)
        with pytest.raises(StorageError):
            put(sending)
    assert finished(sending, put(sending)) == "1"


def test_the_body_of_a_job_that_is_accepted_takes_no_room(sending: Sending) -> None:
    job = sending.submit(Draft(Kind.JOB, "http://h/j", {}, b"x" * 100, "", "http://here/r"))
    assert sending._bytes == 100
    sending.answered(job.id, Answer(202))
    assert (sending._count, sending._bytes) == (1, 0)
