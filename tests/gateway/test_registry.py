from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.errors import StorageError, StoreDamaged, StoreInUse
from pubsub.gateway import registry as module
from pubsub.gateway.problems import Problem
from pubsub.gateway.registry import ENDED, Registry, Subscriber, Webhook

PLAIN = Subscriber("u", "t", "s")
HOOK = Subscriber("u", "t", "w", Webhook("http://x/", ("whsec_a", "whsec_b")))


def test_registered_subscribers_survive_a_restart(tmp_path: Path) -> None:
    first = Registry(tmp_path / "new" / "place")
    first.put(PLAIN)
    first.put(HOOK)
    ended = first.end(HOOK, ENDED, "gone")
    first.close()
    second = Registry(tmp_path / "new" / "place")
    assert second.all() == [PLAIN, ended]
    assert second.webhooks("u", "t") == [ended]
    assert second.find("u", "t", "s") == PLAIN
    second.remove(PLAIN)
    second.close()
    third = Registry(tmp_path / "new" / "place")
    assert third.all() == [ended]
    third.close()


def test_a_directory_belongs_to_one_gateway(tmp_path: Path) -> None:
    first = Registry(tmp_path)
    with pytest.raises(StoreInUse):
        Registry(tmp_path)
    first.close()
    Registry(tmp_path).close()


def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Registry(tmp_path / "file" / "x")


def test_the_number_of_subscribers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBSCRIBERS_MAX", 1)
    registry = Registry(tmp_path)
    registry.put(PLAIN)
    registry.put(PLAIN)
    with pytest.raises(Problem):
        registry.put(HOOK)
    registry.close()


def test_an_emptied_registry_is_refused_and_a_new_one_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    Registry(tmp_path).close()
    path = tmp_path / "gateway.db"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"")
    with pytest.raises(StoreDamaged, match="it is empty"):
        Registry(tmp_path)
