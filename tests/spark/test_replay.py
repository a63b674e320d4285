"""An archive put back: the same messages, in the same order, once, after any interrupted run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.spark import replay
from tests.spark.broker import Broker
from tests.spark.test_pipelines import Run, numbers, run  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark


def test_a_replay_returns_the_archived_messages_in_order_and_once(
    broker: Broker,
    run: Run,  # noqa: F811
    session: Any,
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    broker.put("a", numbers(0, 3000))
    broker.put("b/1", [bytes([255, 0, number]) for number in range(200)], batch=50)
    run("archive", "a", "b/1", "--to", str(archive), "--once", "--batch", "250")
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")  # So that several tasks share a step.
    try:
        assert run("replay", str(archive), "--to", "back")["messages"] == 3200
    finally:
        session.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    back = broker.records("back")
    assert [value for value in back if value[0] != 255] == numbers(0, 3000)
    assert [value for value in back if value[0] == 255] == [bytes([255, 0, number]) for number in range(200)]
    assert run("replay", str(archive), "--to", "back")["messages"] == 0
    broker.put("a", numbers(3000, 3100))
    run("archive", "a", "b/1", "--to", str(archive), "--once")
    assert run("replay", str(archive), "--to", "back")["messages"] == 100
    assert broker.records("back") == back + numbers(3000, 3100)


def test_a_published_step_without_a_note_is_not_published_twice(
    broker: Broker,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive = tmp_path / "archive"
    broker.put("a", numbers(0, 50))
    run("archive", "a", "--to", str(archive), "--once")

    def dies(journal: replay.Journal, number: int) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(replay.Journal, "done", dies)
        assert main(["pipeline", "replay", str(archive), "--to", "back", "--proxy", broker.address]) == 70
    assert broker.records("back") == numbers(0, 50)
    run("replay", str(archive), "--to", "back")
    assert broker.records("back") == numbers(0, 50)


def test_one_topic_of_a_moved_archive_is_restored(
    broker: Broker,
    run: Run,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, moved = tmp_path / "archive", tmp_path / "elsewhere"
    broker.put("a%2F", numbers(0, 20))
    broker.put("b", numbers(20, 40))
    run("archive", "a%2F", "b", "--to", str(made), "--once")
    stray = next(made.glob("topic=b/*/*.parquet"))
    shutil.copy(stray, stray.with_name(f"part-killed-{stray.name}"))  # As a killed batch leaves it: in no list.
    made.rename(moved)
    words = ("replay", str(moved), "--to", "back")
    assert run(*words, "--topic", "b")["messages"] == 20
    assert broker.records("back") == numbers(20, 40)
    assert run(*words)["messages"] == 20
    assert broker.records("back") == [*numbers(20, 40), *numbers(0, 20)]
    assert main(["pipeline", *words, "--topic", "c", "--proxy", broker.address]) == 8
    assert "has no topic c; it has a%2F, b" in capsys.readouterr().err
    assert main(["pipeline", "replay", str(tmp_path), "--to", "back", "--proxy", broker.address]) == 8
    assert "is not an archive" in capsys.readouterr().err
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text('v1\n{"path": "file:///lake/day=1/part.parquet"}\n')
    assert main(["pipeline", "replay", str(tmp_path), "--to", "back", "--proxy", broker.address]) == 8
    assert "file lake/day=1/part.parquet is not of an archive by topic and date" in capsys.readouterr().err
    words = ("replay", str(moved), "--to", "elsewhere", "--checkpoint", str(moved / "_replay" / "back"))
    assert main(["pipeline", *words, "--proxy", broker.address]) == 8
    assert "belongs to a pipeline with to back, not elsewhere" in capsys.readouterr().err
