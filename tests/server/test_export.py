"""A store as a tree of files and back: nothing is lost, nothing is doubled, nothing is half done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from pubsub.errors import CallerError, ConfigurationError, StoreInUse
from pubsub.protocol import Outcome, Records, encode_headers
from pubsub.server.commands import main
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.offline.metadata import read_metadata
from pubsub.server.offline.restore import accept_copy
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log
from tests.server.stage import STORE, Stage, bodies, put


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "old")
    yield stage
    stage.close()


def moved(stage: Stage, tmp_path: Path, change: Callable[[Path], object] = lambda root: None) -> Stage:
    """The same server's topics, exported and imported into a new store."""
    stage.close()
    export_tree(stage.settings.directory, tmp_path / "tree")
    change(tmp_path / "tree" / "server_s1")
    import_tree(tmp_path / "new", tmp_path / "tree")
    stage.settings = Stage.settings_of(tmp_path / "new")
    stage.open()
    return stage


def everything(directory: Path) -> list[object]:
    db = apsw.Connection(str(directory / FILE))
    tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table' order by name")]
    rows: list[object] = [db.execute(f"select * from {table} order by 1, 2").fetchall() for table in tables]
    db.close()
    return rows


def test_the_exported_tree_is_that_of_the_paper(stage: Stage, tmp_path: Path) -> None:
    log = stage.subscribe("bob", "zeromq/pyzmq", 5).log
    stage.unsubscribe("carol", "zeromq/pyzmq", 6)
    stage.put("zeromq/pyzmq", 100, [b"a\r\n\0", b""])
    stage.put("..", 7)
    stage.get("bob", "zeromq/pyzmq", (log, 1), 5, epoch=9)
    stage.sleep(0.3)
    stage.close()
    assert export_tree(tmp_path / "old", tmp_path / "tree") == 3
    root = tmp_path / "tree" / "server_s1"
    assert sorted(path.name for path in root.iterdir()) == ["%2E%2E", "zeromq%2Fpyzmq"]
    topic = root / "zeromq%2Fpyzmq"
    assert (topic / "messages" / f"{log}.1").read_bytes() == b"a\r\n\0"
    assert (topic / "messages" / f"{log}.2").read_bytes() == b""
    assert (topic / "publishers").read_text() == f"alice/{STORE} 101\n"
    bob, carol = (topic / "subscribers").read_text().splitlines()
    assert bob.split(" ")[:4] == ["bob", "number=5", "opening=9", "on=1"]
    assert bob.endswith(f" position={log}.1 waiting={log}.2-2")
    assert carol.endswith(f" position={log}.0 waiting=")
    (order,) = (topic / "order").read_text().splitlines()
    assert order.startswith(f"{log}.1 2 alice/{STORE} 100 17")
    stage.open()


def test_everything_survives_an_export_and_an_import(stage: Stage, tmp_path: Path) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 6)
    stage.unsubscribe("dave", "t", 7)
    stage.put("t", 100, [b"a", b"b"])
    stage.put("t", 1, [b"c"], sender="erin")
    stage.put("t", 102, [bytes(range(256)) * 100])
    stage.get("bob", "t", (log, 2), 5, epoch=8)
    stage.subscribe("bob", "empty", 5)
    stage.sleep(0.3)
    stage = moved(stage, tmp_path)
    assert stage.core.state.topics["t"].open.id != log
    assert stage.get("bob", "t", (log, 2), 5).outcome is Outcome.SUPERSEDED  # its opening is 8
    assert bodies(stage.get("bob", "t", (log, 2), 5, epoch=8)) == [b"c", bytes(range(256)) * 100]
    got = stage.get("carol", "t", None, 6)
    assert bodies(got) == [b"a", b"b", b"c", bytes(range(256)) * 100]
    assert stage.put("t", 100, [b"a", b"b"]).outcome is Outcome.DUPLICATE
    assert stage.put("t", 1, [b"c"], sender="erin").outcome is Outcome.DUPLICATE
    assert stage.put("t", 103, [b"new"], previous=102).outcome is Outcome.SUCCESS
    assert bodies(stage.get("carol", "t", got.message, 6)) == [b"new"]
    assert stage.subscribe("dave", "t", 6).outcome is Outcome.SUPERSEDED
    assert stage.get("bob", "empty", None, 5).outcome is Outcome.EMPTY


