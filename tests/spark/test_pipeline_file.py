"""The file of a pipeline: each mistake is one line with its key, and a right file says what it means. Without Spark."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.cli import main
from pubsub.errors import CallerError, Unavailable
from pubsub.spark.defined import columns_read
from pubsub.spark.pipeline_file.definition import (
    Definition,
    Parse,
    PipelineFileRefused,
    Run,
    Target,
    Window,
    parse_definition,
    read_definition,
)
from pubsub.spark.pipeline_file.tables import Problems
from pubsub.spark.pipeline_file.types import check_type
from tests.examples.programs import EXAMPLES

SOURCE = {"source": {"topics": ["a"]}}
TO_TOPIC = SOURCE | {"target": {"topic": "b"}}
TO_FILES = SOURCE | {"target": {"directory": "d"}}
FROM_ARCHIVE = {"source": {"archive": "a"}, "target": {"topic": "b"}}
FIELDS = {"parse": {"fields": {"id": "long", "at": "timestamp"}}}


def problems(given: dict[str, Any]) -> list[str]:
    found = Problems()
    parse_definition(given, found)
    return list(found)


def made(given: dict[str, Any]) -> Definition:
    found = Problems()
    definition = parse_definition(given, found)
    assert found == []
    return definition


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ['source: is missing; write [source] and topics = ["…"]',
              'target: is missing; write [target] and topic = "…" or directory = "…"']),
        (TO_TOPIC | {"sauce": {}}, ["sauce: is not known; did you mean source?"]),
        (TO_TOPIC | {"source": "a"}, ['source: is "a"; write a table [source]', 'source: is missing; write [source] and'
                                       ' topics = ["…"]']),
        (TO_TOPIC | {"source": {}}, ["source.topics: is missing"]),
        (TO_TOPIC | {"source": {"topics": []}}, ['source.topics: is []; give a list, such as ["a", "b"]']),
        (TO_TOPIC | {"source": {"topics": ["a", 1]}}, ['source.topics[1]: is 1; give a text in quotes, such as "a"']),
        (TO_TOPIC | {"source": {"topics": ["a", "a"]}}, ["source.topics[1]: a is listed twice"]),
        (TO_TOPIC | {"source": {"topics": ["a,b"]}}, ["source.topics[0]: topic a,b has a comma in its name, and Spark's"
                                                      " option separates topics by commas"]),
        (TO_TOPIC | {"source": {"topics": ["a"], "headers": 1}}, ["source.headers: is 1; give true or false"]),
        (TO_TOPIC | {"parse": {}},
         ['parse.fields: is missing; write [parse.fields] and a line such as id = "long" for each field']),
        (TO_TOPIC | {"parse": {"fields": {"id": "number", "a b": "long", "message": "long"}}},
         ["parse.fields.id: number is not a type; give string, boolean, byte, short, int, long, float, double, date,"
          " timestamp, binary, decimal(P,S), array<T>, map<string,T> or struct<name: T, …>",
          "parse.fields.a b: a b is not a name of letters, digits and _; JSON's other names cannot be columns here",
          "parse.fields.message: has the name of the source's columns; rename it in the messages"]),
        (TO_TOPIC | {"parse": FIELDS["parse"] | {"required": ["x"]}}, ["parse.required[0]: x is not in parse.fields"]),
        (TO_TOPIC | {"parse": FIELDS["parse"] | {"unparsed": "skip"}},
         ["parse.unparsed: is skip; allowed: fail, drop, dead-topic"]),
        (TO_TOPIC | {"parse": FIELDS["parse"] | {"unparsed": "dead-topic"}},
         ['parse.dead_topic: is missing; unparsed = "dead-topic" needs the topic']),
        (TO_TOPIC | {"parse": FIELDS["parse"] | {"dead_topic": "x"}},
         ['parse.dead_topic: needs unparsed = "dead-topic"']),
        (TO_TOPIC | {"parse": {"fields": {"id": "long", "ID": "long"}}},
         ["parse.fields.id: is there twice: to Spark, capitals are the same letters"]),
        (TO_TOPIC | FIELDS | {"window": {}}, ["window.length: is missing"]),
        (TO_TOPIC | FIELDS | {"window": {"length": "1x"}},
         ["window.length: the window is 1x; give a number and s, m, h or d, such as 1h"]),
        (TO_TOPIC | FIELDS | {"window": {"length": "1h", "time": "when", "by": ["kind"]}},
         ["window.by[0]: kind is not a column; there are id, at",
          "window.time: when is not a column; there are id, at"]),
        (TO_TOPIC | FIELDS | {"window": {"length": "1h", "by": ["id"], "values": {"id": "count(*)"}}},
         ["window.values.id: has the name of another column of the result"]),
        (SOURCE | {"target": {}}, ["target.topic: is missing; give it, or directory"]),
        (SOURCE | {"target": {"topic": "b", "directory": "d"}},
         ["target.topic: and target.directory are both given; give one"]),
        (SOURCE | {"target": {"topic": "b", "format": "delta"}}, ["target.format: needs target.directory"]),
        (SOURCE | {"target": {"directory": "d", "key": "x"}}, ["target.key: needs target.topic"]),
        (SOURCE | {"target": {"directory": "d", "format": "csv"}}, ["target.format: is csv; allowed: parquet, delta"]),
        (SOURCE | {"target": {"directory": "d", "partition_by": ["x"]}},
         ["target.partition_by[0]: x is not a column; there are topic, log, offset, message_id, publisher, counter,"
          " stamp, value, key, date"]),
        (SOURCE | FIELDS | {"target": {"directory": "d", "partition_by": ["id", "at"]}},
         ["target.partition_by: leaves no column for the files"]),
        (SOURCE | FIELDS | {"target": {"topic": "b", "encoding": "raw"}},
         ["target.encoding: a raw message has the columns value, key and headers; there are id, at"]),
        (SOURCE | {"target": {"topic": "b", "key": "key"}},
         ['target.key: needs encoding = "json"; a raw message has the column key as its key']),
        (TO_TOPIC | {"run": {"batch": -1, "every": "1", "restarts": True, "name": "a b", "conf": {"x": "1"}}},
         ["run.name: pipeline name 'a b' is not allowed: 1-64 of A-Z a-z 0-9 . _ - and not . or ..",
          'run.every: is "1"; give a number from 0 to 86,400',
          "run.batch: is -1; give a whole number from 0 to 1,000,000,000,000",
          "run.restarts: is true; give a whole number from 0 to 1,000",
          'run.conf.x: is not a setting of Spark; write "spark.NAME" = "VALUE"']),
        (FROM_ARCHIVE | {"source": {"archive": "a", "headers": True}, "window": {"length": "1h"}, "run": {"batch": 1}},
         ["source.headers: needs topics that are read; a replay of source.archive puts values and keys",
          "run.batch: is of a stream, and source.archive is none; leave it out",
          "window: groups a stream, and source.archive is none; leave the table out"]),
        (FROM_ARCHIVE | {"parse": {"fields": {"id": "long"}, "unparsed": "dead-topic", "dead_topic": "x"}},
         ['parse.unparsed: with source.archive is "fail" or "drop"']),
        (FROM_ARCHIVE | {"target": {"directory": "d"}},
         ["target.directory: cannot be the target of source.archive; give target.topic"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_the_key(given: dict[str, Any], said: list[str]) -> None:
    assert problems(given) == said
    assert not any("\n" in one for one in said)


ALL = ["topic", "log", "offset", "message_id", "publisher", "counter", "stamp", "value", "key"]


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({}, ALL),
        ({"select": {"where": "counter > 1"}}, ALL),
        ({"parse": {"fields": {"id": "long"}, "unparsed": "drop"}}, ["stamp", "value"]),
        ({"parse": {"fields": {"id": "long"}}}, ["topic", "message_id", "stamp", "value"]),
        ({"select": {"columns": {"x": "COUNTER + 1", "y": "message.`log`"}}}, ALL),
        ({"select": {"columns": {"x": "COUNTER + 1", "y": "Message.Log"}}}, ["log", "counter", "stamp"]),
        ({"select": {"columns": {"x": "counter + 1"}, "where": "key IS NULL"}}, ["counter", "stamp", "key"]),
        ({"select": {"columns": {"x": "to_json(struct(*))"}}}, ALL),
        ({"select": {"columns": {"x": "to_json(message)"}}}, ALL),
        ({"select": {"columns": {"x": "IDENTIFIER('ke' || 'y')"}}}, ALL),
        ({"select": {"columns": {"x": "message_id"}}}, ["message_id", "stamp"]),
        ({"source": {"topics": ["a"], "headers": True}, "select": {"columns": {"x": "headers"}}}, ["stamp", "headers"]),
    ],
)  # fmt: skip
def test_only_needed_columns_are_read(given: dict[str, Any], columns: list[str]) -> None:
    assert re.findall(r"(?:^|, )(\w+) ", columns_read(made(TO_TOPIC | given))) == columns


def test_a_file_says_what_the_pipeline_does() -> None:
    assert made(FROM_ARCHIVE) == Definition(topics=(), archive="a", target=Target(topic="b", encoding="raw"))
    assert made(TO_FILES) == Definition(
        topics=("a",), target=Target(directory="d", encoding="raw", partition_by=("topic", "date"))
    )
    assert made(TO_FILES).archives
    given = {
        "source": {"topics": ["a", "b"], "headers": True},
        "parse": {"fields": {"id": "long", "at": "timestamp"}, "required": ["id"], "unparsed": "drop"},
        "select": {"columns": {"id": "id", "kind": "id % 2", "at": "at"}, "where": "id > 0"},
        "window": {"length": "month", "time": "at", "late": "2d", "by": ["kind"], "values": {"n": "count(*)"}},
        "target": {"topic": "c", "key": "kind"},
        "run": {"name": "n", "checkpoint": "c", "every": 1.5, "batch": 0, "restarts": 0, "master": "yarn",
                "conf": {"spark.x": "1"}},
    }  # fmt: skip
    assert made(given) == Definition(
        topics=("a", "b"),
        headers=True,
        parse=Parse(fields={"id": "long", "at": "timestamp"}, required=("id",), unparsed="drop"),
        columns={"id": "id", "kind": "id % 2", "at": "at"},
        where="id > 0",
        window=Window(length="month", time="at", late="2d", by=("kind",), values={"n": "count(*)"}),
        target=Target(topic="c", key="kind"),
        run=Run(name="n", checkpoint="c", every=1.5, batch=0, restarts=0, master="yarn", conf={"spark.x": "1"}),
    )


@pytest.mark.parametrize(
    "text", ["string", "decimal(38,38)", "array<map<string, struct<a: long, b:array<int>>>>", "LONG "]
)
def test_a_type_of_json_is_known(text: str) -> None:
    assert check_type(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "text", "decimal", "decimal(39,1)", "decimal(2,3)", "decimal(0,0)", "array", "array<>", "array<long", "long>",
     "map<long,long>", "struct<>", "struct<a>", "struct<a: long,>", "long; drop", "array<" * 30 + "long" + ">" * 30],
)  # fmt: skip
def test_another_type_is_refused(text: str) -> None:
    with pytest.raises(CallerError):
        check_type(text)


def test_the_examples_are_right_files() -> None:
    for file in sorted((EXAMPLES / "pipelines").glob("*.toml")):
        assert read_definition(str(file)).topics, file


def test_a_wrong_file_ends_the_command_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.toml"
    assert main(["pipeline", "run", str(file)]) == 2
    assert capsys.readouterr().err == f"pubsub: error: {file}: No such file or directory\n"
    file.write_text("[source]\ntopics = ['a']\nfrom = 1\n[target]\ntopics = 'b'\n")
    said = [
        "source.from: is not known; allowed: archive, topics, headers",
        "target.topic: is missing; give it, or directory",
        "target.topics: is not known; did you mean topic?",
    ]
    assert main(["pipeline", "run", str(file)]) == PipelineFileRefused.exit_code == 45
    assert capsys.readouterr().err == (
        f"pubsub: error: {file}: {said[0]} (and 2 more: pubsub pipeline run --check lists them)\n"
    )
    assert main(["pipeline", "run", str(file), "--check"]) == 45
    assert capsys.readouterr().err.splitlines() == [f"{file}: {one}" for one in said]
    file.write_text("source = [")
    assert main(["pipeline", "run", str(file), "--check"]) == 45
    assert capsys.readouterr().err.startswith(f"{file}: is not TOML: ")
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    assert main(["pipeline", "run", str(file)]) == 2
    assert "at most 1,048,576 bytes" in capsys.readouterr().err


def test_restarts_follow_errors_that_pass_and_no_others() -> None:
    from pubsub.spark.pipelines import PipelineFailed, failure
    from pubsub.spark.supervising import Restarts

    away = Unavailable("subscribe", "a", 30.0, "no proxy answers")
    crashed = failure(RuntimeError("Job aborted\n\tat x\nCaused by: SparkException: Python worker exited unexpectedly"))
    restarts = Restarts(3)
    assert restarts.pause(PipelineFailed("no such column"), 0) is None
    assert [restarts.pause(error, 0) for error in (away, crashed, away, away)] == [1.0, 2.0, 4.0, None]
    assert restarts.pause(away, 7) == 1.0, "a batch was written since"
    assert restarts.count == 4
    many = Restarts(100)
    assert [many.pause(away, 0) for _ in range(8)][-2:] == [60.0, 60.0]
    assert Restarts(0).pause(away, 0) is None


def test_the_metrics_of_a_pipeline_are_served() -> None:
    from threading import Thread

    from pubsub.cli.defined import _give
    from pubsub.metrics.serving import Metrics
    from pubsub.spark.pipelines import Totals
    from pubsub.spark.supervising import Restarts

    pages = Metrics("127.0.0.1:0", lambda: None)
    try:
        pages.handover.started = True
        read: list[str] = []
        reader = Thread(target=lambda: read.append(urllib.request.urlopen(pages.url, timeout=30).read().decode()))
        reader.start()
        while reader.is_alive():
            _give(pages, "hourly", Totals(batches=2, messages=7, seconds=1.5, observed={"unparsed": 3}), Restarts(5, 1))
            reader.join(0.01)
    finally:
        pages.close()
    for line in (
        'pubsub_process_info{id="hourly",role="pipeline"',
        "pubsub_pipeline_messages_total 7.0",
        "pubsub_pipeline_unparsed_total 3.0",
        "pubsub_pipeline_restarts_total 1.0",
        "pubsub_pipeline_run_seconds 1.5",
    ):
        assert line in read[0]


KEYS = """
source topics headers parse fields required unparsed dead_topic select where columns window length time late by values
target topic encoding key directory format partition_by run name checkpoint every batch restarts master conf id
"""
NAMES = st.sampled_from(re.findall(r"\w+", KEYS))
LEAVES = st.one_of(
    st.sampled_from(["a", "id", "long", "1h", "drop", "dead-topic", "raw", "delta", ""]),
    st.integers(-2, 10**13), st.booleans(), st.floats(), st.text(max_size=4),
)  # fmt: skip
CONTENT = st.dictionaries(
    NAMES,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5)),
    max_size=6,
)


@given(CONTENT)
def test_any_content_is_a_definition_or_has_problems_of_one_line(content: dict[str, Any]) -> None:
    found = Problems()
    definition = parse_definition(content, found)
    assert all(": " in one and "\n" not in one for one in found)
    assert found or (definition.topics and bool(definition.target.topic) != bool(definition.target.directory))
