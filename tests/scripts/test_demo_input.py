from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from demo_input import Item, from_file, from_history, number_of, save, saved


def test_lines_go_to_the_topic_of_their_repository_or_to_the_one_named(tmp_path: Path) -> None:
    lines = [
        json.dumps({"repository": "zeromq/pyzmq", "commit": "1"}),
        "plain text\twith a tab",
        json.dumps({"repository": "not a topic"}),
        json.dumps({"repository": 5}),
        json.dumps(["repository"]),
        "plain text\twith a tab",
    ]
    path = tmp_path / "input.jsonl"
    path.write_text("\n".join(lines) + "\n")
    items = from_file(path, "lines")
    assert [item.topic for item in items] == ["zeromq/pyzmq", *["lines"] * 5]
    assert [item.number for item in items] == [0, 1, 2, 3, 4, 5]
    assert items[1].body == b"1\tplain text\twith a tab"
    assert items[1].body != items[5].body


def test_a_compressed_file_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"a\r\nb\n\nc")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\r\nb\n\nc"))
    assert from_file(tmp_path / "plain", "t") == from_file(tmp_path / "packed.gz", "t")
    assert [body for _, body in from_file(tmp_path / "plain", "t")] == [b"0\ta", b"1\tb", b"2\t", b"3\tc"]


def test_the_publisher_reads_back_what_was_saved(tmp_path: Path) -> None:
    items = [Item("a/b", b"0\t\x00\xffx"), Item("c", b"1\t\t")]
    save(items, tmp_path / "input")
    assert list(saved(tmp_path / "input")) == items
    assert [number_of(item.body) for item in items] == [0, 1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*arguments: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *names, *arguments], check=True, capture_output=True)

    git("init")
    for path, subject in (("README", "Begin"), ("pubsub/server/deep/core.py", "Serve"), ("sp ace/x", "Odd")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(subject)
        git("add", path)
        git("commit", "-m", subject)
    git("commit", "--allow-empty", "-m", "Nothing")
    return tmp_path


def test_every_commit_is_a_record_under_the_folder_it_touched_most(repository: Path) -> None:
    items = from_history(repository)
    assert [item.topic for item in items] == ["root", "pubsub/server", "root", "root"]
    facts = [json.loads(item.body.partition(b"\t")[2]) for item in items]
    assert [fact["subject"] for fact in facts] == ["Begin", "Serve", "Odd", "Nothing"]
    assert facts[1]["paths"] == ["pubsub/server/deep/core.py"]
