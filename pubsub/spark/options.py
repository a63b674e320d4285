"""The options of source and sink, checked when the query is built.

Options are pickled and travel to every executor, and Spark shows them when it describes a query. So no option is
secret except `secretKey`, which Spark hides because of its name. Names follow Kafka's connector where it has such an
option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
from pubsub.spark.identity import READER, Identity, identity_of, proxy_keys_of

MILLISECONDS_MIN: Final = 10_000_000_000
"""Smallest number that counts as milliseconds since 1970, in April 1970. A smaller one is probably seconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EDGES: Final = ("earliest", "latest")


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
        starting, ending: "earliest", "latest", or positions by topic. Where a position stands, `starting` may also have
            "@" and a timestamp in microseconds.
        records_max, bytes_max: limits of one micro-batch; 0 for no limit.
        partitions_min: minimum number of parts of a batch, if it has enough records; 0 takes the number of cores.
        fail_on_data_loss: end the query if records are lost.
        headers: add a column of headers.
        take_over: continue a subscription that belongs to another query's checkpoint.
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
    headers: bool = False
    take_over: bool = False


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
    "endingoffsets",
    "maxrecordsperbatch",
    "maxbytesperbatch",
    "minpartitions",
    "failondataloss",
    "includeheaders",
    "takeover",
}
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
        "maxRecordsPerBatch",
        "maxBytesPerBatch",
        "minPartitions",
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
    given = _lowered(options, _SOURCE)
    subscribe = tuple(filter(None, (name.strip() for name in given.get("subscribe", "").split(","))))
    pattern = given.get("subscribepattern", "")
    if bool(subscribe) == bool(pattern):
        raise ConfigurationError("give topics as option subscribe or as option subscribePattern, not both")
    subscription = given.get("subscription", "")
    if stream and not subscription:
        raise ConfigurationError("a stream needs option subscription, the durable name under which it continues")
    if stream and "endingoffsets" in given:
        raise ConfigurationError("option endingOffsets is for spark.read only, because a stream has no end")
    if not stream and "takeover" in given:
        raise ConfigurationError("option takeOver is for streams only, because spark.read acknowledges nothing")
    try:
        for topic in subscribe:
            check_topic(topic)
        if subscription:
            check_id("subscription", subscription)
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
        starting=_starting(given, "latest" if stream else "earliest"),
        ending=_offsets(given, "endingoffsets", "latest"),
        records_max=_count(given, "maxrecordsperbatch"),
        bytes_max=_count(given, "maxbytesperbatch"),
        partitions_min=_count(given, "minpartitions"),
        fail_on_data_loss=_flag(given, "failondataloss", default=True),
        headers=_flag(given, "includeheaders", default=False),
        take_over=_flag(given, "takeover", default=False),
    )


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


def _lowered(options: Mapping[str, str], known: set[str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given.keys() - known):
        spelt = ", ".join(sorted(_SPELT.get(each, each) for each in known - _ENGINE))
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
    text = given.get(name, "0")
    if not re.fullmatch("[0-9]{1,15}", text):
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; give a whole number")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; give true or false")
    return text == "true"


def _starting(given: Mapping[str, str], default: str) -> str | dict[str, str]:
    """Return the begin: of `startingTimestamp`, or of `startingOffsets`."""
    text = given.get("startingtimestamp")
    if text is None:
        return _offsets(given, "startingoffsets", default)
    if "startingoffsets" in given:
        raise ConfigurationError("give option startingTimestamp or option startingOffsets, not both")
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
            f"option startingTimestamp is {text[:80]}; give milliseconds since 1970, or a time with its zone such as"
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
