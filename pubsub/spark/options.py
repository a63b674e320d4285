"""The options of source and sink, checked when the query is built.

Options are pickled and travel to every executor, and Spark shows them when it describes a query. So no option is
secret except `secretKey`, which Spark hides because of its name. Names follow Kafka's connector where it has such an
option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.base.paths import expanded
from pubsub.config.addresses import read_proxies
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError, PubsubError
from pubsub.protocol.names import check_id, check_new_topic, check_topic, format_start, is_endpoint, parse_position
from pubsub.security.keys import format_public
from pubsub.spark.arrow import COLUMNS
from pubsub.spark.identity import READER, Identity, identity_of, proxy_keys_of

MILLISECONDS_MIN: Final = 10_000_000_000
"""Smallest number that counts as milliseconds since 1970, in April 1970. A smaller one is probably seconds."""

DELAY_SECONDS: Final = 900.0
"""Default of `maxTriggerDelay`, as in Kafka's source."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EDGES: Final = ("earliest", "latest")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}

SQL: Final = (
    "Spark hands the options of CREATE TABLE to no source in Python: use CREATE TEMPORARY VIEW … USING pubsub"
    " OPTIONS (…)"
)
"""Hint for a query without any option."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The topics to read, and the way to read them.

    Attributes:
        proxies: addresses of the proxies' client side.
        timeout: seconds after which an unanswered request ends the query.
        identity: client ID and keys.
        subscribe: the topics; empty if `pattern` selects them.
        pattern: a regular expression for the complete name of a topic.
        subscription: name of the stream's durable subscription; "" reads stored messages (batch only).
        group_prefix: begin of the name of a subscription that is made for the query; "" for none.
        starting, ending: "earliest", "latest", or these or positions by topic. Each of them may also be "@" and a
            timestamp in microseconds.
        records_max, bytes_max: limits of one micro-batch; 0 for no limit.
        records_min: number of records that a micro-batch waits for; 0 for none.
        delay_max: seconds after the last micro-batch at which the next one waits for no more records.
        partitions_min: minimum number of parts of a batch, however small; 0 for none.
        partitions_default: the same, but no part has fewer than 1,000 records; 0 takes the number of cores.
        part_records_max: maximum records of a part; 0 for the built-in limit.
        fail_on_data_loss: end the query if records are lost.
        columns: names of the columns of a row.
        take_over: continue a subscription that belongs to another query's checkpoint.
        sync_directories: directories of the driver's host that are synced before records are acknowledged.
    """

    proxies: tuple[str, ...]
    timeout: float
    identity: Identity
    subscribe: tuple[str, ...]
    pattern: str
    subscription: str
    starting: str | Mapping[str, str]
    ending: str | Mapping[str, str]
    records_max: int
    bytes_max: int
    partitions_min: int
    fail_on_data_loss: bool
    columns: tuple[str, ...] = COLUMNS
    take_over: bool = False
    group_prefix: str = ""
    records_min: int = 0
    delay_max: float = DELAY_SECONDS
    part_records_max: int = 0
    partitions_default: int = 0
    sync_directories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The target of rows.

    Attributes:
        proxies, timeout, identity: as in the source. The identity's ID together with the query's ID is the publisher.
        topic: topic of all rows; "" takes it from the column `topic`.
        sink: the sink's name, also the client ID if no other is given.
        batch: number of a batch job that may be repeated; None makes each run a new job.
    """

    proxies: tuple[str, ...]
    timeout: float
    identity: Identity
    topic: str
    sink: str
    batch: int | None


_COMMON: Final = {"proxies", "proxiesfile", "proxykeys", "clientid", "keyfile", "secretkey", "timeout", "path"}
_SOURCE: Final = _COMMON | {
    "subscribe",
    "subscribepattern",
    "subscription",
    "startingoffsets",
    "startingtimestamp",
    "groupidprefix",
    "endingoffsets",
    "endingtimestamp",
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "defaultpartitions",
    "maxrecordsperpartition",
    "failondataloss",
    "includeheaders",
    "takeover",
    "syncdirectories",
}
_EARLIER: Final = {"maxoffsetspertrigger": "maxrecordsperbatch", "maxbytespertrigger": "maxbytesperbatch"}
"""Names of options in earlier releases, by present name; they keep working."""

_STREAM: Final = {
    "groupidprefix": "spark.read keeps no position",
    "takeover": "spark.read acknowledges nothing",
    "syncdirectories": "spark.read acknowledges nothing",
    "minoffsetspertrigger": "spark.read has one batch",
    "maxtriggerdelay": "spark.read has one batch",
}
"""Options of streams, and why a batch job has none of them."""

_THEIRS: Final = {
    "kafka.bootstrap.servers": "proxies or proxiesFile",
    "kafka.group.id": "subscription",
    "assign": "subscribe",
    "startingoffsetsbytimestamp": "startingTimestamp or startingOffsets",
    "endingoffsetsbytimestamp": "endingTimestamp or endingOffsets",
    "kafkaconsumer.polltimeoutms": "timeout",
    "fetchoffset.numretries": "timeout",
}
"""Options of Kafka's source, and ours in their place (docs/how-to/spark-from-kafka.md)."""

