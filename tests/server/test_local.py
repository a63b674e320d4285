"""The local facts of a store on this machine: its incarnations rise, and its port is kept if there is space."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.errors import StoreFull
from pubsub.server.storage.local import begin_incarnation, keep_port, kept_port
from pubsub.server.storage.store import Store


def test_each_start_has_a_higher_incarnation_with_any_clock(tmp_path: Path) -> None:
    incarnations = []
    for wall in (1000, 5, 2**40):
        store = Store(tmp_path)
        incarnations.append(begin_incarnation(store, wall, "s1"))
        assert store.server_id == "s1"
        store.close()
    assert incarnations == [1000, 1001, 2**40]


def test_a_port_is_remembered(tmp_path: Path) -> None:
    for port in (None, 4711, 4712):
        store = Store(tmp_path)
        assert kept_port(store) == (None if port is None else port - 1 if port > 4711 else None)
        if port is not None:
            keep_port(store, port)
        store.close()


def test_a_full_disk_does_not_prevent_the_start_on_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def full(self: Store) -> None:
        raise StoreFull(str(self.path), "no space, says the test")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", full)
        keep_port(store, 4711)
    assert kept_port(store) is None
    keep_port(store, 4712)
    assert kept_port(store) == 4712
    store.close()
