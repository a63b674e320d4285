"""Servers with different defaults of topics' settings, as a proxy knows them (docs/explanation/defaults.md, Y1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pubsub.protocol import Periodic
from pubsub.proxy.remembered import Remembered, RouteChanges, StoreRow
from pubsub.proxy.routes_file import RoutesStore
from tests.proxy.stage import PROXIES, Stage, log_id
from tests.proxy.test_operate import report

ONE, OTHER = "1" * 16, "2" * 16


def announce(stage: Stage, server: str, defaults: str, change: int = 1, incarnation: int = 1, **more: Any) -> None:
    told = Periodic(server, log_id(server), incarnation, change, f"tcp://{server}", PROXIES, 0, 0, {})
    stage.from_server(server.encode(), b"", replace(told, defaults=defaults, **more))
    stage.said()


def test_an_answer_names_each_server_with_other_defaults() -> None:
    stage = Stage()
    for server, defaults in (("s1", ONE), ("s2", ONE), ("s3", OTHER), ("s4", "")):
        announce(stage, server, defaults)
    assert stage.whole("s1", "t").defaults == "s3,s4"
    assert stage.whole("s4", "t").defaults == "s1,s2,s3"
    announce(stage, "s3", ONE, incarnation=2)
    announce(stage, "s4", ONE, incarnation=2)
    assert stage.whole("s1", "t").defaults == ""


def test_servers_without_defaults_agree() -> None:
    stage = Stage()
    for server in ("s1", "s2"):
        announce(stage, server, "")
    assert stage.whole("s1", "t").defaults == ""
    assert not any("defaults" in line for line in report(stage)["warnings"])


def test_an_announcement_of_changes_does_not_tell_the_defaults_again() -> None:
    stage = Stage()
    for server in ("s1", "s2"):
        announce(stage, server, ONE)
    announce(stage, "s2", "", change=2, partial=1, previous=1)
    assert stage.whole("s1", "t").defaults == ""


def test_a_server_that_is_silent_counts_with_its_last_defaults() -> None:
    stage = Stage()
    announce(stage, "s1", ONE)
    announce(stage, "s2", OTHER)
    stage.sleep(60)
    announce(stage, "s1", ONE)
    assert stage.whole("s1", "t").defaults == "s2"
    assert any("servers s1 and s2 have different defaults" in line for line in report(stage)["warnings"])


def test_the_defaults_are_remembered_over_a_restart(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    row = StoreRow(log_id("s2"), "s2", 3, 9, "tcp://s2", defaults=OTHER)
    changes = RouteChanges()
    changes.stores = {row.store: row}
    store.write(changes)
    store.close()
    store = RoutesStore(tmp_path)
    remembered = store.load()
    assert remembered.stores == [row]
    stage = Stage(remembered=Remembered(remembered.stores, []))
    announce(stage, "s1", ONE)
    assert stage.whole("s1", "t").defaults == "s2"
    changes.stores = {row.store: replace(row, defaults="")}
    store.write(changes)
    assert store.load().stores == [replace(row, defaults="")]
    store.close()
