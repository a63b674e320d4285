"""`pubsub server check`: it recognizes intact parts, names damaged ones, and never writes."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub import embedded
from pubsub.base.database import begin_file
from pubsub.cli import main
from pubsub.errors import ConfigurationError, StoreDamaged, StoreInUse
from pubsub.protocol import Outcome
from pubsub.server.offline.check import check, compare
from pubsub.server.offline.found import Found, Verdict
from pubsub.server.offline.restore import accept_copy
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.storage.schema import FILE, FORMAT
from pubsub.server.storage.store import Store
from tests.server.stage import Stage

PAGE = 16_384
PUTS = 40


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Two topics with a subscriber each, forty batches of two records each."""
    stage = Stage(tmp_path / "s1")
    stage.subscribe("bob", "a", 5)
    stage.subscribe("eve", "b", 5)
    for number in range(PUTS):
        for topic in "ab":
            said = stage.put(topic, 1 + 2 * number, [b"%s%d:" % (topic.encode(), number) + b"x" * 8000, b"y"])
            assert said.outcome is Outcome.SUCCESS
    yield stage
    stage.close()


@pytest.fixture
def data(stage: Stage) -> Path:
    """The directory of that server, which was stopped."""
    stage.close()
    return stage.settings.directory


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def checked(data: Path) -> Found:
    """What is found; nothing was changed by looking."""
    before = files(data)
    found = check(data)
    assert files(data) == before
    return found


def change(path: Path, edit: Callable[[bytearray], object]) -> None:
    raw = bytearray(path.read_bytes())
    edit(raw)
    path.write_bytes(raw)


def flip(path: Path, before: bytes, watermark: int = 100) -> None:
    """One bit, so far behind these bytes."""

    def edit(raw: bytearray) -> None:
        raw[raw.index(before) + watermark] ^= 1

    change(path, edit)


def by_name(found: Found) -> dict[str, Any]:
    return {topic["topic"]: topic for topic in found.facts()["topics"]}


def test_an_intact_store_is_intact(data: Path) -> None:
    found = checked(data)
    assert found.verdict is Verdict.INTACT
    assert (found.server, len(found.store), found.problems.said, found.notes) == ("s1", 16, [], [])
    assert {name: topic["records"] for name, topic in by_name(found).items()} == {"a": 2 * PUTS, "b": 2 * PUTS}
    assert [(topic["quarantined"], topic["set_aside"]) for topic in found.facts()["topics"]] == [(False, False)] * 2
    assert list(found.sentences())[-1] == "the store is intact"


def test_the_log_of_a_killed_server_is_read_and_not_changed(stage: Stage, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(stage.settings.directory, copy)  # As a kill leaves it: nothing was copied back.
    assert (copy / f"{FILE}-wal").stat().st_size > 2 * PUTS * 8000
    (copy / f"{FILE}-shm").unlink()
    found = checked(copy)
    assert found.verdict is Verdict.INTACT
    assert {topic.records for topic in found.topics} == {2 * PUTS}


def test_a_flipped_bit_is_one_batch_by_name(data: Path) -> None:
    flip(data / FILE, b"a17:xxx")
    found = checked(data)
    assert found.verdict is Verdict.DAMAGED
    topics = by_name(found)
    assert topics["b"]["intact"]
    assert (topics["a"]["records"], topics["a"]["lost"]) == (2 * PUTS - 2, 2)
    (problem,) = topics["a"]["problems"]
    log = topics["a"]["log"]
    assert problem.startswith(f"records {log}.35 to {log}.36 are damaged")
    assert "checksum" in problem


def test_a_page_of_noise_loses_its_batches_and_the_rest_is_read(data: Path) -> None:
    page = (data / FILE).read_bytes().index(b"a17:xxx") // PAGE
    change(data / FILE, lambda raw: raw.__setitem__(slice(page * PAGE, (page + 1) * PAGE), bytes(range(256)) * 64))
    found = checked(data)
    assert found.verdict is Verdict.DAMAGED
    topics = by_name(found)
    assert topics["b"]["intact"] or topics["b"]["lost"]
    lost = sum(topic["lost"] for topic in topics.values())
    assert 2 <= lost < 20
    assert sum(topic["records"] for topic in topics.values()) == 4 * PUTS - lost
    assert found.problems


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.999])
def test_a_store_that_was_cut_short_is_broken(data: Path, kept: float) -> None:
    size = (data / FILE).stat().st_size
    os.truncate(data / FILE, int(size * kept))
    found = checked(data)
    assert found.verdict is Verdict.BROKEN
    assert f"cut short: {int(size * kept):,} bytes are left of {size:,}" in found.problems.said[0]


