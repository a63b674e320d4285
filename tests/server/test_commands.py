"""`pubsub server export` and `import`, from a store that a real server wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pubsub import embedded
from pubsub.cli import main


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped server's directory; its topic holds three messages, and one subscriber has not taken them."""
    directory = tmp_path_factory.mktemp("embedded")
    with embedded(directory) as service, service.client("c") as client:
        client.subscribe("a/b")
        client.put_many("a/b", [b"one", b"two", b"three"])
    (store,) = {path.parent for path in directory.rglob("*.db") if "server" in str(path.relative_to(directory))}
    return store


def test_exported_topics_can_be_imported_elsewhere(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "export", str(tmp_path / "tree"), "--dir", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"exported": str(tmp_path / "tree"), "count": 3}
    bodies = [path.read_bytes() for path in sorted((tmp_path / "tree").rglob("messages/*"))]
    assert sorted(bodies) == [b"one", b"three", b"two"]
    assert main(["server", "import", str(tmp_path / "tree"), "--dir", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out == f"imported 3 messages from {tmp_path / 'tree'}\n"


def test_an_existing_topic_is_refused_in_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "export", str(tmp_path / "tree"), "--dir", str(data)]) == 0
    assert main(["server", "import", str(tmp_path / "tree"), "--dir", str(data)]) == 8
    error = capsys.readouterr().err
    assert "a/b" in error
    assert error.count("\n") == 1


def test_a_directory_without_a_store_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server", "export", str(tmp_path / "tree"), "--dir", str(tmp_path)]) == 8
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "tree").exists()


def test_a_running_server_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with embedded(tmp_path):
        (store,) = {path.parent for path in tmp_path.rglob("*.db") if "server" in str(path.relative_to(tmp_path))}
        assert main(["server", "export", str(tmp_path / "tree"), "--dir", str(store)]) == 9
    assert "in use" in capsys.readouterr().err
