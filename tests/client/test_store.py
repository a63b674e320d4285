"""The client's state on disk, and its use of SQLite."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from pubsub.client.core import changes as c
from pubsub.client.core.numbers import KNOWN_MAX
from pubsub.client.storage.store import Store
from pubsub.client.storage.tables import FORMAT
from pubsub.errors import StorageError, StoreDamaged, StoreFull, StoreInUse, StoreNewer

LOG = "00000000000000aa"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "billing.db"


def row(counter: int, topic: str = "t", body: bytes = b"body") -> c.RowAdded:
    return c.RowAdded(topic, counter, counter - 1, 1, 0, 7, body)


def crash(store: Store) -> None:
    """Leave the state as a kill would: nothing more is written."""
    store.db.close()


def test_pragmas_have_their_required_values(path: Path) -> None:
    store = Store(path)
    assert store.db.pragma("journal_mode") == "wal"
    assert store.db.pragma("locking_mode") == "exclusive"
    assert store.db.pragma("page_size") == 8192
    assert store.db.pragma("user_version") == FORMAT
    store.commit([row(1)])
    assert store.db.pragma("synchronous") == 1
    store.commit([row(2)], fsync=True)
    assert store.db.pragma("synchronous") == 2
    store.close()


def test_the_milliseconds_of_numbers_are_fsynced_before_any_is_given_out(path: Path) -> None:
    store = Store(path)
    store.commit([row(1)])
    assert store.db.pragma("synchronous") == 1
    store.save_milliseconds(7)
    assert store.db.pragma("synchronous") == 2
    store.close()


@pytest.mark.parametrize("step", ["open", "fsync"])
def test_a_directory_that_cannot_be_synced_is_reported_and_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Examples: a directory that may be written and not listed, or a file system that syncs no directory."""
    really = getattr(os, step)

    def refused(first: int | Path, *more: int) -> int:
        if first == path.parent or (isinstance(first, int) and step == "fsync"):
            raise OSError(errno.EACCES, "Permission denied")
        return int(really(first, *more))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, refused)
        for _ in range(2):
            with pytest.raises(StorageError, match="Permission denied"):
                Store(path)
    Store(path).close()


def test_every_commit_of_a_power_safe_client_is_fsynced(path: Path) -> None:
    store = Store(path, power_safe=True)
    assert store.commit([row(1)])
    assert store.db.pragma("synchronous") == 2
    store.close()


@pytest.mark.parametrize(
    ("change", "fsynced"),
    [
        (row(1), False),
        (c.RowsRemoved([1]), False),
        (c.ChainMoved("t", 1, 0, LOG), False),
        (c.Taken("t", (LOG, 1), {}), False),
        (c.Tried("t", (LOG, 1), 1), False),
        (c.Intended("t", True), True),
        (c.Confirmed("t", 5, (LOG, 1), LOG), True),
        (c.DeadLettered("t", "a", "b", "", 0, 0, None, "lost", 0, 0.0), True),
        (c.RowUnchained(1), True),
        (c.Renewed("00000000000000cc"), True),
    ],
)
def test_only_changes_that_must_be_durable_are_fsynced(path: Path, change: c.Change, fsynced: bool) -> None:
    store = Store(path)
    assert store.commit([change]) is fsynced
    store.close()


def test_a_renewal_clears_the_power_cuts_and_their_marks(path: Path) -> None:
    store = Store(path)
    store.commit([c.RowAdded("t", 5, 4, 1, 1, 7, b"body")])
    store.commit([c.Renewed("00000000000000cc")])
    assert [found[4] for found in store.rows()] == [0]
    assert store.state("cuts") == 0
    store.close()


def test_a_commit_survives_the_process(path: Path) -> None:
    store = Store(path)
    store.commit([row(5), row(9, "u"), c.ChainMoved("t", 4, 0, LOG)])
    store.commit([c.Intended("t", True), c.Confirmed("t", 3, (LOG, 8), LOG)])
    store.commit([c.Taken("t", (LOG, 9), {"p/1": 6}), c.Tried("t", (LOG, 10), 2)])
    identity = store.state("store")
    crash(store)
    store = Store(path)
    assert store.state("store") == identity
    assert [found[:3] for found in store.rows()] == [(5, "t", 4), (9, "u", 8)]
    assert store.body(5) == b"body"
    assert list(store.chains()) == [("t", 4, 0, LOG)]
    assert list(store.subscriptions()) == [("t", True, True, False, 3, LOG, (LOG, 9), (LOG, 10), 2)]
    assert store.taken("t") == {"p/1": 6}
    store.close()


