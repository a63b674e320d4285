"""What each role can be told, with its defaults and units; the limits that an operator may change are here too.

Every object of these classes holds only what `pubsub.config.rules` allows, whether a command read its values or a
program named them: a value is taken as the configuration file takes it ("64 MiB" is 67108864), or refused in the same
words.
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
        """Rules that need more than one setting."""


@dataclass(frozen=True, kw_only=True)
class LivenessSettings(RoleSettings):
    """What every process of a cluster shares.

    Attributes:
        heartbeat_seconds: between heartbeats on an idle link.
        liveness: heartbeats missed in a row after which a peer counts as dead.
    """

    heartbeat_seconds: float = 1.0
    liveness: int = 3

    @property
    def patience_seconds(self) -> float:
        """Silence after which a peer counts as dead: one full liveness."""
        return self.heartbeat_seconds * self.liveness


@dataclass(frozen=True, kw_only=True)
class ProxySettings(LivenessSettings):
    """A proxy.

    Attributes:
        id: its name.
        bind: where clients connect.
        servers: where servers connect; None: at `bind` too.
        directory: where its routes file lives.
        startup_wait_seconds: it assigns no topic for so long after its start; None: one full liveness.
        topics_max: topics that it routes; one more is answered `full`.
        servers_max: servers that may announce themselves.
        memory_bytes_max: of the process, beyond which it closes all connections and listens anew; 0: none.
        key_file: holds its secret key; None: `key` in its directory, where there is one.
        authorized: file of the keys that may enter, and what they may do; needed with a key.
        audit_file: where who entered, was refused, was denied or operated is written down; None: nowhere.
        insecure: it may listen without keys where others than this host reach it.
        witness: it votes in the registers of stores with a standby, and routes nothing.
        metrics: HOST:PORT where it tells its metrics; None: nowhere.
    """

    role: ClassVar[str] = "proxy"

    id: str
    bind: str
    servers: str | None = None
    directory: Path
    startup_wait_seconds: float | None = None
    topics_max: int = 200_000
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
    """A server.

    Attributes:
        id: its name.
        bind: where other servers connect; port 0: one that is free, and after a restart the same, if it still is.
        advertise: the address it tells them; None: what it is bound to.
        proxies: the addresses of all proxies' server side.
        proxy_keys: their public keys, as text, in the same order; () where they have none.
        directory: where its store lives; one server at a time.
        announce_seconds: between periodic announcements.
        retention_hold_seconds: a record stays at least so long after it was put, subscribers or not.
        skew_seconds: bound on the difference of two servers' clocks.
        backlog_bytes_max: bytes of one topic beyond which puts are answered `full`.
        history_bytes_max: consumed bytes of one topic that stay while it is not whole.
        store_bytes_max: bytes of the database beyond which the disk counts as full; 0: the disk's own limit.
        reserve_bytes: space kept free on the disk for acknowledgements when it is full.
        publishers_max: publishers per topic that are remembered; one more is answered `full`.
        subscribers_max: subscribers per topic.
        topics_max: topics it holds.
        answer_records_max, answer_bytes_max: of one answer to a GET.
        wait_seconds_max: of a long poll.
        memory_bytes_max: of the process, beyond which it closes all connections and opens them anew; 0: none.
        standby_of: where the other member of the same server is, for a member that begins; None: a server of its own.
        standby_stream_bytes_max: of the newest changes that are kept for a member that was away.
        standby_heartbeat_seconds: between heartbeats of the members' own link.
        key_file, authorized, audit_file, insecure, metrics: as a proxy's.
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
    publishers_max: int = 100_000
    subscribers_max: int = 100_000
    topics_max: int = 100_000
    answer_records_max: int = 20_000
    answer_bytes_max: int = 4 * MIB
    wait_seconds_max: float = 60.0
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
            allowed = "a host that others can connect to; or name one beside it by advertise (--advertise)"
            raise SettingRefused(self.role, "bind", self.bind, allowed)


@dataclass(frozen=True, kw_only=True)
class ClientSettings(RoleSettings):
    """A client.

    Attributes:
        proxies: the addresses of the proxies' client side, tried in this order.
        proxy_keys: their public keys, as text, in the same order; () where they have none.
        key_file: holds its secret key; None: `ID.key` beside its state, where there is one.
        directory: where its state lives; None: under the user's data directory, by client ID.
        timeout_seconds: of a call, where the call names none.
        try_seconds: patience of the first try; it doubles with each round over the proxies.
        tries: at one proxy before the next.
        power_safe: fsync the outbox row before every send.
        outbox_bytes_max: unfinished puts that are kept; one more raises.
        window: put batches in flight per topic.
        prefetch_records, prefetch_bytes: what is asked for ahead of the application.
        handler_attempts: a handler that fails so often on one message sends it to the dead letters.
        publisher_records, publisher_bytes, linger_seconds: when `publisher()` closes a batch.
        record: file to write down what it puts, takes and subscribes to; None: nowhere.
    """

    role: ClassVar[str] = "client"

    proxies: tuple[str, ...] = field(default=("tcp://127.0.0.1:5601",))
    proxy_keys: tuple[str, ...] = ()
    key_file: Path | None = None
    directory: Path | None = None
    timeout_seconds: float = 30.0
    try_seconds: float = 0.1
    tries: int = 3
    power_safe: bool = False
    outbox_bytes_max: int = 1 * GIB
    window: int = 256
    prefetch_records: int = 10_000
    prefetch_bytes: int = 2 * MIB
    handler_attempts: int = 5
    publisher_records: int = 1_000
    publisher_bytes: int = 1 * MIB
    linger_seconds: float = 0.005
    record: Path | None = None

    def _check_together(self) -> None:
        _check_proxy_keys(self.role, self.proxies, self.proxy_keys)


def _check_proxy_keys(role: str, proxies: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """See that all proxies have a key, or none has: who connects to one without would trust whoever answers there."""
    if keys and len(keys) != len(proxies):
        raise SettingRefused(role, "proxy_keys", keys, f"one for each of the {len(proxies)} proxies, in their order")
