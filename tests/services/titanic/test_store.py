"""Titanic's store: written requests are there after a start, a full store recovers, damage is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.clock import SystemClock
from pubsub.errors import StoreDamaged, StoreFull, StoreInUse, StoreNewer
from pubsub.services.core.titanic.requests import Accepted, Closed, Entry, Expired, Replied, State
from pubsub.services.core.titanic.titanic import Titanic
from pubsub.services.titanic.disk import Disk
from pubsub.services.titanic.store import FILE, Store, pack, unpack
from tests.faults.cluster import ROOT


def entry(number: int = 1, key: bytes = b"") -> Entry:
    return Entry(b"%032x" % number, b"echo", key, b"digest" if key else b"", State.PENDING, 12.5)


def test_all_written_requests_are_there_after_a_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    waits, answered, closed, keyed, old = (entry(n, b"key" if n == 4 else b"") for n in range(1, 6))
    store.write([Accepted(one, (b"body", b"")) for one in (waits, answered, closed, keyed, old)], 12.5)
    store.write([Replied(answered, (b"reply",)), Closed(closed), Closed(keyed), Expired((old,))], 20.0)
    store.close()
    store = Store(tmp_path)
    found = {one.id: (one.state, store.body(one), one.key, one.age) for one in store.entries()}
    assert found == {
        waits.id: (State.PENDING, (b"body", b""), b"", 12.5),
        answered.id: (State.REPLIED, (b"reply",), b"", 12.5),
        keyed.id: (State.CLOSED, None, b"key", 12.5),
    }
    assert store.age() == 20.0
    store.close()


def test_a_reply_does_not_replace_an_earlier_reply_or_a_close(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = entry(key=b"key")
    store.write([Accepted(one, (b"body",)), Replied(one, (b"first",)), Replied(one, (b"second",))], 0.0)
    assert store.body(one) == (b"first",)
    store.write([Closed(one), Replied(one, (b"third",))], 0.0)
    assert store.body(one) is None
    store.close()


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreInUse):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, bytes_max=2_000_000)
    with pytest.raises(StoreFull):
        store.write([Accepted(entry(1), (b"x",)), Accepted(entry(2), (b"x" * 3_000_000,))], 0.0)
    assert store.entries() == []
    store.close()


def test_a_store_that_is_full_refuses_requests_takes_replies_and_recovers(tmp_path: Path) -> None:
    store = Store(tmp_path, bytes_max=2_000_000)
    entries = []
    while store.accepts():
        entries.append(entry(len(entries) + 1))
        store.write([Accepted(entries[-1], (b"x" * 30_000,))], 0.0)
    assert 50 <= len(entries) <= 66
    for one in entries:
        store.write([Replied(one, (b"y" * 32_000,))], 0.0)
    store.write([Closed(one) for one in entries[:20]], 0.0)
    assert store.accepts()
    store.close()


def test_a_foreign_or_newer_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / FILE).write_bytes(b"something else" * 100)
    with pytest.raises(StoreDamaged):
        Store(tmp_path / "one")
    Store(tmp_path / "two").close()
    db = apsw.Connection(str(tmp_path / "two" / FILE))
    db.pragma("user_version", 9)
    db.close()
    with pytest.raises(StoreNewer):
        Store(tmp_path / "two")


def test_a_changed_body_is_not_returned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = entry()
    store.write([Accepted(one, (b"body",))], 0.0)
    store._db.execute("update request set body = ?", (pack((b"body",))[:-1] + b"z",))
    assert store.body(one) is None
    store.close()


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_a_packed_body_is_unpacked_unchanged(frames: list[bytes]) -> None:
    assert unpack(pack(tuple(frames))) == tuple(frames)


@given(st.binary(max_size=60))
def test_invalid_bytes_give_no_body(packed: bytes) -> None:
    assert unpack(packed) is None


WRITER = """
import sys
from pathlib import Path
from pubsub.services.core.titanic.requests import Accepted, Entry, State
from pubsub.services.titanic.store import Store
store = Store(Path(sys.argv[1]))
for n in range(100_000):
    store.write([Accepted(Entry(b"%032x" % n, b"echo", b"", b"", State.PENDING, 0.0), (b"x" * 1_000,))], float(n))
    print(n, flush=True)
"""


def test_written_requests_survive_sigkill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(50)]
        writer.kill()
        said += [int(line) for line in writer.stdout.read().splitlines() if line]
    store = Store(tmp_path)
    found = [int(one.id, 16) for one in store.entries()]
    assert found[: len(said)] == said
    assert len(found) <= len(said) + 1
    store.close()


class FullStore:
    """A store whose disk is full as long as one says so."""

    path = "titanic.db"

    def __init__(self, sizes_max: int) -> None:
        self.sizes_max, self.reserved, self.written = sizes_max, True, 0

    def accepts(self) -> bool:
        return self.reserved

    def write(self, changes: list[object], age: float) -> None:
        if len(changes) > self.sizes_max + (0 if self.reserved else 1):
            raise StoreFull("titanic.db", "full")
        self.written += len(changes)

    def release_reserve(self) -> bool:
        had, self.reserved = self.reserved, False
        return had


def test_a_change_that_does_not_fit_blocks_no_other_and_the_reserve_is_for_replies() -> None:
    core = Titanic("tcp://broker", lambda: b"a" * 32, [entry(1), entry(2)])
    core.start(0.0)
    store = FullStore(sizes_max=0)
    core._changes += [Closed(entry(1)), Closed(entry(2))]
    Disk(core, store, SystemClock()).commit()  # type: ignore[arg-type]
    assert store.written == 2
    assert not store.reserved