def test_an_intent_to_begin_before_the_end_keeps_the_start_and_clears_taken_counters(path: Path) -> None:
    store = Store(path)
    for topic in ("t", "u"):
        store.commit([c.Intended(topic, True), c.Confirmed(topic, 3, (LOG, 8), LOG)])
        store.commit([c.Taken(topic, (LOG, 9), {"p/1": 6})])
    store.commit([c.Intended("t", True, True), c.Intended("u", True)])
    assert store.taken("t") == {"p/1": 6}, "at the end a record of before may come once more"
    assert list(store.starts()) == []
    for start in ("earliest", 17, (LOG, 4)):
        store.commit([c.Intended("t", True, True, start)])
        crash(store)
        store = Store(path)
        assert list(store.starts()) == [("t", start)]
    assert store.taken("t") == {}
    assert store.taken("u") == {"p/1": 6}
    store.commit([c.Intended("t", True, True)])
    assert list(store.starts()) == []
    store.close()


def test_a_store_of_an_earlier_release_gets_the_table_of_starts(path: Path) -> None:
    store = Store(path)
    store.db.execute("drop table pubsub_starts")
    store.close()
    store = Store(path)
    assert list(store.starts()) == []
    store.close()


def test_an_intent_forgets_the_position_and_the_attempts(path: Path) -> None:
    store = Store(path)
    store.commit([c.Intended("t", True), c.Confirmed("t", 3, (LOG, 8), LOG), c.Tried("t", (LOG, 9), 4)])
    store.commit([c.Intended("t", False)])
    ((topic, wanted, settled, _, _, _, position, _, attempts),) = store.subscriptions()
    assert (topic, wanted, settled, position, attempts) == ("t", False, False, None, 0)
    store.close()


