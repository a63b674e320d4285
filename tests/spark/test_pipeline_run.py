"""`pubsub pipeline run FILE.toml` on real Spark: the examples, what happens to other messages, restarts and metrics."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pubsub.cli import main
from pubsub.spark import pipelines, supervising
from pubsub.spark.pipelines import PipelineFailed
from tests.examples.programs import EXAMPLES
from tests.spark.broker import Broker
from tests.spark.test_pipelines import Run, numbers, run  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark

PIPELINES = EXAMPLES / "pipelines"
HOURS = ("2024-02-01T00:30:00Z", "2024-02-01T00:45:00Z", "2024-02-01T01:10:00Z", "2024-02-01T09:00:00Z")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def order(number: int, **more: Any) -> bytes:
    row = {"id": number, "country": "de", "total": "9.50", "at": HOURS[number % 4]}
    return json.dumps(row | {"lines": [{"article": "x", "number": 1}]} | more).encode()


OTHERS = [b"no json", b"", b"\xff\xfe", b"[]", b'{"id": "x"}', b'{"id": 7}', b"[" + order(1) + b"]"]
"""Messages without the fields of examples/pipelines/orders.toml."""


def test_orders_become_rows_of_a_delta_table_and_other_messages_go_to_their_topic(
    broker: Broker,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, written = pipelines.source, []

    def sourced(*given: Any) -> Any:
        written.append(given[-1])
        return source(*given)

    monkeypatch.setattr(pipelines, "source", sourced)
    broker.put("orders", [*map(order, range(4)), *OTHERS, order(4, total=-1), order(5, country=None)])
    facts = run("run", str(PIPELINES / "orders.toml"), "--once")
    assert (facts["messages"], facts["unparsed"]) == (6 + len(OTHERS), len(OTHERS))
    lake = str(tmp_path / "lake" / "orders")
    assert written == [(lake, f"{lake}/_checkpoint"), (f"{lake}/_checkpoint",)], "synced before it is confirmed"
    assert Counter(broker.records("orders.unparsed")) == Counter(OTHERS)
    broker.put("orders", [order(6), OTHERS[0]])
    assert run("run", str(PIPELINES / "orders.toml"), "--once")["messages"] == 2
    assert Counter(broker.records("orders.unparsed")) == Counter([*OTHERS, OTHERS[0]])
    table = DeltaTable("lake/orders")
    assert table.metadata().partition_columns == ["day"]
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 5, 6]
    assert [row["country"] for row in rows] == ["DE"] * 4 + [None, "DE"]
    assert {(str(row["total"]), row["articles"], str(row["day"])) for row in rows} == {("9.50", 1, "2024-02-01")}


def test_windows_go_to_a_topic_as_json_with_a_key_and_each_once(broker: Broker, run: Run) -> None:  # noqa: F811
    broker.put("orders", [*map(order, range(8)), order(2, country="at"), b"no json", order(3, at="soon")])
    facts = run("run", str(PIPELINES / "hourly.toml"), "--once")
    assert (facts["messages"], facts["unparsed"], facts["untimed"]) == (11, 2, 0)
    found = [json.loads(value) for value in broker.records("orders.hourly")]
    assert sorted((row["start"], row["country"], row["orders"], row["total"]) for row in found) == [
        ("2024-02-01T00:00:00.000000Z", "de", 4, 38.00),
        ("2024-02-01T01:00:00.000000Z", "at", 1, 9.50),
        ("2024-02-01T01:00:00.000000Z", "de", 2, 19.00),
    ]


def test_a_file_without_fields_is_an_archive_or_a_copy(
    broker: Broker,
    run: Run,  # noqa: F811
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.put("a", numbers(0, 50))
    (tmp_path / "copy.toml").write_text(
        '[source]\ntopics = ["a"]\n[select]\nwhere = "counter > 10"\n[target]\ntopic = "b"\n'
    )
    assert run("run", "copy.toml", "--once")["messages"] == 50
    assert broker.records("b") == numbers(10, 50)
    source, written = pipelines.source, []

    def sourced(*given: Any) -> Any:
        written.append(given[-1])
        return source(*given)

    monkeypatch.setattr(pipelines, "source", sourced)
    run("archive", "a", "--to", "lake", "--once")
    assert written == [(str(tmp_path / "lake"), str(tmp_path / "lake" / "_checkpoint"))], (
        "synced before it is confirmed"
    )
    broker.put("a", numbers(50, 60))
    (tmp_path / "lake.toml").write_text('[source]\ntopics = ["a"]\n[target]\ndirectory = "lake"\n')
    assert run("run", "lake.toml", "--once")["messages"] == 10, "it continues the command's archive"
    values = session.read.parquet(str(tmp_path / "lake")).select("value").collect()
    assert Counter(bytes(row.value) for row in values) == Counter(numbers(0, 60))


def test_an_expression_that_spark_does_not_know_is_named_before_anything_starts(
    broker: Broker, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text(
        """
        source.topics = ["a"]
        parse.fields = { id = "long", at = "timestamp", kind = "string" }
        select.where = "idd > 0"
        select.columns = { id = "id +", at = "at", kind = "nothing(kind)", ratio = "id / 2" }
        window = { length = "1h", time = "kind", values = { n = "count(nothing)" } }
        target = { directory = "lake", format = "delta" }
        """
    )
    assert main(["pipeline", "run", "x.toml", "--check"]) == 45
    said = capsys.readouterr().err.splitlines()
    keys = ("select.where", "select.columns.id", "select.columns.kind", "window.time")
    assert [line.split(": ")[1] for line in said if line.startswith("x.toml: ")] == list(keys)
    assert main(["pipeline", "run", "x.toml", "--once", "--proxy", broker.address]) == 45
    assert not (tmp_path / "lake").exists()
    assert main(["pipeline", "run", str(PIPELINES / "orders.toml"), "--check"]) == 0


def test_a_message_without_the_fields_ends_a_strict_pipeline_with_its_place(
    broker: Broker, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.put("a", [b'{"id": 1}', b"no json"])
    (tmp_path / "x.toml").write_text(
        'source.topics = ["a"]\nparse.fields = { id = "long" }\ntarget.directory = "lake"\nrun.restarts = 0\n'
    )
    assert main(["pipeline", "run", "x.toml", "--once", "--proxy", broker.address]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pubsub: error: a: message ")
    assert 'does not have the fields of parse.fields; set parse.unparsed = "drop"' in last
    assert not list((tmp_path / "lake" / "_spark_metadata").glob("[0-9]*"))


def test_a_pipeline_starts_again_after_a_lost_worker(
    broker: Broker,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.put("a", numbers(0, 20))
    begin = pipelines.begin
    starts = []

    def begins(*arguments: Any, **more: Any) -> Any:
        starts.append(1)
        if len(starts) == 1:
            raise PipelineFailed("Python worker exited unexpectedly", transient=True)
        return begin(*arguments, **more)

    monkeypatch.setattr(pipelines, "begin", begins)
    monkeypatch.setattr(supervising, "FIRST_PAUSE_SECONDS", 0.0)
    (tmp_path / "x.toml").write_text('source.topics = ["a"]\ntarget.topic = "b"\n')
    facts = run("run", "x.toml", "--once", "--metrics", "127.0.0.1:0")
    assert (facts["messages"], facts["restarts"], len(starts)) == (20, 1, 2)
    assert broker.records("b") == numbers(0, 20)


def test_a_file_puts_a_selection_of_an_archive_back_once(
    broker: Broker,
    run: Run,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home, away = [order(number) for number in range(20)], [order(number, country="at") for number in range(20, 30)]
    broker.put("orders", [*home[:10], *away, *home[10:], b"no json"])
    broker.put("other", [order(99)])
    run("archive", "orders", "other", "--to", "archive", "--once")
    assert run("run", str(PIPELINES / "restore.toml"), "--once")["messages"] == 31
    assert broker.records("orders.de") == home
    assert run("run", str(PIPELINES / "restore.toml"))["messages"] == 0
    broker.put("orders", [order(30), order(31, country="at")])
    run("archive", "orders", "other", "--to", "archive", "--once")
    assert run("run", str(PIPELINES / "restore.toml"))["messages"] == 2
    assert broker.records("orders.de") == [*home, order(30)]
    words = ["pipeline", "run", str(PIPELINES / "restore.toml"), "--proxy", broker.address]
    assert main([*words, "--metrics", "127.0.0.1:0"]) == 2
    assert "a replay of source.archive has none" in capsys.readouterr().err
