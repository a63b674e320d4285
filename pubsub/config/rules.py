"""Define one rule for each setting, for every role and every source of the value.

A rule converts a value, or raises ValueError with the allowed values. The value is text from a flag or an environment
variable, or a text, number, truth value or list from a TOML file. A rule's help is the setting's help on the command
line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pubsub.base.limits import NUMBER_MAX, PROXIES_MAX
from pubsub.base.paths import expanded
from pubsub.config.addresses import check_address, check_http_address, parse_keys
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import ConfigurationError, InvalidName, without_secrets
from pubsub.protocol.names import check_id
from pubsub.protocol.topic_defaults import DEFAULTS_MAX, FORM, TopicDefault, make_default, parse_default

_SIZE: Final = re.compile(r"([0-9][0-9_]*) ?(KiB|MiB|GiB|TiB)?")
_UNITS: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_WHOLE: Final = re.compile(r"-?[0-9][0-9_,]*")
_TRUTH: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One setting.

    Attributes:
        parse: converts a given value; raises ValueError with the allowed values.
        help: description for a person.
        optional: "" or "none" means None.
    """

    parse: Callable[[object], object]
    help: str
    optional: bool = False

    def value(self, given: object) -> object:
        """Convert a given value.

        Raises:
            ValueError: it is not allowed; the text names the allowed values.
        """
        if self.optional and isinstance(given, str) and given.strip().lower() in {"", "none"}:
            return None
        return self.parse(given)


def _whole(least: int, most: int, unit: str) -> Callable[[object], int]:
    def parse(given: object) -> int:
        if isinstance(given, str) and _WHOLE.fullmatch(given.strip()):
            given = int(given.strip().replace("_", "").replace(",", ""))
        if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
            raise ValueError(f"a whole number of {unit} from {least:,} to {most:,}")
        return given

    return parse


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def parse(given: object) -> float:
        allowed = f"a number of seconds from {least:g} to {most:g}"
        if isinstance(given, str):
            try:
                given = float(given)
            except ValueError:
                raise ValueError(allowed) from None
        if not isinstance(given, int | float) or isinstance(given, bool) or not math.isfinite(given):
            raise ValueError(allowed)
        if not least <= given <= most:
            raise ValueError(allowed)
        return float(given)

    return parse


def _size(least: int, most: int = NUMBER_MAX) -> Callable[[object], int]:
    def parse(given: object) -> int:
        if isinstance(given, str) and (match := _SIZE.fullmatch(given.strip())):
            given = int(match[1].replace("_", "")) * _UNITS[match[2]]
        if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
            raise ValueError(f"bytes from {least:,} to {most:,}, such as 1048576 or 1 MiB (KiB, MiB, GiB, TiB)")
        return given

    return parse


def _truth(given: object) -> bool:
    value = _TRUTH.get(given.strip().lower()) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _letters(given: object) -> str:
    if given not in ("table", "topic"):
        raise ValueError("table or topic")
    return str(given)


def _id(given: object) -> str:
    try:
        return check_id("ID", given if isinstance(given, str) else "")
    except InvalidName as error:
        raise ValueError(error.rule) from None


def _bound(given: object) -> str:
    return check_address(given, bind=True)


def _addresses(given: object) -> tuple[str, ...]:
    """Parse addresses; in a text, commas or spaces separate them."""
    words = given.replace(",", " ").split() if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not 0 < len(words) <= PROXIES_MAX:
        raise ValueError(f"1-{PROXIES_MAX} addresses")
    found = tuple(check_address(word) for word in words)
    if len(set(found)) < len(found):
        raise ValueError("each address once")
    return found


def _proxy_keys(given: object) -> tuple[str, ...]:
    """Parse keys; in a text, spaces separate proxies and commas separate the keys of one proxy."""
    words = given.split() if isinstance(given, str) else given
    if (
        not isinstance(words, list | tuple)
        or len(words) > PROXIES_MAX
        or not all(isinstance(one, str) for one in words)
    ):
        raise ValueError(f"at most {PROXIES_MAX} public keys, pk_…")
    for word in words:
        parse_keys(word)
    return tuple(words)


def _path(given: object) -> Path:
    if not isinstance(given, Path):
        given = _path_of(given)
    try:
        return expanded(given)
    except ConfigurationError as error:
        raise ValueError(f"a path; {error}") from None


def _path_of(given: object) -> Path:
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise ValueError("a path")
    if without_secrets(given) != given:
        raise ValueError("a path; put the secret key into a file, and name the file")
    return Path(given)


def _database(given: object) -> DatabaseUrl:
    return DatabaseUrl(given)  # type: ignore[arg-type]


def _topic_defaults(given: object) -> tuple[str, ...]:
    """Parse the rules; in a text, semicolons separate them. In a file each is a table with `match` and settings."""
    words = given.split(";") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or len(words) > DEFAULTS_MAX:
        raise ValueError(f"at most {DEFAULTS_MAX:,} times {FORM}")
    return tuple(str(_topic_default(word)) for word in words)


def _topic_default(given: object) -> TopicDefault:
    if isinstance(given, dict):
        return make_default(given.get("match"), {name: value for name, value in given.items() if name != "match"})
    if not isinstance(given, str):
        raise ValueError(FORM)
    return parse_default(given)


_count: Final = _whole(1, 10**9, "entries")

