"""A pipeline as its file defines it, checked as far as that needs no Spark: names, types, and keys that go together."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pubsub.errors import CallerError, PubsubError
from pubsub.protocol.names import check_id, check_new_topic, check_topic
from pubsub.spark.durations import check_late, check_window
from pubsub.spark.pipeline_file.tables import Problems, Table
from pubsub.spark.pipeline_file.types import check_name, check_type

FILE_BYTES_MAX: Final = 1024 * 1024
FAIL: Final = "fail"
DROP: Final = "drop"
DEAD: Final = "dead-topic"
UNPARSED: Final = (FAIL, DROP, DEAD)
"""Treatments of a message that does not have the fields."""

FORMATS: Final = ("parquet", "delta")
JSON: Final = "json"
RAW: Final = "raw"
ENCODINGS: Final = (JSON, RAW)
ARCHIVED_BY: Final = ("topic", "date")
MESSAGE: Final = "message"
"""Column with all that the source knows of a message: `message.topic`, `message.stamp`, …"""

_RESERVED: Final = ("start", "end", MESSAGE)


class PipelineFileRefused(PubsubError):
    """The file of a pipeline cannot be used; nothing was started.

    Attributes:
        problems: one line each: the key and the reason.
    """

    exit_code = 45

    def __init__(self, file: str, problems: tuple[str, ...]) -> None:
        self.file, self.problems = file, problems
        super().__init__(file, problems)

    def __str__(self) -> str:
        more = len(self.problems) - 1
        rest = f" (and {more} more: pubsub pipeline run --check lists them)" if more else ""
        return f"{self.file}: {self.problems[0]}{rest}"


@dataclass(frozen=True, kw_only=True)
class Parse:
    """JSON values as columns: names and types of their fields, the needed ones, and what to do with other messages."""

    fields: dict[str, str]
    required: tuple[str, ...] = ()
    unparsed: str = FAIL
    dead_topic: str = ""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Groups of rows by windows of time; `values` are expressions, `time` is a column, or "" for the timestamp."""

    length: str
    values: dict[str, str]
    time: str = ""
    late: str = "1h"
    by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topic, or a directory and its format."""

    topic: str = ""
    encoding: str = JSON
    key: str = ""
    directory: str = ""
    form: str = "parquet"
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the pipeline runs; `every` is in seconds, `batch` in messages, 0 for no limit."""

    name: str = ""
    checkpoint: str = ""
    every: float = 10.0
    batch: int = 1_000_000
    restarts: int = 5
    master: str = "local[*]"
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A pipeline: source → parse → select → window → target.

    Attributes:
        archive: directory of an archive to put back to a topic; `topics` are then those of it, or all. "" for
            none.
    """

    topics: tuple[str, ...]
    archive: str = ""
    headers: bool = False
    parse: Parse | None = None
    columns: dict[str, str] = field(default_factory=dict)
    where: str = ""
    window: Window | None = None
    target: Target
    run: Run = Run()

    @property
    def archives(self) -> bool:
        """True if the rows are those of the source, with the date, as of an archive."""
        return not (self.parse or self.columns or self.window)


def read_definition(file: str) -> Definition:
    """Read and check a file.

    Raises:
        CallerError: it cannot be read.
        PipelineFileRefused: it is no valid definition.
    """
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CallerError(f"{file}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise CallerError(f"{file}: a pipeline's file has at most {FILE_BYTES_MAX:,} bytes")
    try:
        given = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineFileRefused(file, (f"is not TOML: {error}",)) from None
    problems = Problems()
    made = parse_definition(given, problems)
    if problems:
        raise PipelineFileRefused(file, tuple(problems))
    return made


def parse_definition(given: Mapping[str, Any], problems: Problems) -> Definition:
    """Return the definition in a file's content; it is usable only if no problem was added."""
    root = Table("", given, problems)
    topics, headers, archive = _source(root, problems)
    parse = _parse(root)
    columns, where = _select(root)
    window = _window(root)
    plain = parse is None and not columns and window is None
    target = _target(root, problems, plain)
    made = Definition(
        topics=topics, archive=archive, headers=headers, parse=parse, columns=columns, where=where, window=window,
        target=target, run=_run(root, problems, archive),
    )  # fmt: skip
    root.close()
    if archive:
        _check_replay(made, problems)
    _check_columns(made, problems)
    return made