def test_an_empty_file_counts_as_emptied_and_a_server_refuses_it(data: Path) -> None:
    (data / FILE).write_bytes(b"")
    found = checked(data)
    assert found.verdict is Verdict.BROKEN
    assert found.problems.said == [f"{FILE} is damaged: it is empty; put a backup back, or delete it to begin anew"]
    with pytest.raises(StoreDamaged, match="it is empty"):
        Store(data)
    assert (data / FILE).read_bytes() == b""
    (data / FILE).unlink()
    Store(data).close()


def test_a_store_that_was_begun_and_not_described_is_begun_by_a_server(data: Path) -> None:
    (data / FILE).unlink()
    begin_file(data / FILE)  # The process died then.
    found = checked(data)
    assert found.verdict is Verdict.DAMAGED
    assert "a server would make a new store here" in found.problems.said[0]
    Store(data).close()
    assert checked(data).verdict is Verdict.INTACT


@pytest.mark.parametrize("raw", [b"s", b"short", b"noise" * 10_000])
def test_a_file_that_is_no_database_is_broken(data: Path, raw: bytes) -> None:
    (data / FILE).write_bytes(raw)
    found = checked(data)
    assert found.verdict is Verdict.BROKEN
    assert found.facts()["topics"] == []


@pytest.mark.parametrize("page", [0, 1])
def test_noise_at_the_begin_of_the_store_is_reported_as_broken(data: Path, page: int) -> None:
    noise, at = bytes(range(1, 256)) * 60, page * PAGE or 100  # SQLite's first hundred bytes still say that it is one.
    change(data / FILE, lambda raw: raw.__setitem__(slice(at, at + len(noise)), noise))
    found = checked(data)
    assert found.verdict in {Verdict.BROKEN, Verdict.DAMAGED}
    assert found.problems or any(topic.problems for topic in found.topics)


def test_another_database_is_not_a_store(tmp_path: Path) -> None:
    tmp_path.joinpath("s1").mkdir()
    db = apsw.Connection(str(tmp_path / "s1" / FILE))
    db.execute("create table x (y)")
    db.close()
    found = checked(tmp_path / "s1")
    assert found.verdict is Verdict.BROKEN
    assert found.problems.said == ["it is a database, but not a server's store"]