def test_an_imported_topic_waits_until_its_proxies_know_of_it(stage: Stage, tmp_path: Path) -> None:
    stage.put("t", 100, [b"a"])
    stage.hears = False
    stage = moved(stage, tmp_path)
    assert list(stage.core.state.unconfirmed) == ["t"]
    callback = stage.say(put("t", 100, [b"a"]))
    stage.loop()
    assert stage.answer(callback) is None


def test_keys_survive_an_export_and_an_import(stage: Stage, tmp_path: Path) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a", b"b"], keys=[b"", b"k/\0"])
    stage.put("t", 3, [b"c"], previous=2)
    stage.sleep(0.3)
    stage = moved(stage, tmp_path)
    records = Records(bytes(stage.get("bob", "t", None, 5).body))
    assert list(records.bodies()) == [b"a", b"b", b"c"]
    assert [list(run.keys) for run in records.runs] == [[b"", b"k/\0"], [b""]]


def test_headers_survive_an_export_and_an_import_and_are_readable_in_the_tree(stage: Stage, tmp_path: Path) -> None:
    stage.subscribe("bob", "t", 5)
    headers = [encode_headers({"trace": b"1/\0", "empty": b""}), b""]
    stage.put("t", 1, [b"a", b"b"], keys=[b"", b"k"], headers=headers)
    stage.put("t", 3, [b"c"], previous=2)
    stage.sleep(0.3)
    stage = moved(stage, tmp_path)
    records = Records(bytes(stage.get("bob", "t", None, 5).body))
    assert [list(run.headers) for run in records.runs] == [headers, [b""]]
    assert [list(run.keys) for run in records.runs] == [[b"", b"k"], [b""]]
    (written,) = tmp_path.rglob("headers/*")
    assert written.read_text() == "trace=1%2F%00\nempty=\n"
    written.write_text("a b=1\n")
    with pytest.raises(ConfigurationError, match="is not a valid headers file"):
        read_metadata(written.parent.parent, [written.name])


def test_an_exported_merged_topic_gives_each_subscriber_its_messages(stage: Stage, tmp_path: Path) -> None:
    """Two logs; of the second, what alice put up to 11 is held by the first already."""
    one = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    stage.put("t", 10, [b"a10", b"a11"])
    for counter, body in ((10, [b"copy10", b"copy11"]), (12, [b"a12", b"a13"]), (14, [b"a14"])):
        stage.put("u", counter, body)
    topic, other = stage.core.state.topics["t"], stage.core.state.topics["u"]
    two = other.open.id
    # As a join leaves it: bob from the first log, carol from the second, which she had begun.
    log = stage.core.state.new_log_number()
    fresh = Log(log, "f" * 16)
    topic.logs |= {two: other.open, fresh.id: fresh}
    topic.watermarks[1] = {1: 11}
    topic.history = (Span(one, 1, 3), Span(two, 1, 6, watermark=1), Span(fresh.id, 1))
    topic.subscriptions["bob"].cursor.backlog = (Span(one, 2, 3), Span(two, 1, 6, watermark=1), Span(fresh.id, 1))
    topic.subscriptions["carol"].cursor.backlog = (Span(two, 2, 6), Span(fresh.id, 1))
    topic.open = fresh
    del stage.core.state.topics["u"]
    db = stage.store.db
    db.execute("insert into log values (?, ?, ?, 'held', 1, 1, 0, '')", (log, fresh.id, topic.number))
    db.execute("update log set topic = ? where name = ?", (topic.number, two))
    db.execute("delete from topic where name = 'u'")
    db.execute("insert into watermark values (1, 1, 11)")
    stage.core.state.uncommitted.topic("t")
    for who in ("bob", "carol"):
        stage.core.state.uncommitted.subscription("t", who)
    stage.put("t", 20, [b"a20"])
    expected = {who: bodies(stage.get(who, "t", None, 5)) for who in ("bob", "carol")}
    assert expected["bob"] == [b"a11", b"a12", b"a13", b"a14", b"a20"]
    assert expected["carol"] == [b"copy11", b"a12", b"a13", b"a14", b"a20"]
    stage = moved(stage, tmp_path)
    order = (tmp_path / "tree" / "server_s1" / "t" / "order").read_text()
    assert order.count("spare") == 1
    assert {who: bodies(stage.get(who, "t", None, 5)) for who in ("bob", "carol")} == expected
    topic = stage.core.state.topics["t"]
    history = [
        stage.core.state.reader.batches(topic.open.number, span.low, span.high or topic.open.end)
        for span in topic.history
    ]
    assert sum(batch.count for batches in history for batch in batches) == 6  # the copies are not on it
    stage.put("t", 21, [b"a21"], previous=20)
    assert bodies(stage.get("bob", "t", None, 5))[-1] == b"a21"


