"""Define the settings of each role, with defaults and units, including the limits that an operator may change.

Every object of these classes holds only values that `pubsub.config.rules` allows, whether a command or a program gave
them. A value is converted as in the configuration file ("64 MiB" is 67108864), or rejected with the same text.

The rule is docs/explanation/retention.md, T3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from pubsub.config.addresses import listens_everywhere
from pubsub.config.rules import RULES
from pubsub.errors import SettingRefused

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """The settings of a role, each within its rule.

    Raises:
        SettingRefused: a value is not allowed.
    """

    role: ClassVar[str]

    def __post_init__(self) -> None:
        for one in fields(self):
            given = getattr(self, one.name)
            if given is None and one.default is None:
                continue
            try:
                value = RULES[one.name].value(given)
            except ValueError as error:
                raise SettingRefused(self.role, one.name, given, str(error)) from None
            object.__setattr__(self, one.name, value)
        self._check_together()

    def _check_together(self) -> None:
        """Check rules about more than one setting."""


@dataclass(frozen=True, kw_only=True)
class LivenessSettings(RoleSettings):
    """The settings that proxies and servers share.

    Attributes:
        heartbeat_seconds: time between heartbeats on an idle connection.
        liveness: number of consecutive missed heartbeats after which a peer counts as dead.
    """

    heartbeat_seconds: float = 1.0
    liveness: int = 3

    @property
    def patience_seconds(self) -> float:
        """Silence after which a peer counts as dead: one full liveness."""
        return self.heartbeat_seconds * self.liveness


@dataclass(frozen=True, kw_only=True)
class ProxySettings(LivenessSettings):
    """The settings of a proxy.

    Attributes:
        id: its name.
        bind: address for clients.
        servers: address for servers; None: `bind` too.
        directory: directory of its routes file.
        startup_wait_seconds: time after its start in which it assigns no topic; None: one full liveness.
        topics_max: most topics it routes; a request about one more is answered `full`.
        topics_auto: a put or subscribe creates its topic; False: only an operator creates topics.
        servers_max: most servers that may announce themselves.
        memory_bytes_max: memory of the process above which it closes all connections and listens anew; 0: no limit.
        key_file: file with its secret key; None: `key` in its directory, if that file exists.
        authorized: access list, the file of accepted keys and their rights; required with a key.
        audit_file: file for entries, rejections, denials and operators' actions; None: no such file.
        insecure: allow it to listen without keys on an address that other hosts can reach.
        witness: vote in the registers of servers with a standby, and route no messages.
        metrics: HOST:PORT at which it serves its metrics; None: none.
    """

    role: ClassVar[str] = "proxy"

    id: str
    bind: str
    servers: str | None = None
    directory: Path
    startup_wait_seconds: float | None = None
    topics_max: int = 200_000
    topics_auto: bool = True
    servers_max: int = 256
    memory_bytes_max: int = 4 * GIB
    key_file: Path | None = None
    authorized: Path | None = None
    audit_file: Path | None = None
    insecure: bool = False
    witness: bool = False
    metrics: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServerSettings(LivenessSettings):
    """The settings of a server.

    Attributes:
        id: its name.
        bind: address for other servers; port 0: a free port, kept over a restart if it is still free.
        advertise: address to announce to them; None: the bound address.
        proxies: addresses of all proxies' server side.
        proxy_keys: public keys of the proxies, as text, in the same order; () if they have none.
        directory: directory of its store; one server at a time.
        announce_seconds: time between periodic announcements.
        retention_hold_seconds: least time for which a record stays after its put, with or without subscribers.
        skew_seconds: largest difference between two servers' clocks.
        backlog_bytes_max: bytes of one topic above which puts are answered `full`.
        history_bytes_max: consumed bytes of one topic that stay while it may have several owners.
        store_bytes_max: database bytes above which the disk counts as full; 0: the disk's own limit.
        reserve_bytes: space kept free on the disk for acknowledgements when it is full.
        topic_defaults: rules for topics without own settings, such as `audit.> keep=90d`; the first match counts.
        publishers_max: remembered publishers for each topic; a put of one more is answered `full`.
        subscribers_max: most subscribers for each topic.
        topics_max: most topics it holds.
        topics_auto: as for a proxy.
        answer_records_max, answer_bytes_max: size limits of one answer to a GET.
        wait_seconds_max: longest long poll.
        member_liveness_seconds: silence after which a member of a consumer group is no longer waited for.
        memory_bytes_max: memory of the process above which it closes all connections and opens them anew; 0: no limit.
        standby_of: address of the other member of the same server, for a member that starts; None: a server of its own.
        standby_stream_bytes_max: newest changes kept for a member that was away.
        standby_heartbeat_seconds: time between heartbeats on the connection of the two members.
        key_file, authorized, audit_file, insecure, metrics: as for a proxy.
    """

    role: ClassVar[str] = "server"

    id: str
    bind: str = "tcp://127.0.0.1:0"
    advertise: str | None = None
    proxies: tuple[str, ...]
    proxy_keys: tuple[str, ...] = ()
    directory: Path
    announce_seconds: float = 5.0
    retention_hold_seconds: float = 60.0
    skew_seconds: float = 5.0
    backlog_bytes_max: int = 8 * GIB
    history_bytes_max: int = 1 * GIB
    store_bytes_max: int = 0
    reserve_bytes: int = 8 * MIB
    topic_defaults: tuple[str, ...] = ()
    publishers_max: int = 100_000
    subscribers_max: int = 100_000
    topics_max: int = 100_000
    topics_auto: bool = True
    answer_records_max: int = 20_000
    answer_bytes_max: int = 4 * MIB
    wait_seconds_max: float = 60.0
    member_liveness_seconds: float = 3.0
    memory_bytes_max: int = 8 * GIB
    standby_of: str | None = None
    standby_stream_bytes_max: int = 1 * GIB
    standby_heartbeat_seconds: float = 0.25
    key_file: Path | None = None
    authorized: Path | None = None
    audit_file: Path | None = None
    insecure: bool = False
    metrics: str | None = None

    def _check_together(self) -> None:
        _check_proxy_keys(self.role, self.proxies, self.proxy_keys)
        least = 2 * self.skew_seconds + self.patience_seconds
        if self.retention_hold_seconds < least:
            allowed = f"at least twice skew_seconds and one full liveness, {least:g} s"
            raise SettingRefused(self.role, "retention_hold_seconds", self.retention_hold_seconds, allowed)
        if listens_everywhere(self.bind) and self.advertise is None:
            allowed = "a host that others can connect to; or give such a host by advertise (--advertise)"
            raise SettingRefused(self.role, "bind", self.bind, allowed)


@dataclass(frozen=True, kw_only=True)
class ClientSettings(RoleSettings):
    """The settings of a client.

    Attributes:
        proxies: addresses of the proxies' client side, tried in this order.
        proxy_keys: public keys of the proxies, as text, in the same order; () if they have none.
        key_file: file with its secret key; None: `ID.key` beside its state, if that file exists.
        directory: state directory; None: under the user's data directory, by client ID.
        database: URL of the PostgreSQL database that keeps its state; None: a file in the state directory. The setting
            shows no password; `DatabaseUrl.full` has it.
        timeout_seconds: default time-out of a call.
        try_seconds: wait for an answer to the first try; it doubles with each round over the proxies.
        tries: tries at one proxy before the next.
        power_safe: fsync the outbox row before every send.
        outbox_bytes_max: most bytes of unfinished puts; a put above this raises TooLarge.
        window: put batches in flight for each topic.
        prefetch_records, prefetch_bytes: amount requested ahead of the application.
        handler_attempts: failed attempts on one message after which it moves to the dead letters.
        dead_letters: "table": they stay in the client's table; "topic": each message is also put to `$dead.ID`.
        retry_first_seconds: wait before the second attempt; it doubles with each further failure.
        retry_longest_seconds: longest wait before a further attempt.
        publisher_records, publisher_bytes, linger_seconds: limits at which `publisher()` closes a batch.
        record: file for the record of puts, received messages and subscriptions; None: no record.
    """

    role: ClassVar[str] = "client"

    proxies: tuple[str, ...] = field(default=("tcp://127.0.0.1:5601",))
    proxy_keys: tuple[str, ...] = ()
    key_file: Path | None = None
    directory: Path | None = None
    database: str | None = None
    timeout_seconds: float = 30.0
    try_seconds: float = 0.1
    tries: int = 3
    power_safe: bool = False
    outbox_bytes_max: int = 1 * GIB
    window: int = 256
    prefetch_records: int = 10_000
    prefetch_bytes: int = 2 * MIB
    handler_attempts: int = 5
    dead_letters: str = "table"
    retry_first_seconds: float = 1.0
    retry_longest_seconds: float = 60.0
    publisher_records: int = 1_000
    publisher_bytes: int = 1 * MIB
    linger_seconds: float = 0.005
    record: Path | None = None

    def _check_together(self) -> None:
        _check_proxy_keys(self.role, self.proxies, self.proxy_keys)


def _check_proxy_keys(role: str, proxies: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Check that all proxies have a key or none has, since a connection without a key would trust any process there."""
    if keys and len(keys) != len(proxies):
        raise SettingRefused(role, "proxy_keys", keys, f"one for each of the {len(proxies)} proxies, in their order")