_ENGINE: Final = {"path", "checkpointlocation", "queryname", "querytype"}
"""Options that Spark itself adds."""

_SINK: Final = _COMMON | _ENGINE | {"topic", "sink", "batchid"}
_SPELT: Final = {
    name.lower(): name
    for name in (
        "subscribePattern",
        "startingOffsets",
        "startingTimestamp",
        "endingOffsets",
        "endingTimestamp",
        "groupIdPrefix",
        "syncDirectories",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxRecordsPerPartition",
        "maxRecordsPerBatch",
        "maxBytesPerBatch",
        "minPartitions",
        "defaultPartitions",
        "failOnDataLoss",
        "includeHeaders",
        "takeOver",
        "batchId",
        "proxiesFile",
        "proxyKeys",
        "clientId",
        "keyFile",
        "secretKey",
    )
}

_SECRET: Final = re.compile(r"(?<![A-Za-z0-9_-])sk_[A-Za-z0-9_-]{40,}")
"""Matches a secret key, or nearly all of one."""


def source_options(options: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Parse the options of a source.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """
    given = _lowered(options, _SOURCE, set(_EARLIER.values()))
    subscribe = tuple(filter(None, (name.strip() for name in given.get("subscribe", "").split(","))))
    pattern = given.get("subscribepattern", "")
    if bool(subscribe) == bool(pattern):
        sql = "" if given else f"; {SQL}"
        raise ConfigurationError(f"give topics as option subscribe or as option subscribePattern, not both{sql}")
    subscription, prefix = given.get("subscription", ""), given.get("groupidprefix", "")
    _check_kind(given, stream=stream)
    try:
        for topic in subscribe:
            check_topic(topic)
        if subscription:
            check_id("subscription", subscription)
        if prefix:
            check_id("groupIdPrefix", f"{prefix}-{0:016x}")
        re.compile(pattern)
    except (PubsubError, re.error) as error:
        raise ConfigurationError(str(error)) from None
    proxies, keys = _proxies(given)
    return SourceOptions(
        proxies=proxies,
        timeout=_seconds(given),
        identity=identity_of(given, proxies, keys, READER),
        subscribe=tuple(sorted(set(subscribe))),
        pattern=pattern,
        subscription=subscription,
        starting=_edge(given, "starting", "latest" if stream else "earliest"),
        ending=_edge(given, "ending", "latest"),
        group_prefix=prefix,
        records_max=_count(given, "maxoffsetspertrigger"),
        records_min=_count(given, "minoffsetspertrigger"),
        delay_max=_delay(given),
        bytes_max=_count(given, "maxbytespertrigger"),
        partitions_min=_count(given, "minpartitions"),
        partitions_default=_count(given, "defaultpartitions"),
        part_records_max=_count(given, "maxrecordsperpartition"),
        fail_on_data_loss=_flag(given, "failondataloss", default=True),
        columns=(*COLUMNS, "headers") if _flag(given, "includeheaders", default=False) else COLUMNS,
        take_over=_flag(given, "takeover", default=False),
        sync_directories=_directories(given.get("syncdirectories", "")),
    )


def _directories(given: str) -> tuple[str, ...]:
    """Return the paths in a JSON list, or the only path.

    Raises:
        ConfigurationError: one of them is no absolute path.
    """
    try:
        paths = json.loads(given) if given.startswith("[") else [given] if given else []
    except ValueError:
        paths = [given]
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/"):
            raise ConfigurationError(
                f"option syncDirectories is {given}; give an absolute path, or a JSON list of these"
            )
    return tuple(paths)


def _check_kind(given: Mapping[str, str], *, stream: bool) -> None:
    """Check that the options are those of a stream, or of a batch job.

    Raises:
        ConfigurationError: one of them belongs to the other kind, or a stream has no subscription.
    """
    subscription = given.get("subscription", "")
    if stream:
        if subscription and given.get("groupidprefix", ""):
            raise ConfigurationError("give option subscription or option groupIdPrefix, not both")
        if not subscription and not given.get("groupidprefix", ""):
            raise ConfigurationError(
                "a stream needs option subscription, the durable name under which it continues, or groupIdPrefix"
            )
        for name in ("endingoffsets", "endingtimestamp"):
            if name in given:
                raise ConfigurationError(f"option {_SPELT[name]} is for spark.read only, because a stream has no end")
        return
    for name, why in _STREAM.items():
        if name in given:
            raise ConfigurationError(f"option {_SPELT[name]} is for streams only, because {why}")


def includes_headers(options: Mapping[str, str]) -> bool:
    """Return True if a source's options ask for the column of headers.

    Raises:
        ConfigurationError: the option is neither true nor false.
    """
    return _flag({name.lower(): value for name, value in options.items()}, "includeheaders", default=False)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a sink.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """
    given = _lowered(options, _SINK)
    topic, sink = given.get("topic", ""), given.get("sink", "spark")
    try:
        if topic:
            check_new_topic(topic)
        check_id("sink", sink)
    except PubsubError as error:
        raise ConfigurationError(str(error)) from None
    batch = _count(given, "batchid") if "batchid" in given else None
    if batch is not None and "sink" not in given:
        raise ConfigurationError("option batchId needs option sink, because the two together identify a repeat")
    proxies, keys = _proxies(given)
    return SinkOptions(
        proxies=proxies,
        timeout=_seconds(given),
        identity=identity_of(given, proxies, keys, sink),
        topic=topic,
        sink=sink,
        batch=batch,
    )


def _lowered(options: Mapping[str, str], known: set[str], earlier: Set[str] = frozenset()) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given.keys() - known - earlier):
        spelt = ", ".join(sorted(_SPELT.get(each, each) for each in known - _ENGINE))
        if ours := _THEIRS.get(name):
            raise ConfigurationError(f"option {name} is Kafka's; ours is {ours}")
        raise ConfigurationError(f"option {name} is not known; the options are {spelt}")
    for name in sorted(given.keys() - {"secretkey"}):
        if _SECRET.search(given[name]):
            raise ConfigurationError(
                f"option {_SPELT.get(name, name)} holds a secret key (sk_), which Spark shows there: make a new key,"
                " and give it as option keyFile or secretKey"
            )
    return given