def test_a_loss_stays_a_loss_after_an_import(stage: Stage, tmp_path: Path) -> None:
    stage.subscribe("bob", "t", 5)
    for counter in range(1, 8):
        stage.put("t", counter, [b"%d" % counter])
    number = stage.core.state.topics["t"].open.number << 40
    stage.store.db.execute("update batch set body = zeroblob(20) where key = ?", (number | 2,))
    stage.store.db.execute("update batch set publisher = 99 where key = ?", (number | 3,))
    stage.store.db.execute("delete from batch where key in (?, ?)", (number | 5, number | 6))
    stage = moved(stage, tmp_path)
    taken, last, lost = [], None, []
    for _ in range(10):
        answer = stage.get("bob", "t", last, 5)
        if answer.outcome is Outcome.EMPTY:
            break
        assert answer.message is not None
        last = answer.message
        if answer.outcome is Outcome.LOST:
            assert answer.first is not None
            lost += range(answer.first[1], last[1] + 1)
        else:
            taken += bodies(answer)
    assert taken == [b"1", b"4", b"7"]
    assert lost == [2, 3, 5, 6]


def test_a_restored_store_survives_an_export_and_an_import(stage: Stage, tmp_path: Path) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("eve", "t", 5)
    stage.put("t", 1, [b"1"])
    stage.sleep(0.3)
    stage.close()
    accept_copy(stage.settings.directory)
    stage.open()
    # Eve had received more than the copy has, before it was put back.
    stage.get("eve", "t", (log, 7), 5)
    stage.put("t", 3, [b"3"], previous=1)
    stage.sleep(0.3)
    stage = moved(stage, tmp_path)
    for who, place, expected in (("bob", None, [[b"1"], 1, [b"3"]]), ("eve", (log, 7), [1, [b"3"]])):
        told: list[object] = []
        answer = stage.get(who, "t", place, 5)
        while answer.outcome is not Outcome.EMPTY:
            assert answer.message is not None
            lost = answer.message[1] - answer.first[1] + 1 if answer.first else 0
            told.append(lost if answer.outcome is Outcome.LOST else bodies(answer))
            answer = stage.get(who, "t", answer.message, 5)
        assert told == expected, who


@pytest.mark.parametrize("count", [2, 40_000])
def test_losses_at_the_beginning_or_larger_than_a_batch_are_reported(stage: Stage, tmp_path: Path, count: int) -> None:
    stage.subscribe("bob", "t", 5)
    for counter in (1, count + 1, 2 * count + 1):
        stage.put("t", counter, [b""] * count, previous=counter - 1)
    stage.put("t", 3 * count + 1, [b"kept"], previous=3 * count)
    stage.store.db.execute("delete from batch where count = ?", (count,))
    stage = moved(stage, tmp_path)
    lost: list[int] = []
    answer = stage.get("bob", "t", None, 5)
    while answer.outcome is Outcome.LOST:
        assert answer.first is not None
        assert answer.message is not None
        lost += range(answer.first[1], answer.message[1] + 1)
        answer = stage.get("bob", "t", answer.message, 5)
    assert lost == list(range(1, 3 * count + 1))
    assert bodies(answer) == [b"kept"]


def test_an_export_changes_nothing_and_needs_a_stopped_server(stage: Stage, tmp_path: Path) -> None:
    stage.put("t", 1)
    with pytest.raises(StoreInUse):
        export_tree(tmp_path / "old", tmp_path / "tree")
    (tmp_path / "server_x").mkdir()
    with pytest.raises(StoreInUse):
        import_tree(tmp_path / "old", tmp_path)
    stage.close()
    before = everything(tmp_path / "old")
    export_tree(tmp_path / "old", tmp_path / "tree")
    assert everything(tmp_path / "old") == before
    with pytest.raises(CallerError, match="exists already"):
        export_tree(tmp_path / "old", tmp_path / "tree")
    with pytest.raises(ConfigurationError, match="holds no server's store"):
        export_tree(tmp_path / "nothing", tmp_path / "tree")
    assert not (tmp_path / "nothing").exists()
    stage.open()


