"""Queries of a Spark in a cluster that requires keys: their shown facts, and their ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pubsub.cli import main
from pubsub.security.keys import format_secret
from pubsub.spark.pipelines import failure
from tests.faults.cluster import SPARK_SECONDS, Process, until
from tests.spark import query
from tests.spark.keyed import KeyedBroker

pytestmark = pytest.mark.spark

RIGHTS = ("put=t.copy", "get=t", "names=copy")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KeyedBroker]:
    made = KeyedBroker(tmp_path / "broker")
    yield made
    made.close()


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def facts(broker: KeyedBroker, tmp_path: Path, **others: Any) -> dict[str, Any]:
    """Of a query that copies topic t to t.copy; see `tests.spark.query`."""
    options = {"proxyKeys": broker.proxy_key, "timeout": "20"} | others.pop("options", {})
    own = {"proxies": broker.address, "subscribe": "t", "checkpoint": str(tmp_path / "checkpoint")}
    return own | {"directory": str(tmp_path), "options": options} | others


def below(*paths: Path) -> bytes:
    """All bytes of some files, and of those in some directories."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    return b"\0".join(file.read_bytes() for file in files if file.is_file())


def test_the_secret_key_of_a_query_is_shown_nowhere(broker: KeyedBroker, tmp_path: Path) -> None:
    """Not in its checkpoint, its plans, Spark's event log, log and web interface, or SQL's words; another option is."""
    pair = broker.make("client", "spark-nightly", *RIGHTS)
    broker.put("t", numbers(0, 3000))
    events = tmp_path / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    conf |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    given = facts(
        broker, tmp_path, options={"clientId": "spark-nightly"}, secret=broker.file("spark-nightly"), explain=True,
        pages=True, log="DEBUG", conf=conf, records=2000,
    )  # fmt: skip
    driver = Process("driver", tmp_path, ["-m", "tests.spark.query", json.dumps(given)]).start()
    assert driver.wait(SPARK_SECONDS) == 0, driver.errors.read_text()[-2000:]
    assert Counter(broker.records("t.copy")) == Counter(numbers(0, 3000))
    pages = json.loads((tmp_path / "pages").read_text())
    assert any(page.startswith("SQL/execution/") and "stepping" in text for page, text in pages.items())
    assert "spark.eventLog.dir" in pages["environment/"]
    shown = below(tmp_path / "checkpoint", events, driver.output, driver.errors, tmp_path / "pages")
    assert all((tmp_path / "checkpoint" / name).is_dir() for name in ("offsets", "commits"))
    assert b"spark-nightly" in driver.output.read_bytes()
    assert b"SparkListenerSQLExecutionStart" in below(events)
    for form in (format_secret(pair.secret).encode()[3:], pair.secret, pair.secret.hex().encode()):
        assert form not in shown


def ended(running: Any) -> Exception:
    """The error by which a query ends."""
    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(SPARK_SECONDS)
    return failure(caught.value)


def test_a_key_revoked_in_mid_stream_ends_the_query_and_a_new_authorization_continues_it(
    broker: KeyedBroker, session: Any, tmp_path: Path
) -> None:
    spark = broker.make("client", "spark", *RIGHTS)
    broker.put("t", numbers(0, 4000))
    broker.put("t.copy", [b"first"])  # So that it can be read before the query has copied anything.
    given = facts(broker, tmp_path, options={"keyFile": broker.file("spark")}, records=100, seconds=0)
    running = query.start(session, given)
    until(lambda: len(broker.records("t.copy")) > 300, "the query copies", SPARK_SECONDS)
    broker.revoke(spark)
    error = ended(running)
    copied = len(broker.records("t.copy"))
    assert 300 < copied < 4000
    assert getattr(error, "exit_code", 0) in {21, 22}
    assert str(error).isprintable()
    assert "pubsub keys authorize client spark pk_" in str(error)
    assert format_secret(spark.secret)[3:] not in str(error)
    again = query.start(session, given)  # Without the key it ends each time, and does nothing.
    assert getattr(ended(again), "exit_code", 0) == 21
    assert len(broker.records("t.copy")) == copied
    broker.authorize("client", "spark", spark, *RIGHTS)
    broker.put("t", numbers(4000, 4100))
    again = query.start(session, given | {"records": 4000})
    try:
        until(lambda: len(broker.records("t.copy")) > 4100, "the query has copied the rest", SPARK_SECONDS)
        again.processAllAvailable()
    finally:
        again.stop()
    assert Counter(broker.records("t.copy")) == Counter([b"first", *numbers(0, 4100)])


def test_a_pipeline_names_its_missing_right_in_one_line_and_sets_its_exit_code(
    broker: KeyedBroker, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.put("t", numbers(0, 100))
    spark = broker.make("client", "etl", "get=t")
    words = ["pipeline", "archive", "t", "--to", str(tmp_path / "archive"), "--once", "--name", "mine"]
    words += ["--proxy", broker.address, "--proxy-key", broker.proxy_key, "--key", broker.file("etl"), "--client"]
    for client, code, said in (
        ("etl", 22, "may not use the subscription mine of t; its line in the file authorized needs get=t names=mine"),
        ("spark", 22, "this key is etl's, not spark's; give the client ID of this key as option clientId (--client"),
    ):
        assert main([*words, client]) == code
        assert said in capsys.readouterr().err.splitlines()[-1]
    broker.revoke(spark)
    assert main([*words, "etl"]) == 21
    assert "pubsub keys authorize client etl pk_" in capsys.readouterr().err.splitlines()[-1]
    broker.authorize("client", "etl", spark, "get=t", "names=mine")
    assert main([*words, "etl"]) == 0
    assert session.read.parquet(str(tmp_path / "archive")).count() == 100
    assert format_secret(spark.secret).encode()[3:] not in below(tmp_path / "archive")