def _proxies(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the proxies' addresses, and their public keys as text, () without keys."""
    if file := given.get("proxiesfile", ""):
        if given.get("proxies") or given.get("proxykeys"):
            raise ConfigurationError("option proxiesFile has the proxies and their keys; drop proxies and proxyKeys")
        listed = read_proxies(expanded(file))
        keys = (",".join(map(format_public, proxy.keys)) for proxy in listed if proxy.keys)
        return tuple(proxy.clients for proxy in listed), tuple(keys)
    default = next(field.default for field in fields(ClientSettings) if field.name == "proxies")
    proxies = tuple(filter(None, (text.strip() for text in given.get("proxies", "").split(",")))) or default
    assert isinstance(proxies, tuple)
    for proxy in proxies:
        if not is_endpoint(proxy):
            raise ConfigurationError(f"option proxies: {proxy} is not an address such as tcp://host:5601")
    return proxies, proxy_keys_of(given.get("proxykeys", ""), proxies)


def _seconds(given: Mapping[str, str]) -> float:
    text = given.get("timeout", "30")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ConfigurationError(f"option timeout is {text}; give a number of seconds, such as 30")
    return value


def _count(given: Mapping[str, str], name: str) -> int:
    earlier = _EARLIER.get(name, "")
    if earlier in given:
        if name in given:
            raise ConfigurationError(f"options {_SPELT[name]} and {_SPELT[earlier]} are one option; give the first")
        name = earlier
    text = given.get(name, "0")
    if not re.fullmatch("[0-9]{1,15}", text):
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; give a whole number")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; give true or false")
    return text == "true"


def _delay(given: Mapping[str, str]) -> float:
    """Return the seconds of `maxTriggerDelay`."""
    text = given.get("maxtriggerdelay", f"{DELAY_SECONDS:g}s").strip().lower()
    found = re.fullmatch(r"([0-9]{1,9})(ms|s|m|min|h|d)", text)
    if found is None:
        raise ConfigurationError(f"option maxTriggerDelay is {text}; give a time such as 30s, 15m or 1h")
    return int(found[1]) * _UNITS[found[2]]


def _edge(given: Mapping[str, str], which: str, default: str) -> str | dict[str, str]:
    """Return the begin or the end: of `startingTimestamp` or `startingOffsets`, and so on.

    Args:
        which: "starting" or "ending".
    """
    text = given.get(f"{which}timestamp")
    if text is None:
        return _offsets(given, f"{which}offsets", default)
    if f"{which}offsets" in given:
        raise ConfigurationError(f"give option {which}Timestamp or option {which}Offsets, not both")
    try:
        if text.isdecimal():  # As in Kafka's source.
            milliseconds = int(text)
            if not MILLISECONDS_MIN <= milliseconds <= NUMBER_MAX // 1000:
                raise ValueError
            return format_start(milliseconds * 1000)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return format_start(max(1, (moment - _EPOCH) // timedelta(microseconds=1)))
    except ValueError:
        raise ConfigurationError(
            f"option {which}Timestamp is {text[:80]}; give milliseconds since 1970, or a time with its zone such as"
            " 2026-11-01T00:00:00Z"
        ) from None


def _offsets(given: Mapping[str, str], name: str, default: str) -> str | dict[str, str]:
    text = given.get(name, default)
    if text in _EDGES:
        return text
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError
        for topic, value in found.items():
            check_topic(topic)
            if value not in _EDGES and parse_position(value) is None:
                raise ValueError
    except (ValueError, TypeError, AttributeError, PubsubError):
        raise ConfigurationError(
            f"option {_SPELT[name]} is {text[:80]}; give earliest, latest, or JSON such as"
            ' {"topic": "earliest"} or {"topic": "0123456789abcdef.17"}'
        ) from None
    return found
