"""What the demo publishes: each commit of this repository's history, or each line of a file.

Every record becomes one message whose body is `NUMBER TAB RECORD`. The number makes equal lines of a file tell apart,
so a lost and a doubled one cannot make up for each other.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pubsub.protocol.names import is_topic


class Item(NamedTuple):
    """One message to be."""

    topic: str
    body: bytes

    @property
    def number(self) -> int:
        """Its place in the input, from 0."""
        return number_of(self.body)


def number_of(body: bytes) -> int:
    """The place in the input of the record that is in this body."""
    return int(body.partition(b"\t")[0])


def from_history(repository: Path) -> list[Item]:
    """Every commit reachable from HEAD, oldest first; its topic is the folder that it touched most."""
    log = subprocess.run(
        ["git", "-C", str(repository), "log", "--reverse", "--name-only", "--format=%x00%H%x09%ct%x09%s"],
        check=True, capture_output=True, text=True, encoding="utf-8", errors="replace",
    )  # fmt: skip
    records = []
    for entry in log.stdout.split("\0")[1:]:
        head, *paths = [line for line in entry.splitlines() if line]
        commit, seconds, subject = head.split("\t", 2)
        facts = {"commit": commit, "committed_at": int(seconds), "subject": subject, "paths": paths}
        records.append((_folder(paths), json.dumps(facts).encode()))
    return _numbered(records)


def from_file(path: Path, topic: str) -> list[Item]:
    """Every line of a file, of a .gz file too. Lines of JSON with a `repository` go to the topic of that name.

    Args:
        path: the file.
        topic: for every other line.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        return _numbered((_repository(line) or topic, line.rstrip(b"\r\n")) for line in stream)


def save(items: Iterable[Item], path: Path) -> None:
    """Writes the input where the publisher reads it again: after each of its deaths too."""
    with path.open("wb") as stream:
        for topic, body in items:
            stream.write(topic.encode() + b"\t" + body + b"\n")


def saved(path: Path) -> Iterator[Item]:
    """Reads what `save` wrote."""
    with path.open("rb") as stream:
        for line in stream:
            topic, _, body = line[:-1].partition(b"\t")
            yield Item(topic.decode(), body)


def _numbered(records: Iterable[tuple[str, bytes]]) -> list[Item]:
    return [Item(topic, b"%d\t%b" % (number, record)) for number, (topic, record) in enumerate(records)]


def _folder(paths: list[str]) -> str:
    """The folder, two levels deep at most, that holds most of the paths; `root` for the top level and for none."""
    folders = Counter("/".join(path.split("/")[:-1][:2]) for path in paths)
    folder = max(folders, key=lambda name: (folders[name], name), default="")
    return folder if is_topic(folder) else "root"


def _repository(line: bytes) -> str | None:
    try:
        name = json.loads(line)["repository"]
    except (ValueError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) and is_topic(name) else None
