"""What a pipeline's command line refuses before Spark is started."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.cli import running as module


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["archive"], 2, "Missing argument 'TOPIC"),
        (["audit"], 2, "Missing argument 'RECORD"),
        (["audit", "r", "--skew", "-1"], 2, "--skew"),
        (["archive", "t"], 2, "Missing option '--to'"),
        (["archive", "a b", "--to", "d"], 2, "topic 'a b' is not allowed"),
        (["archive", "a,b", "--to", "d"], 8, "topic a,b has a comma"),
        (["archive", "t", "--to", "d", "--name", "a b"], 2, "pipeline name 'a b' is not allowed"),
        (["archive", "t", "--to", "d", "--proxy", "nowhere"], 8, "client proxies = ('nowhere',)"),
        (["archive", "t", "--to", "d", "--conf", "x=1"], 8, "--conf x=1: it is spark.NAME=VALUE"),
        (["archive", "t", "--to", "d", "--master", "bogus"], 8, "bogus is no master of Spark"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["pipeline", *arguments]) == code
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pyspark" else find(name))
    assert main(["pipeline", "archive", "t", "--to", "d"]) == 8
    assert "pyspark, which is not installed: pip install 'pirate-pubsub[spark]'" in capsys.readouterr().err
