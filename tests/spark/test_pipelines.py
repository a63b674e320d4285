"""Pipelines on Spark as people run them: by the command line, beside a real broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from pubsub.cli import main
from pubsub.client.requests import Proxies
from pubsub.errors import Unavailable
from pubsub.spark import pipelines
from pubsub.spark.archive import tidy
from pubsub.spark.pipelines import failure
from pubsub.spark.ranges import Topics
from tests.faults.cluster import SPARK_SECONDS, Process, until
from tests.spark.broker import Broker

pytestmark = pytest.mark.spark

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(broker: Broker, session: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `pubsub pipeline …` in this process, on the session of all tests; what it says of itself."""

    def do(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["pipeline", *arguments, "--proxy", broker.address, "--json"]) == 0, capsys.readouterr().err
        return dict(json.loads(capsys.readouterr().out))

    return do


@pytest.fixture
def driver(tmp_path: Path, broker: Broker) -> Iterator[Callable[..., Process]]:
    """Starts `pubsub pipeline …` in a process of its own."""
    started = []

    def start(*arguments: str) -> Process:
        command = ["-m", "pubsub", "pipeline", *arguments, "--proxy", broker.address, "--json"]
        started.append(Process(f"driver{len(started)}", tmp_path, command))
        return started[-1].start()

    yield start
    for process in started:
        process.end()


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def archived(session: Any, directory: Path) -> dict[str, Counter[bytes]]:
    """The messages that a reader of an archive sees, by topic."""
    found: dict[str, Counter[bytes]] = {}
    for row in session.read.parquet(str(directory)).select("topic", "value").collect():
        found.setdefault(row.topic, Counter())[bytes(row.value)] += 1
    return found


def test_an_archive_continues_and_has_each_message_once(broker: Broker, run: Run, session: Any, tmp_path: Path) -> None:
    to = tmp_path / "archive"
    broker.put("a", numbers(0, 2500))
    broker.put("b/1", numbers(0, 500))
    facts = run("archive", "a", "b/1", "--to", str(to), "--once", "--batch", "1000")
    assert (facts["messages"], facts["batches"]) == (3000, 3)
    broker.put("a", numbers(2500, 2600))
    assert run("archive", "a", "b/1", "--to", str(to), "--once")["messages"] == 100
    assert run("archive", "b/1", "a", "--to", str(to), "--once")["messages"] == 0
    assert archived(session, to) == {"a": Counter(numbers(0, 2600)), "b/1": Counter(numbers(0, 500))}
    broker.put("c", numbers(0, 30))
    assert run("archive", "b/1", "a", "c", "--to", str(to), "--once")["messages"] == 30
    assert archived(session, to)["c"] == Counter(numbers(0, 30))
    (row,) = session.read.parquet(str(to)).where("topic = 'a' and value = cast('7' as binary)").collect()
    assert (row.offset, row.counter, row.message_id) == (8, 8, f"{row.log}.8")
    assert {path.parent.name for path in to.glob("topic=a/*/*.parquet")} == {f"date={row.date}"}