def test_a_topic_that_is_held_is_refused_and_nothing_is_imported(stage: Stage, tmp_path: Path) -> None:
    for topic in ("a", "b", "c"):
        stage.put(topic, 1)
    stage.close()
    export_tree(tmp_path / "old", tmp_path / "tree")
    shutil.rmtree(tmp_path / "tree" / "server_s1" / "b")
    store = Store(tmp_path / "new")
    store.close()
    import_tree(tmp_path / "new", tmp_path / "tree" / "server_s1")
    before = everything(tmp_path / "new")
    shutil.rmtree(tmp_path / "tree")
    export_tree(tmp_path / "old", tmp_path / "tree")
    with pytest.raises(ConfigurationError, match=r"topic a is already in .*; nothing was imported"):
        import_tree(tmp_path / "new", tmp_path / "tree")
    assert everything(tmp_path / "new") == before
    stage.open()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("order", "x 1 a/0123456789abcdef 1 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 0 a/0123456789abcdef 1 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 70000 a/0123456789abcdef 1 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 9223372036854775807 - 0 1 lost\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 1 a/0123456789abcdef 9223372036854775807 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 1 a/0123456789abcdef 1 1 sparse\n"),
        ("order", "aaaaaaaaaaaaaaaa.9 1 a/0123456789abcdef 1 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 1 ../x 1 1\n"),
        ("order", "aaaaaaaaaaaaaaaa.1 1 a/0123456789abcdef 0 1\n"),
        ("order", "\xff\n"),
        ("order", "\n"),
        ("publishers", "alice 1\n"),
        ("publishers", "alice/0123456789abcdef -1\n"),
        ("publishers", "alice/0123456789abcdef\n"),
        ("subscribers", "bob number=1\n"),
        ("subscribers", "../x number=1 opening=1 on=1 since=0 position=-1 waiting=\n"),
        ("subscribers", "bob number=1 opening=1 on=1 since=0 position=x waiting=\n"),
        ("subscribers", "bob number=1 opening=1 on=1 since=0 position=-1 waiting=5-7\n"),
        ("subscribers", "bob number=1 opening=1 on=yes since=0 position=-1 waiting=\n"),
    ],
)
def test_an_unreadable_tree_is_refused_completely(stage: Stage, tmp_path: Path, file: str, text: str) -> None:
    stage.put("a", 1)
    stage.put("t", 1)
    stage.close()
    export_tree(tmp_path / "old", tmp_path / "tree")
    (tmp_path / "tree" / "server_s1" / "t" / file).write_text(text, encoding="latin-1")
    with pytest.raises(ConfigurationError, match=file if "9 1 a" not in text else "messages"):
        import_tree(tmp_path / "new", tmp_path / "tree")
    store = Store(tmp_path / "new")
    assert list(store.topics()) == []
    assert store.db.execute("select count(*) from batch").fetchone() == (0,)
    store.close()
    stage.open()


def test_folders_without_a_tree_are_refused(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="0 folders"):
        import_tree(tmp_path / "new", tmp_path)
    (tmp_path / "server_x" / "%20").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="not named after a topic"):
        import_tree(tmp_path / "new", tmp_path)


def test_the_commands_export_and_import(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage.put("t", 1, [b"a", b"b"])
    stage.close()
    tree = str(tmp_path / "tree")
    assert main(["export", tree, "--dir", str(tmp_path / "old"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 2
    assert main(["import", tree, "--dir", str(tmp_path / "new")]) == 0
    assert main(["import", tree, "--dir", str(tmp_path / "new")]) != 0
    assert "topic t is already in" in capsys.readouterr().err
    stage.open()


def test_nothing_is_imported_into_one_member_of_two(tmp_path: Path) -> None:
    (tmp_path / "tree" / "server_s1").mkdir(parents=True)
    Store(tmp_path / "data").close()
    LocalFile(tmp_path / "data").make("a" * 16, registered=True)
    with pytest.raises(ConfigurationError, match="the other one would lack the import"):
        import_tree(tmp_path / "data", tmp_path / "tree")