def _source(root: Table, problems: Problems) -> tuple[tuple[str, ...], bool, str]:
    table = root.table("source")
    if table is None:
        problems.add("source", 'is missing; write [source] and topics = ["…"]')
        return (), False, ""
    archive = table.text("archive")
    topics = table.texts("topics", needed=not archive, check=_check_source_topic)
    headers = table.truth("headers")
    if archive and headers:
        table.wrong("headers", "needs topics that are read; a replay of source.archive puts values and keys")
    table.close()
    return topics, headers, archive


def _check_source_topic(topic: str) -> None:
    if "," in check_topic(topic):
        raise CallerError(f"topic {topic} has a comma in its name, and Spark's option separates topics by commas")


def _parse(root: Table) -> Parse | None:
    table = root.table("parse")
    if table is None:
        return None
    fields = table.pairs("fields", check_type)
    if not fields:
        table.wrong("fields", 'is missing; write [parse.fields] and a line such as id = "long" for each field')
    for name in fields:
        _named(table, f"fields.{name}", name)
        if name.lower() == MESSAGE:
            table.wrong(f"fields.{name}", "has the name of the source's columns; rename it in the messages")
    required = table.texts("required")
    for index, name in enumerate(required):
        if name not in fields:
            table.wrong(f"required[{index}]", f"{name} is not in parse.fields")
    unparsed, dead = table.choice("unparsed", UNPARSED, FAIL), table.text("dead_topic", check=check_new_topic)
    if unparsed == DEAD and not table.has("dead_topic"):
        table.wrong("dead_topic", f'is missing; unparsed = "{DEAD}" needs the topic')
    elif unparsed != DEAD and table.has("dead_topic"):
        table.wrong("dead_topic", f'needs unparsed = "{DEAD}"')
    table.close()
    return Parse(fields=fields, required=required, unparsed=unparsed, dead_topic=dead)


def _named(table: Table, key: str, name: str) -> None:
    try:
        check_name(name)
    except CallerError as error:
        table.wrong(key, str(error))


def _select(root: Table) -> tuple[dict[str, str], str]:
    table = root.table("select")
    if table is None:
        return {}, ""
    columns, where = table.pairs("columns"), table.text("where")
    for name in columns:
        _named(table, f"columns.{name}", name)
    table.close()
    return columns, where


def _window(root: Table) -> Window | None:
    table = root.table("window")
    if table is None:
        return None
    length = table.text("length", "1h", needed=True, check=check_window)
    made = Window(
        length=length,
        time=table.text("time"),
        late=table.text("late", "1h", check=check_late),
        by=table.texts("by"),
        values=table.pairs("values") or {"count": "count(*)"},
    )
    for name in made.values:
        _named(table, f"values.{name}", name)
        if name in made.by or name in _RESERVED:
            table.wrong(f"values.{name}", "has the name of another column of the result")
    for index, name in enumerate(made.by):
        if name in _RESERVED:
            table.wrong(f"by[{index}]", f"{name} is the name of a column of the result; rename it in select.columns")
    table.close()
    return made


def _target(root: Table, problems: Problems, plain: bool) -> Target:
    table = root.table("target")
    if table is None:
        problems.add("target", 'is missing; write [target] and topic = "…" or directory = "…"')
        return Target()
    topic, directory = table.text("topic", check=check_new_topic), table.text("directory")
    if table.has("topic") == table.has("directory"):
        both = "are both given; give one" if table.has("topic") else "is missing; give it, or directory"
        table.wrong("topic", both if not table.has("topic") else f"and target.directory {both}")
    for needs, names in (("topic", ("encoding", "key")), ("directory", ("format", "partition_by"))):
        for name in names:
            if table.has(name) and not table.has(needs):
                table.wrong(name, f"needs target.{needs}")
    made = Target(
        topic=topic,
        directory=directory,
        encoding=table.choice("encoding", ENCODINGS, RAW if plain else JSON),
        key=table.text("key"),
        form=table.choice("format", FORMATS, FORMATS[0]),
        partition_by=table.texts("partition_by") or (ARCHIVED_BY if plain and directory else ()),
    )
    if topic and made.encoding == RAW and made.key:
        table.wrong("key", 'needs encoding = "json"; a raw message has the column key as its key')
    table.close()
    return made


