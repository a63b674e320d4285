"""Mistakes on a pipeline's command line are refused before Spark is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.cli import running as module
from pubsub.errors import ConfigurationError
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair
from pubsub.spark.pipelines import Place


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
        (["archive", "t", "--to", "d", "--conf", "x=1"], 8, "--conf x=1: give a setting as spark.NAME=VALUE"),
        (["archive", "t", "--to", "d", "--master", "bogus"], 8, "bogus is not a Spark master"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["pipeline", *arguments]) == code
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_pipeline_without_spark_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pyspark" else find(name))
    assert main(["pipeline", "archive", "t", "--to", "d"]) == 8
    assert "pyspark, which is not installed: pip install '.[spark]' in a clone" in capsys.readouterr().err


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Place]:
    """Where a pipeline would go with these options; its client's data is in a directory of the test."""
    monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", str(tmp_path / "state"))

    def make(
        *, client: str = "spark", key: Path | None = None, keys: list[str] | None = None, config: str | None = None
    ) -> Place:
        return module.where(["tcp://127.0.0.1:1"], None, keys, client, str(key) if key else None, config, 1.0)

    return make


def test_a_pipeline_takes_a_named_key_or_the_key_in_its_clients_directory(
    place: Callable[..., Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place().options == {"proxies": "tcp://127.0.0.1:1", "timeout": "1"}
    mine, theirs = new_pair(), format_public(new_pair().public)
    make_key_file(tmp_path / "mine.key", mine.secret)
    monkeypatch.chdir(tmp_path)
    found = place(key=Path("mine.key"), keys=[theirs], client="etl")
    assert found.options["keyFile"] == str(tmp_path / "mine.key")  # Spark's processes work in other directories.
    assert (found.options["clientId"], found.options["proxyKeys"]) == ("etl", theirs)
    assert found.identity.pair() == mine
    assert main(["keys", "new", "client", "spark"]) == 0
    assert place(keys=[theirs]).options["keyFile"] == str(tmp_path / "state" / "spark.key")
    monkeypatch.delenv("PUBSUB_CLIENT_DIRECTORY")
    (tmp_path / "pubsub.toml").write_text(f'[client]\ndirectory = "{tmp_path}/state"\n')
    assert place(keys=[theirs], config="pubsub.toml").options["keyFile"] == str(tmp_path / "state" / "spark.key")


def test_a_pipeline_and_its_proxies_have_keys_both_or_none(place: Callable[..., Place], tmp_path: Path) -> None:
    make_key_file(tmp_path / "mine.key", new_pair().secret)
    with pytest.raises(ConfigurationError, match="client spark has a key, but the proxies are named without keys"):
        place(key=tmp_path / "mine.key")
    with pytest.raises(ConfigurationError, match="has a key, and client spark has none: pubsub keys new client spark"):
        place(keys=[format_public(new_pair().public)])
    with pytest.raises(ConfigurationError, match="pubsub keys new client etl --out"):
        place(client="etl", key=tmp_path / "none.key")