def test_a_pipeline_ends_by_sigterm_and_reports_its_work(
    broker: Broker,
    driver: Callable[..., Process],
    run: Run,
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to = tmp_path / "archive"
    broker.put("a", numbers(0, 100))
    with monkeypatch.context() as patch:
        patch.delenv("PYSPARK_PYTHON")  # Its workers are those of a user's pipeline, not those of tests.
        process = driver("archive", "a", "--to", str(to), "--every", "0")
    until((to / "_spark_metadata" / "0").exists, "the first batch is written", SPARK_SECONDS)
    broker.put("a", numbers(100, 130))
    until((to / "_spark_metadata" / "1").exists, "the second batch is written", SPARK_SECONDS)
    process.running.send_signal(signal.SIGTERM)
    assert process.wait(SPARK_SECONDS) == 0, process.errors.read_text()
    # Spark counts a batch after it has noted it as done: the second may be ended in between, the first is counted.
    assert json.loads(process.output.read_text())["messages"] in (100, 130)
    assert archived(session, to) == {"a": Counter(numbers(0, 130))}
    assert run("archive", "a", "--to", str(to), "--once")["messages"] in (0, 30)
    assert archived(session, to) == {"a": Counter(numbers(0, 130))}


def test_files_of_killed_batches_are_removed_and_those_being_written_are_not(
    broker: Broker, run: Run, session: Any, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    (to / "_spark_metadata").mkdir(parents=True)
    assert tidy(session, str(to), f"{to}/_checkpoint") == 0
    (to / "_spark_metadata").rmdir()
    broker.put("a/b", numbers(0, 50))
    run("archive", "a/b", "--to", str(to), "--once")
    (listed,) = to.glob("topic=*/*/*.parquet")
    last = (to / "_spark_metadata" / "0").stat().st_mtime
    killed, written = listed.with_name("part-killed.parquet"), listed.with_name("part-written.parquet")
    for path, age in ((killed, 10), (written, -10)):
        shutil.copy(listed, path)
        os.utime(path, (last - age, last - age))
    assert tidy(session, str(to), f"{to}/_checkpoint") == 1
    assert sorted(to.glob("topic=*/*/*.parquet")) == sorted([listed, written])
    os.utime(written, (last - 10, last - 10))
    run("archive", "a/b", "--to", str(to), "--once")
    assert list(to.glob("topic=*/*/*.parquet")) == [listed]
    assert archived(session, to) == {"a/b": Counter(numbers(0, 50))}


@pytest.mark.parametrize("where", ["files", "no-checkpoint", "another-checkpoint"])
def test_a_directory_of_another_query_is_refused(
    broker: Broker, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """With a fresh checkpoint, or another one, Spark would skip batches whose numbers the directory knows."""
    to = tmp_path / "archive"
    words = ["archive", "a", "--to", str(to), "--once"]
    broker.put("a", numbers(0, 10))
    if where == "files":
        to.mkdir()
        (to / "mine.txt").write_text("mine")
    elif where == "no-checkpoint":
        run(*words)
        (to / "_checkpoint").rename(tmp_path / "elsewhere")
    else:
        run(*words, "--batch", "5")
        run("archive", "a", "--to", str(tmp_path / "other"), "--once")
        broker.put("a", numbers(10, 20))
        words += ["--checkpoint", str(tmp_path / "other" / "_checkpoint")]
    assert main(["pipeline", *words, "--proxy", broker.address]) == 8
    said = capsys.readouterr().err
    assert "is not its checkpoint" in said
    assert said.count("\n") == 1


def test_the_service_keeps_the_stored_messages_while_spark_starts(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def starts(*_: object) -> None:
        assert Topics(broker.link, "mine").plan("a", None).records == 10
        raise KeyboardInterrupt

    broker.put("a", numbers(0, 10))
    monkeypatch.setattr(pipelines, "running", starts)
    words = ["archive", "a", "--to", str(tmp_path / "x"), "--name", "mine", "--proxy", broker.address]
    assert main(["pipeline", *words]) == 130
    with Proxies([broker.address], 0.2) as link, pytest.raises(Unavailable, match="subscription"):
        Topics(link, "nobodys").plan("a", None)


def test_errors_of_java_and_of_spark_are_one_sentence(
    broker: Broker, session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.put("a", numbers(0, 10))
    words = ["archive", "a", "--to", "/proc/none", "--once", "--proxy", broker.address]
    assert main(["pipeline", *words]) == 7
    assert "/proc/none" in capsys.readouterr().err
    words[3] = "file:///proc/none"  # Hadoop's way to the same.
    assert main(["pipeline", *words]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pubsub: error: ")
    assert "/proc/none" in last
    assert "\tat " not in last
    assert str(failure(Py4JNetworkError("Answer from Java side is empty"))).startswith("Spark's Java process has ended")
    with pytest.raises(Py4JJavaError) as caught:
        session._jvm.java.util.Optional.empty().get()
    assert str(failure(caught.value)) == "java.util.NoSuchElementException: No value present"


def test_the_error_of_a_query_is_one_sentence_with_its_exit_code(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", "a", "--to", str(tmp_path / "x"), "--once", "--proxy", "tcp://127.0.0.1:1", "--timeout", "0.3"]
    assert main(["pipeline", *words]) == 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "pubsub: error: subscribe on a: no success within 0.3 s (no proxy answers)"
