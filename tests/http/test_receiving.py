"""The receiver's side without a network: the time of each stored change, and the results of a handler's work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pubsub.errors import CallerError, StorageError
from pubsub.http.core.answers import Answer
from pubsub.http.core.incoming import Decision, Standing
from pubsub.http.core.keys import OUTCOME, make_id
from pubsub.http.core.outgoing import Kind
from pubsub.http.receiving import Arrival, Receiving, reply
from pubsub.http.sending import Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import inbox
from pubsub.http.storage.journal import Journal, OwnFile
from tests.http.rig import Clock

SETTINGS = HttpSettings(handler_attempts=2)
PUT = Arrival("", "k", Kind.PUT, "PUT", "/x", "", {}, b"body")
JOB = replace(PUT, key="j", kind=Kind.JOB, method="POST", response_url="http://s/r/j")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiving(tmp_path: Path, clock: Clock) -> Iterator[Receiving]:
    journal = Journal(OwnFile(tmp_path, ""), clock, counts_boots=False)
    yield Receiving(journal, SETTINGS, Random(1), Sending(journal, SETTINGS, Random(2)))
    journal.close()


def handle(receiving: Receiving, name: tuple[str, str], answer: Answer) -> None:
    request = receiving.find(*name)
    assert request is not None
    with receiving.journal.transaction() as transaction:
        result = receiving.done(transaction, name, answer)
    receiving.committed(request, [result] if result is not None else [])


def test_a_put_is_stored_handled_and_repeated(receiving: Receiving) -> None:
    decision, found = receiving.arrive(PUT)
    assert (decision, reply(decision, found)) == (Decision.STORE, None)
    assert receiving.begin()[0] == [("", "k")]
    assert receiving.arrive(PUT)[0] is Decision.RUNNING
    handle(receiving, ("", "k"), Answer(200, {}, b"done"))
    receiving.end(("", "k"))
    decision, found = receiving.arrive(PUT)
    assert reply(decision, found) == Answer(200, {}, b"done")
    assert receiving.begin()[0] == []
    assert found is not None
    assert found.body == b"", "what is handled is not kept"


def test_a_jobs_result_is_in_the_outbox_with_its_receipt(receiving: Receiving) -> None:
    decision, found = receiving.arrive(JOB)
    answer = reply(decision, found)
    assert answer is not None
    assert answer.status == 202
    handle(receiving, ("", "j"), Answer(200, {"content-type": "text/plain", "x": "y"}, b"result"))
    ((name, _),) = receiving._sending.schedule._due.items()
    sent = receiving._sending.find(name)
    assert sent is not None
    assert (sent.url, sent.body) == ("http://s/r/j", b"result")
    assert sent.headers == {"content-type": "text/plain", OUTCOME: "done"}


def test_a_job_that_is_given_up_informs_its_sender(receiving: Receiving, clock: Clock) -> None:
    receiving.arrive(JOB)
    for _ in range(2):
        clock.ahead += 1000.0
        receiving.begin()
        after = receiving.failed(("", "j"), "no paper")
        receiving.end(("", "j"))
    assert after is not None
    assert after.standing is Standing.FAILED
    (name,) = receiving._sending.schedule._due
    sent = receiving._sending.find(name)
    assert sent is not None
    assert sent.headers[OUTCOME] == "failed"
    assert not receiving.again(("", "j"))


def test_a_failure_of_the_disk_counts_as_no_attempt(receiving: Receiving, clock: Clock) -> None:
    receiving.arrive(PUT)
    for _ in range(5):
        clock.ahead += 1000.0
        assert receiving.begin()[0] == [("", "k")]
        after = receiving.failed(("", "k"), "the disk", counts=False)
        receiving.end(("", "k"))
    assert after is not None
    assert (after.standing, after.attempts) == (Standing.RECEIVED, 0)


def test_a_repeat_has_a_handler_that_failed_called_at_once(receiving: Receiving) -> None:
    receiving.arrive(PUT)
    receiving.begin()
    receiving.failed(("", "k"), "no")
    receiving.end(("", "k"))
    assert receiving.begin()[0] == []
    assert receiving.arrive(PUT)[0] is Decision.HANDLE
    assert receiving.begin()[0] == [("", "k")]


def test_a_receipt_is_written_once(receiving: Receiving) -> None:
    receiving.arrive(PUT)
    handle(receiving, ("", "k"), Answer(200))
    with pytest.raises(CallerError, match="forgotten"), receiving.journal.transaction() as transaction:
        receiving.done(transaction, ("", "k"), Answer(200))


def test_a_finished_request_is_refused_when_it_comes_again(receiving: Receiving) -> None:
    session = "0" * 16
    one, two = (replace(PUT, key=make_id(session, number, "f" * 32)) for number in (1, 2))
    receiving.arrive(one)
    handle(receiving, ("", one.key), Answer(200))
    assert receiving.arrive(replace(two, finished=1))[0] is Decision.STORE
    assert receiving._tombstones == 0
    decision, found = receiving.arrive(one)
    answer = reply(decision, found)
    assert answer is not None
    assert (decision, answer.status) == (Decision.FORGOTTEN, 410)


def test_an_unhandled_message_stays_though_its_sender_has_finished(receiving: Receiving) -> None:
    session = "0" * 16
    message = replace(PUT, kind=Kind.SEND, method="POST", key=make_id(session, 1, "f" * 32))
    receiving.arrive(message)
    receiving.arrive(replace(PUT, key=make_id(session, 2, "f" * 32), finished=1))
    assert receiving.begin()[0][0] == ("", message.key)


def test_a_later_process_handles_the_remaining_requests(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(OwnFile(tmp_path, ""), clock)
    Receiving(journal, SETTINGS, Random(1), Sending(journal, SETTINGS, Random(2))).arrive(PUT)
    later = Receiving(journal, SETTINGS, Random(1), Sending(journal, SETTINGS, Random(2)))
    assert later.begin()[0] == [("", "k")]
    assert (later._count, later._bytes) == (1, 4)
    journal.close()


def test_a_result_that_the_disk_did_not_take_keeps_no_number(
    receiving: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("/x", "refuses")

    receiving.arrive(JOB)
    receiving.failed(("", "j"), "broken")
    with monkeypatch.context() as patched:
        patched.setattr(inbox, "save", refuse)
        with pytest.raises(StorageError):
            receiving.failed(("", "j"), "broken")
    assert receiving._sending._unfinished == {}
    after = receiving.failed(("", "j"), "broken")
    assert after is not None
    assert after.standing is Standing.FAILED
    assert len(receiving._sending._unfinished) == 1