def _check_replay(made: Definition, problems: Problems) -> None:
    """Check the limits of a replay of an archive: it is no stream, and puts to a topic."""
    if made.target.directory:
        problems.add("target.directory", "cannot be the target of source.archive; give target.topic")
    if made.window is not None:
        problems.add("window", "groups a stream, and source.archive is none; leave the table out")
    if made.parse is not None and made.parse.unparsed == DEAD:
        problems.add("parse.unparsed", f'with source.archive is "{FAIL}" or "{DROP}"')


def _run(root: Table, problems: Problems, archive: str) -> Run:
    table = root.table("run") or Table("run", {}, problems)
    for name in ("name", "every", "batch", "restarts"):
        if archive and table.has(name):
            table.wrong(name, "is of a stream, and source.archive is none; leave it out")
    made = Run(
        name=table.text("name", check=lambda text: check_id("pipeline name", text)),
        checkpoint=table.text("checkpoint"),
        every=table.number("every", 10.0, 0, 86_400, whole=False),
        batch=int(table.number("batch", 1_000_000, 0, 10**12)),
        restarts=int(table.number("restarts", 5, 0, 1000)),
        master=table.text("master", "local[*]"),
        conf=table.pairs("conf"),
    )
    for name in made.conf:
        if not name.startswith("spark."):
            table.wrong(f"conf.{name}", 'is not a setting of Spark; write "spark.NAME" = "VALUE"')
    table.close()
    return made


def _check_columns(made: Definition, problems: Problems) -> None:
    """Check the names of columns between tables, where the file alone tells them."""
    known = columns_of(made)
    window, target = made.window, made.target
    if window is not None:
        for index, name in enumerate(window.by):
            if name not in known:
                problems.add(f"window.by[{index}]", f"{name} is not a column; there are {', '.join(known)}")
        if window.time and window.time not in known:
            problems.add("window.time", f"{window.time} is not a column; there are {', '.join(known)}")
    results = ["start", "end", *window.by, *window.values] if window else known
    for index, name in enumerate(target.partition_by):
        if name not in results:
            problems.add(f"target.partition_by[{index}]", f"{name} is not a column; there are {', '.join(results)}")
    if target.partition_by and set(target.partition_by) >= set(results):
        problems.add("target.partition_by", "leaves no column for the files")
    if target.topic and target.encoding == JSON and target.key and target.key not in results:
        problems.add("target.key", f"{target.key} is not a column; there are {', '.join(results)}")
    raw = target.topic and target.encoding == RAW and not made.archives
    if raw and ("value" not in results or set(results) - {"value", "key", "headers"}):
        there = ", ".join(results)
        problems.add("target.encoding", f"a raw message has the columns value, key and headers; there are {there}")
    for where, names in (("parse.fields", made.parse.fields if made.parse else []), ("select.columns", made.columns)):
        lower = [name.lower() for name in names]
        for name in dict.fromkeys(one for one in lower if lower.count(one) > 1):
            problems.add(f"{where}.{name}", "is there twice: to Spark, capitals are the same letters")


def columns_of(made: Definition) -> list[str]:
    """Return the names of the columns before a window."""
    if made.columns:
        return list(made.columns)
    if made.parse is not None:
        return list(made.parse.fields)
    source = ["topic", "log", "offset", "message_id", "publisher", "counter", "stamp", "value", "key"]
    return [*source, *(["headers"] if made.headers else []), "date"]