RULES: Final[Mapping[str, Rule]] = {
    "heartbeat_seconds": Rule(_seconds(0.01, 3600), "Time between heartbeats on an idle connection."),
    "liveness": Rule(_whole(1, 1000, "heartbeats"), "Heartbeats missed in a row after which a peer counts as dead."),
    "id": Rule(_id, "Its name: 1-64 of A-Z a-z 0-9 . _ -"),
    "bind": Rule(_bound, "Address to listen on; port 0 takes a free one."),
    "servers": Rule(_bound, "Address for servers; none: the address for clients.", optional=True),
    "advertise": Rule(check_address, "Address to announce to others; none: the one listened on.", optional=True),
    "proxies": Rule(_addresses, "Address of a proxy; once for each."),
    "proxy_keys": Rule(_proxy_keys, "Public key of a proxy, pk_…; once for each, in the order of the proxies."),
    "key_file": Rule(
        _path, "File with its secret key; none: the key file in its state directory, if any.", optional=True
    ),
    "authorized": Rule(_path, "Access list: file of the accepted keys and their rights.", optional=True),
    "audit_file": Rule(
        _path, "File for entries, refusals, denials and operators' actions; none: no such file.", optional=True
    ),
    "insecure": Rule(_truth, "Listen without keys, also on an address that other hosts can reach."),
    "metrics": Rule(
        check_http_address,
        "HOST:PORT to serve metrics over HTTP; port 0 takes a free one; none: no metrics.",
        optional=True,
    ),
    "directory": Rule(_path, "State directory."),
    "database": Rule(
        _database,
        "URL of the PostgreSQL database that keeps the client's state, postgresql://…; none: a file.",
        optional=True,
    ),
    "startup_wait_seconds": Rule(
        _seconds(0, 3600), "Time after its start without assigning topics; none: one full liveness.", optional=True
    ),
    "announce_seconds": Rule(_seconds(0.05, 3600), "Time between full announcements."),
    "retention_hold_seconds": Rule(_seconds(0, 10**9), "Least time that a record stays, with or without subscribers."),
    "skew_seconds": Rule(_seconds(0, 3600), "Largest difference between two servers' clocks."),
    "backlog_bytes_max": Rule(_size(1), "Bytes waiting in one topic above which puts are answered full."),
    "history_bytes_max": Rule(_size(1), "Consumed bytes of one topic that stay while it may have several owners."),
    "store_bytes_max": Rule(_size(0), "Database bytes above which the disk counts as full; 0: the disk's own limit."),
    "reserve_bytes": Rule(_size(0, 2**40), "Disk space kept for acknowledgements when it is full."),
    "memory_bytes_max": Rule(_size(0), "Bytes of the process above which all connections are made anew; 0: no limit."),
    "standby_of": Rule(check_address, "Address of the server with this ID, to start as its standby.", optional=True),
    "standby_stream_bytes_max": Rule(_size(2**20), "Bytes of the newest changes kept for a standby that was away."),
    "standby_heartbeat_seconds": Rule(_seconds(0.01, 3600), "Time between heartbeats of a server and its standby."),
    "topics_max": Rule(_count, "Topics; one more is answered full."),
    "topics_auto": Rule(_truth, "Let a put or subscribe create its topic; false: only an operator creates topics."),
    "servers_max": Rule(_whole(1, 65_536, "servers"), "Servers that may announce themselves."),
    "topic_defaults": Rule(
        _topic_defaults,
        "Rule for topics without own settings, such as 'audit.> keep=90d'; the first that matches counts.",
    ),
    "publishers_max": Rule(_count, "Publishers remembered per topic; a put of one more is answered full."),
    "subscribers_max": Rule(_count, "Subscribers per topic."),
    "answer_records_max": Rule(_whole(1, 65_536, "records"), "Records of one answer to a get."),
    "answer_bytes_max": Rule(_size(1, 16 * 2**20), "Bytes of one answer to a get; a record that is larger goes alone."),
    "member_liveness_seconds": Rule(
        _seconds(0.1, 3600), "Silence after which others get what a member of a consumer group was offered."
    ),
    "wait_seconds_max": Rule(_seconds(0, 3600), "Longest wait of one get at the server."),
    "timeout_seconds": Rule(_seconds(0, 10**9), "Time limit of an operation, if it has no other."),
    "try_seconds": Rule(
        _seconds(0.001, 3600), "Wait for an answer to the first try; the wait doubles with each round."
    ),
    "tries": Rule(_whole(1, 1000, "tries"), "Tries at one proxy before the next."),
    "witness": Rule(_truth, "Vote on the primary of servers with a standby, and route no messages."),
    "power_safe": Rule(_truth, "Fsync each put before it is sent."),
    "outbox_bytes_max": Rule(_size(1024), "Bytes of unfinished puts that are kept."),
    "window": Rule(_whole(1, 4096, "batches"), "Put batches in flight per topic."),
    "prefetch_records": Rule(_whole(1, 65_536, "records"), "Records requested ahead of the application."),
    "prefetch_bytes": Rule(_size(1024, 16 * 2**20), "Bytes requested ahead of the application."),
    "handler_attempts": Rule(_whole(1, 10**6, "attempts"), "Failures after which a message is a dead letter."),
    "dead_letters": Rule(_letters, "table, or topic: each dead letter is also put to the topic $dead.ID."),
    "retry_first_seconds": Rule(
        _seconds(0, 86_400), "Wait before the second attempt of a handler; it doubles with each failure."
    ),
    "retry_longest_seconds": Rule(_seconds(0, 86_400), "Longest wait before a further attempt of a handler."),
    "publisher_records": Rule(_whole(1, 65_536, "records"), "Records that close a publisher's batch."),
    "publisher_bytes": Rule(_size(1, 15 * 2**20), "Bytes that close a publisher's batch."),
    "linger_seconds": Rule(_seconds(0, 3600), "Age that closes a publisher's batch."),
    "record": Rule(_path, "Record of puts, received messages and subscriptions; none: no record.", optional=True),
}
"""Every setting of every role, by name."""