def test_a_transaction_that_raises_leaves_nothing(path: Path) -> None:
    store = Store(path)

    def fail() -> None:
        with store.transaction(fsync=False):
            store.apply([row(1)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(store.rows()) == []
    store.close()


# Power cuts


def test_a_clean_close_is_no_power_cut(path: Path) -> None:
    Store(path, "boot1").close()
    store = Store(path, "boot2")
    assert store.state("cuts") == 0
    store.close()


def test_a_kill_within_one_boot_is_no_power_cut(path: Path) -> None:
    crash(Store(path, "boot1"))
    store = Store(path, "boot1")
    assert store.state("cuts") == 0
    store.close()


def test_a_boot_that_followed_no_clean_close_counts_as_a_power_cut(path: Path) -> None:
    crash(Store(path, "boot1"))
    crash(Store(path, "boot2"))
    store = Store(path, "boot3")
    assert store.state("cuts") == 2
    store.close()


def test_every_kill_counts_as_a_power_cut_if_boots_are_unknown(path: Path) -> None:
    crash(Store(path, ""))
    store = Store(path, "")
    assert store.state("cuts") == 1
    store.close()


# Refusals


def test_a_second_process_is_refused_and_learns_which_process_has_the_store(path: Path) -> None:
    store = Store(path)
    code = f"from pathlib import Path; from pubsub.client.storage.store import Store; Store(Path({str(path)!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "StoreInUse" in found.stderr
    assert "in use by another process (process " in found.stderr
    store.close()
    Store(path).close()


def test_a_second_opening_within_the_process_is_kept_out(path: Path) -> None:
    store = Store(path)
    with pytest.raises(StoreInUse):
        Store(path)
    store.commit([row(1)])
    store.close()


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    Store(path).close()
    db = apsw.Connection(str(path))
    db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(StoreNewer, match="99"):
        Store(path)
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == 99
    db.close()


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to have a header " * 100)
    with pytest.raises(StoreDamaged, match="damaged"):
        Store(path)


def test_a_page_that_was_overwritten_is_damaged(path: Path) -> None:
    store = Store(path)
    store.commit([row(n, body=bytes(3000)) for n in range(1, 200)])
    store.close()
    content = bytearray(path.read_bytes())
    for place in range(8192, len(content), 8192):
        content[place : place + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        list(Store(path).rows())


def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        Store(tmp_path / "file" / "state" / "x.db")


def test_a_full_disk_is_reported_and_the_old_rows_stay(path: Path) -> None:
    store = Store(path)
    store.commit([row(1)])
    store.db.pragma("max_page_count", store.db.pragma("page_count"))
    with pytest.raises(StoreFull):
        store.commit([row(2, body=bytes(1 << 20))])
    assert store.failed
    assert [found[0] for found in store.rows()] == [1]
    store.db.pragma("max_page_count", 1 << 30)
    store.commit([row(2, body=bytes(1 << 20))])
    assert not store.failed
    store.close()


def test_the_application_keeps_its_own_tables_beside_those_of_the_package(path: Path) -> None:
    store = Store(path)
    with store.transaction(fsync=False):
        store.db.execute("create table ledger (id)")
        store.apply([row(1)])
    names = {name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table'")}
    assert {name for name in names if not name.startswith("pubsub_")} == {"ledger"}
    store.close()


def test_losses_are_kept_until_they_are_reported(path: Path) -> None:
    store = Store(path)
    for number, topic in enumerate(["a", "b", "a", "a"]):
        store.commit([c.DeadLettered(topic, f"{LOG}.{number}", f"{LOG}.9", "", 0, 0, None, "gone", 0, 4.0)])
    store.commit(
        [c.DeadLettered("a", f"{LOG}.1", f"{LOG}.1", "p", 1, 2, b"x", "why", 3, 4.0)]
    )  # A handler's, not a loss.
    store.commit([c.Told("a", 2)])
    store.close()
    store = Store(path)
    assert store.untold() == [("b", f"{LOG}.1", f"{LOG}.9", "gone"), ("a", f"{LOG}.3", f"{LOG}.9", "gone")]
    assert len(store.dead_letters(None)) == 5
    store.close()


def test_a_deletion_without_a_loss_is_kept_until_it_is_reported_and_leaves_no_dead_letter(path: Path) -> None:
    store = Store(path)
    for topic in ("a", "b", "a"):
        store.commit([c.DeletionNoted(topic, "deleted")])
    store.commit([c.DeadLettered("a", f"{LOG}.1", f"{LOG}.9", "", 0, 0, None, "gone", 0, 4.0)])
    store.commit([c.Told("a", 0, 1)])
    store.close()
    store = Store(path)
    assert store.untold() == [("a", f"{LOG}.1", f"{LOG}.9", "gone"), ("b", "", "", "deleted"), ("a", "", "", "deleted")]
    assert len(store.dead_letters(None)) == 1
    store.commit([c.Told("a", 1, 1)])
    assert store.untold() == [("b", "", "", "deleted")]
    store.close()


def test_a_store_from_before_losses_were_kept_is_opened(path: Path) -> None:
    store = Store(path)
    store.db.execute("drop table pubsub_untold")
    store.db.execute("drop table pubsub_deletions")
    store.close()
    store = Store(path)
    assert store.untold() == []
    store.commit([c.DeadLettered("a", f"{LOG}.1", f"{LOG}.9", "", 0, 0, None, "gone", 0, 4.0)])
    assert len(store.untold()) == 1
    store.close()


def test_dead_letters_are_kept_in_order(path: Path) -> None:
    store = Store(path)
    for number, topic in enumerate(["a", "b", "a"]):
        store.commit([c.DeadLettered(topic, f"{LOG}.{number}", f"{LOG}.{number}", "p", 1, 2, b"x", "why", 3, 4.0)])
    assert [letter[1] for letter in store.dead_letters("a")] == [f"{LOG}.0", f"{LOG}.2"]
    assert len(store.dead_letters(None)) == 3
    store.close()


def test_all_milliseconds_of_numbers_are_kept_unless_a_release_without_that_was_here(path: Path) -> None:
    store = Store(path)
    assert store.known_milliseconds() == [0]
    for milliseconds in (1_000, 2_000):
        store.save_milliseconds(milliseconds)
    assert store.known_milliseconds() == [0, 1_000, 2_000]
    for milliseconds in range(3_000, 3_000 + KNOWN_MAX):
        store.save_milliseconds(milliseconds)
    assert store.known_milliseconds() == list(range(3_000, 3_000 + KNOWN_MAX))
    store.db.execute("update pubsub_state set value = 9000 where key = 'milliseconds'")
    assert store.known_milliseconds() == [9_000]
    store.db.execute("delete from pubsub_state where key = 'known'")
    assert store.known_milliseconds() == [9_000]
    store.save_milliseconds(9_500)
    assert store.known_milliseconds() == [9_000, 9_500]
    store.close()