def test_a_store_of_a_newer_release_is_reported_as_newer(data: Path) -> None:
    db = apsw.Connection(str(data / FILE))
    db.pragma("user_version", FORMAT + 1)
    db.close()
    found = checked(data)
    assert found.verdict is Verdict.NEWER
    assert f"format {FORMAT + 1}" in found.problems.said[0]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no server's store"):
        check(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_running_server_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with embedded(tmp_path) as service, service.client("c") as client:
        client.put("t", b"x")
        (store,) = {path.parent for path in tmp_path.rglob(FILE)}
        with pytest.raises(StoreInUse):
            check(store)
        assert main(["server", "check", "--dir", str(store)]) == 9
    assert "in use" in capsys.readouterr().err
    assert main(["server", "check", "--dir", str(store)]) == 0


# The write-ahead log


def frames(raw: bytearray) -> list[int]:
    """Where the frames of a log begin that end a commit."""
    size = struct.unpack_from(">I", raw, 8)[0] + 24
    return [at for at in range(32, len(raw) - size + 1, size) if struct.unpack_from(">I", raw, at + 4)[0]]


@pytest.fixture
def logged(stage: Stage, tmp_path: Path) -> Path:
    """A copy of the running server's directory: a part of what it holds is in the log only."""
    shutil.copytree(stage.settings.directory, tmp_path / "copy")
    (tmp_path / "copy" / f"{FILE}-shm").unlink()
    return tmp_path / "copy"


def test_a_flipped_bit_in_the_log_loses_the_following_commits(logged: Path) -> None:
    log = logged / f"{FILE}-wal"
    commits = frames(bytearray(log.read_bytes()))
    change(log, lambda raw: raw.__setitem__(commits[-10] + 500, raw[commits[-10] + 500] ^ 1))
    found = checked(logged)
    assert found.verdict is Verdict.BROKEN
    before = files(logged)
    with pytest.raises(StoreDamaged, match=r"10 commits at the end of server\.db-wal cannot be read"):
        Store(logged)
    assert files(logged)[log.name] == before[log.name]
    assert f"the 10 commits after its first {len(commits) - 10:,} are lost" in found.problems.said[0]


@pytest.mark.parametrize("place", [0, 9, 17, 25, 30])
def test_a_flipped_bit_at_the_begin_of_the_log_loses_all_of_the_log(logged: Path, place: int) -> None:
    log = logged / f"{FILE}-wal"
    change(log, lambda raw: raw.__setitem__(place, raw[place] ^ 4))
    raw = log.read_bytes()
    found = checked(logged)
    assert found.verdict is Verdict.BROKEN
    assert "damaged at its start" in found.problems.said[0]
    with pytest.raises(StoreDamaged, match=r"server\.db-wal cannot be read"):
        Store(logged)
    assert log.read_bytes() == raw


def test_an_incomplete_last_commit_counts_as_a_power_cut(logged: Path) -> None:
    log = logged / f"{FILE}-wal"
    commits = frames(bytearray(log.read_bytes()))
    change(log, lambda raw: raw.__setitem__(commits[-1] + 500, raw[commits[-1] + 500] ^ 1))
    found = checked(logged)
    assert found.verdict is Verdict.INTACT
    assert "power cut" in found.notes[0]
    Store(logged).close()


# Older copies


def report(found: Found, **changed: int) -> dict[str, Any]:
    server = {"store": found.store, "incarnation": found.incarnation, "change": found.change} | changed
    return {"proxy": "p1", "servers": [{"store": "f" * 16, "incarnation": 2**62, "change": 2**62}, server]}


@pytest.mark.parametrize("field", ["incarnation", "change"])
def test_a_proxy_that_knows_a_later_state_reveals_an_older_copy(data: Path, field: str) -> None:
    found = checked(data)
    compare(found, [report(found, **{field: getattr(found, field) + 1})])
    assert found.verdict is Verdict.STALE
    assert "proxy p1 knows it" in found.stale
    assert "pubsub server restored" in list(found.sentences())[-1]


def test_a_proxy_without_a_later_state_finds_nothing(data: Path) -> None:
    found = checked(data)
    compare(found, [report(found)])
    assert found.verdict is Verdict.INTACT
    assert found.notes == ["proxy p1 knows no later state of this store"]


@pytest.mark.parametrize(
    ("in_sync", "said"),
    [
        (("a" * 16, "b" * 16), "proxy p1: this member is in sync"),
        (("b" * 16,), f"proxy p1: this member is not in sync; member {'b' * 16} has all data"),
        ((), "proxy p1 knows of no register of this store"),
    ],
)
def test_the_register_shows_whether_a_member_has_everything(data: Path, in_sync: tuple[str, ...], said: str) -> None:
    LocalFile(data).make("a" * 16, registered=True)
    found = checked(data)
    register = {"store": found.store, "votes": True, "in_sync": list(in_sync)}
    heard = report(found, change=found.change + 9) | {"registers": [register] if in_sync else []}
    compare(found, [heard])
    assert found.verdict is Verdict.INTACT
    assert found.facts()["member"] == "a" * 16
    assert found.notes == [f"it is member {'a' * 16} of two: its newest changes may be only in its stream file", said]


def test_a_copy_that_a_server_knew_to_be_old_is_reported_as_stale(stage: Stage) -> None:
    stage.core.quarantine.hold_all_back("store_is_at_change_3_but_was_at_9_before", 9)
    stage.loop()
    stage.close()
    found = checked(stage.settings.directory)
    assert found.verdict is Verdict.STALE
    assert found.stale == "store is at change 3 but was at 9 before"


def test_an_accepted_copy_is_intact(data: Path) -> None:
    accept_copy(data)
    found = checked(data)
    assert found.verdict is Verdict.INTACT
    assert {topic.records for topic in found.topics} == {2 * PUTS}


# The command


def test_the_command_prints_sentences_or_json_and_sets_its_exit_code(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "check", "--dir", str(data)]) == 0
    assert "topic a is intact: 80 records\n" in capsys.readouterr().out
    flip(data / FILE, b"a17:xxx")
    assert main(["server", "check", "--dir", str(data)]) == 16
    out = capsys.readouterr().out
    assert "topic a is damaged: 78 records can be read, 2 are lost\n" in out
    assert "topic b is intact: 80 records\n" in out
    assert main(["server", "check", "--dir", str(data), "--json"]) == 16
    facts = json.loads(capsys.readouterr().out)
    assert (facts["verdict"], [topic["intact"] for topic in facts["topics"]]) == ("damaged", [False, True])
    os.truncate(data / FILE, PAGE * 5)
    assert main(["server", "check", "--dir", str(data)]) == 17
    (data / FILE).unlink()
    assert main(["server", "check", "--dir", str(data)]) == 8
    assert capsys.readouterr().err.count("\n") == 1
