"""The options of source and sink, checked where the query is built: what is wrong is said in one sentence.

Options travel, pickled, to every executor, and Spark shows them where it describes a query; so none of them is a secret
but `secretKey`, which Spark leaves out for its name. (Names are those that people know from Kafka's connector, where
there is one.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from pubsub.base.paths import expanded
from pubsub.config.addresses import read_proxies
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError, PubsubError
from pubsub.protocol.names import check_id, check_new_topic, check_topic, is_endpoint, parse_position
from pubsub.security.keys import format_public
from pubsub.spark.identity import READER, Identity, identity_of, proxy_keys_of

_EDGES: Final = ("earliest", "latest")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What is read, and how.

    Attributes:
        proxies: addresses of the proxies' client side.
        timeout: seconds after which a request that nobody settles ends the query.
        identity: who asks, and by which keys.
        subscribe: the topics; empty: those that `pattern` matches.
        pattern: a regular expression that a topic's whole name matches.
        subscription: the durable name under which a stream stands; "": what is stored is read (batch only).
        starting, ending: "earliest", "latest", or positions by topic.
        records_max, bytes_max: of one micro-batch; 0: no limit.
        partitions_min: into how many parts a batch is cut at least, where it has enough records; 0: by the cores.
        fail_on_data_loss: whether lost records end the query.
        headers: whether there is a column of them.
        take_over: whether a stream goes on under a subscription that belongs to another query's checkpoint.
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
    """Where rows go.

    Attributes:
        proxies, timeout, identity: as of the source. The identity's ID, with the query's, is the publisher.
        topic: of all rows; "": the column `topic` says it.
        sink: the sink's name, which is the ID of who asks where no other is given.
        batch: of a batch job that may be run again: its number; None: each run is another job.
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
    "endingoffsets",
    "maxrecordsperbatch",
    "maxbytesperbatch",
    "minpartitions",
    "failondataloss",
    "includeheaders",
    "takeover",
}
_ENGINE: Final = {"path", "checkpointlocation", "queryname", "querytype"}
"""What Spark itself puts among a format's options."""

_SINK: Final = _COMMON | _ENGINE | {"topic", "sink", "batchid"}
_SPELT: Final = {
    name.lower(): name
    for name in (
        "subscribePattern",
        "startingOffsets",
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
"""What is a secret key, or nearly all of one."""


def source_options(options: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """The options of a source.

    Raises:
        ConfigurationError: one is unknown, missing or not what it must be.
    """
    given = _lowered(options, _SOURCE)
    subscribe = tuple(filter(None, (name.strip() for name in given.get("subscribe", "").split(","))))
    pattern = given.get("subscribepattern", "")
    if bool(subscribe) == bool(pattern):
        raise ConfigurationError("name topics by option subscribe, or by option subscribePattern, and not by both")
    subscription = given.get("subscription", "")
    if stream and not subscription:
        raise ConfigurationError("a stream needs option subscription: the durable name under which it goes on")
    if stream and "endingoffsets" in given:
        raise ConfigurationError("option endingOffsets is for spark.read; a stream has no end")
    if not stream and "takeover" in given:
        raise ConfigurationError("option takeOver is for a stream; spark.read acknowledges nothing")
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
        starting=_offsets(given, "startingoffsets", "latest" if stream else "earliest"),
        ending=_offsets(given, "endingoffsets", "latest"),
        records_max=_count(given, "maxrecordsperbatch"),
        bytes_max=_count(given, "maxbytesperbatch"),
        partitions_min=_count(given, "minpartitions"),
        fail_on_data_loss=_flag(given, "failondataloss", default=True),
        headers=_flag(given, "includeheaders", default=False),
        take_over=_flag(given, "takeover", default=False),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether a source's options ask for the column of headers.

    Raises:
        ConfigurationError: they say neither true nor false.
    """
    return _flag({name.lower(): value for name, value in options.items()}, "includeheaders", default=False)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a sink.

    Raises:
        ConfigurationError: one is unknown, missing or not what it must be.
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
        raise ConfigurationError("option batchId needs option sink: the two together are what a repeat is told by")
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
        raise ConfigurationError(f"option {name} is not known; there are {spelt}")
    for name in sorted(given.keys() - {"secretkey"}):
        if _SECRET.search(given[name]):
            raise ConfigurationError(
                f"option {_SPELT.get(name, name)} holds a secret key (sk_), which Spark shows there: make a new one,"
                " and give it by option keyFile, or secretKey"
            )
    return given


def _proxies(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The proxies' addresses, and their public keys as text, () where they have none."""
    if file := given.get("proxiesfile", ""):
        if given.get("proxies") or given.get("proxykeys"):
            raise ConfigurationError("option proxiesFile names the proxies and their keys; drop proxies and proxyKeys")
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
        raise ConfigurationError(f"option timeout is {text}; it is a number of seconds, such as 30")
    return value


def _count(given: Mapping[str, str], name: str) -> int:
    text = given.get(name, "0")
    if not re.fullmatch("[0-9]{1,15}", text):
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; it is a whole number")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"option {_SPELT[name]} is {text}; it is true or false")
    return text == "true"


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
            f"option {_SPELT[name]} is {text[:80]}; it is earliest, latest, or JSON such as"
            ' {"topic": "earliest"} or {"topic": "0123456789abcdef.17"}'
        ) from None
    return found
