"""Reading a client's state while another process has it open."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from pubsub.client.core import changes as c
from pubsub.client.storage import copies
from pubsub.client.storage.copies import copied
from pubsub.client.storage.store import Store
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import StorageError, StoreDamaged, StoreInUse
from tests.cli.standbys import pubsub


def dead_letter(store: Store, number: int) -> None:
    buried = c.DeadLettered("t", f"l.{number}", f"l.{number}", "p", number, 1, b"body %d" % number, "refused", 3, 5.0)
    store.commit([buried])


def _hold(path: str, orders: object, busy: bool) -> None:
    """Run a process that has the file open and prints its number of dead letters; `busy`: it writes on."""
    store = Store(Path(path))
    for number in range(3):
        dead_letter(store, number)
    orders.send(3)  # type: ignore[attr-defined]
    number = 3
    while not orders.poll(0 if busy else 30):  # type: ignore[attr-defined]
        dead_letter(store, number)
        number += 1
        if number % 2_000 == 0:
            store._checkpoint()
    os._exit(0)


@contextlib.contextmanager
def held(path: Path, *, busy: bool = False) -> Iterator[object]:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_hold, args=(str(path), theirs, busy), daemon=True)
    process.start()
    try:
        assert ours.poll(30)
        ours.recv()
        yield ours
    finally:
        with contextlib.suppress(OSError):
            ours.send("end")
        process.join(30)
        assert process.exitcode == 0


def test_a_state_in_use_is_read_from_a_copy_and_stays_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with held(path):
        before = sorted((one.name, one.stat().st_size) for one in tmp_path.iterdir())
        with pytest.raises(StoreInUse):
            Store(path)
        with copied(path) as found:
            assert [(row[1], row[6]) for row in found.dead_letters(None)] == [
                (f"l.{number}", b"body %d" % number) for number in range(3)
            ]
            assert found.dead_letters("other") == []
        assert sorted((one.name, one.stat().st_size) for one in tmp_path.iterdir()) == before


def test_a_copy_of_a_busy_state_is_the_state_after_some_commit(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with held(path, busy=True):
        for _ in range(3):
            with copied(path) as found:
                counters = [row[4] for row in found.dead_letters(None)]
            assert counters == list(range(len(counters)))
            assert len(counters) >= 3


def test_a_file_in_use_by_the_same_process_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.db")
    with pytest.raises(StoreInUse), copied(tmp_path / "c.db"):
        pass
    dead_letter(store, 1)
    store.close()


def test_a_constantly_changing_file_is_given_up_and_a_damaged_one_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "SECONDS", 0.2)
    path = tmp_path / "c.db"
    Store(path).close()
    copy = shutil.copyfile

    def touched(source: Path, target: Path) -> None:
        copy(source, target)
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))

    monkeypatch.setattr(shutil, "copyfile", touched)
    with pytest.raises(StorageError, match="is written to all the time"), copied(path):
        pass
    monkeypatch.setattr(shutil, "copyfile", copy)
    path.write_bytes(b"x" * 100_000)
    os.utime(path, (1, 1))
    with pytest.raises(StoreDamaged), copied(path):
        pass


def test_dead_letters_of_a_running_client_are_listed_with_their_bodies(
    pubsub_cluster: Embedded, tmp_path: Path
) -> None:
    def refuse(message: object, transaction: object) -> None:
        raise ValueError("cannot be handled")

    client = pubsub_cluster.client("svc", directory=tmp_path, settings=ClientSettings(handler_attempts=1))
    client.subscribe("jobs")
    client.put("jobs", b"a bad one")
    with contextlib.suppress(ValueError):
        client.process("jobs", refuse, timeout=5)
    listed = pubsub("client", "svc", "dead-letters", "--dir", tmp_path, "--json")
    assert listed.returncode == 0, listed.stderr
    (letter,) = json.loads(listed.stdout)
    assert (letter["topic"], letter["body"], letter["attempts"]) == ("jobs", "a bad one", 1)
    shown = pubsub("client", "svc", "dead-letters", "jobs", "--dir", tmp_path)
    assert "a bad" in shown.stdout
    client.put("jobs", b"it goes on")
    assert client.get("jobs", timeout=5) is not None
