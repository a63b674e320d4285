"""The file of reliable requests: one transaction at a time, in one process, with a time of its own."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random

import pytest

from pubsub.errors import AfterFork, CallerError, StoreInUse, StoreNewer
from pubsub.http.core.outgoing import Kind
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage.journal import Journal, OwnFile
from tests.http.rig import Clock


def opened(path: Path, clock: Clock | None = None, *, counts_boots: bool = True) -> Journal:
    return Journal(OwnFile(path, "b"), clock or Clock(), counts_boots=counts_boots)


def test_a_commit_is_kept_and_an_exception_rolls_back(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with journal.transaction() as transaction:
        transaction.execute("create table mine (x)")
        transaction.execute("insert into mine values (1)")

    def fail() -> None:
        with journal.transaction() as transaction:
            transaction.execute("insert into mine values (2)")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    journal.close()
    journal = opened(tmp_path)
    with journal.transaction() as transaction:
        assert list(transaction.execute("select x from mine")) == [(1,)]
    journal.close()
    with pytest.raises(CallerError, match="closed"), journal.transaction():
        pass


def test_a_second_journal_is_refused_and_learns_which_process_has_the_file(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(StoreInUse):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()


def test_a_transaction_within_another_is_refused_on_its_thread_and_waits_on_others(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    order: list[str] = []

    def other() -> None:
        with journal.transaction():
            order.append("other")

    with journal.transaction():
        with pytest.raises(CallerError, match="is open on this thread"), journal.transaction():
            pass
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    journal.close()


def test_a_statement_that_ends_the_transaction_is_found_out(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(CallerError, match="ended the transaction"), journal.transaction() as transaction:
        transaction.execute("commit")
    journal.close()


def test_the_time_of_a_journal_ignores_the_wall_clock_and_continues_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    journal = opened(tmp_path, clock)
    clock.wall_seconds = 9e9
    assert journal.now() < 60.0
    clock.ahead += 1000.0
    assert 1000.0 <= journal.now() < 1060.0
    journal.close()
    clock.ahead += 500.0
    clock.wall_seconds = 1.0
    journal = opened(tmp_path, clock)
    assert 1500.0 <= journal.now() < 1560.0
    journal.close()


@pytest.mark.parametrize(("counts", "seconds"), [(True, 3600.0), (False, 0.0)])
def test_the_journal_time_across_boots_follows_the_wall_clock_at_a_sender_only(
    tmp_path: Path, counts: bool, seconds: float
) -> None:
    clock = Clock()
    opened(tmp_path, clock).close()
    clock.boot_id, clock.ahead = "another", -clock.uptime()
    clock.wall_seconds += 3600.0
    journal = opened(tmp_path, clock, counts_boots=counts)
    assert seconds <= journal.now() < seconds + 60.0
    journal.close()


def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with journal.transaction() as transaction:
        transaction.execute("update pubsub_http_state set value = 99 where key = 'format'")
    with journal._lock:
        journal._place.close()  # As if it were killed: nothing is written at its end.
    journal._over = "closed"
    with pytest.raises(StoreNewer):
        opened(tmp_path)


def test_a_forked_child_cannot_use_the_journal(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    child = os.fork()
    if not child:
        try:
            with journal.transaction():
                os._exit(1)
        except AfterFork:
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with journal.transaction() as transaction:
        transaction.execute("create table mine (x)")
    journal.close()


def test_the_last_stored_change_precedes_the_next_start_without_a_kept_time(tmp_path: Path) -> None:
    clock = Clock()
    journal = opened(tmp_path, clock)
    clock.ahead += 1_000.0
    outgoing = Sending(journal, HttpSettings(), Random(1)).submit(Draft(Kind.PUT, "http://h/", {}, b""))
    journal._place.close()  # As a process that is killed leaves it.
    clock.boot_id, clock.wall_seconds = "another", 0.0
    journal = opened(tmp_path, clock)
    assert journal.now() >= outgoing.changed >= 1_000.0
    journal.close()


def test_the_time_continues_from_the_close(tmp_path: Path) -> None:
    clock = Clock()
    journal = opened(tmp_path, clock)
    clock.ahead += 1_000.0
    journal.close()
    clock.boot_id, clock.wall_seconds = "another", 0.0
    journal = opened(tmp_path, clock)
    assert journal.now() >= 1_000.0
    journal.close()
