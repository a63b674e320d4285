"""One turn of a server's loop, over any kind of sockets (docs/explanation/cores-and-shells.md, *The turn*).

    receive from the sockets, up to a limit  →  the core's timers  →  commit once  →  send the answers

The process supplies ZeroMQ's sockets and its clock. The simulator supplies a network that it can cut and a clock of its
own. So the order on which all guarantees rest, durable first and answer second, is the same code in both.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import groupby
from typing import Any, Final, Protocol

from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.messenger.sockets import Frames
from pubsub.messenger.unsent import LARGE_BYTES, Unsent
from pubsub.protocol.messages import Outcome
from pubsub.server.core import ServerCore
from pubsub.server.group_commit import GroupCommit
from pubsub.server.state.replies import LISTENER, Outgoing

DRAIN_MAX: Final = 256
"""Messages, and rows of trains, received from one proxy before the loop commits; the last train may exceed it."""

DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes received from one proxy before the loop commits."""

TRANSFER_DRAIN_MAX: Final = 8
"""Messages received from other servers before the loop commits: chunks are large, and clients wait."""

PEERS_MAX: Final = 256
"""Other servers with an open socket; for one more, the socket with the longest silence is closed."""

PEER_SECONDS: Final = 10.0
"""Silence of another server after which its next message uses a new link; after twice as long the link is closed."""

UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of large answers that wait to be sent to one client or one other server; a further answer is dropped."""

UNSENT_TOTAL_MAX: Final = 256 * 1024 * 1024
"""The same limit for all. Above it, only destinations without a waiting answer get one, up to twice as much."""


class Sockets(Protocol):
    """The transport of a server's messages."""

    def dealer(self, address: str) -> Any:
        """Open a socket to a proxy.

        Raises:
            ConfigurationError: the address is invalid, or no socket can be opened.
        """

    def to_server(self, address: str) -> Any:
        """Open a socket to another server.

        Raises:
            ConfigurationError: the address is invalid, no key of its server is known, or no socket can be opened.
        """

    def close(self, sock: Any) -> None:
        """Close a socket, and drop the messages in it."""

    def receive(self, sock: Any) -> Frames | None:
        """Receive the next message; None if there is none."""

    def receive_known(self, listener: Any) -> tuple[str | None, Frames] | None:
        """Receive the next message at the server's own address, with its speaker as in `Origin`; None if none waits."""

    def send(self, sock: Any, frames: list[Any]) -> bool:
        """Send a message; return False if the socket cannot take it."""


class Loop:
    """The work of a server between two waits.

    Args:
        group_commit: the server on its store.
        sockets: the transport.
        listener: the socket on the server's own address.
        check: called between the commit and the answers; raises if nothing may be answered any more.

    Attributes:
        dealers: the sockets to the proxies.
        servers: by address, the socket to another server, and the time of its last message.

    Raises:
        ConfigurationError: a proxy's address is invalid.
    """

    def __init__(
        self,
        settings: ServerSettings,
        group_commit: GroupCommit,
        sockets: Sockets,
        listener: Any,
        check: Callable[[], None],
    ) -> None:
        self._settings, self._group_commit, self._sockets, self._check = settings, group_commit, sockets, check
        self._core = group_commit.core
        self.listener = listener
        self.servers: dict[str, tuple[Any, float]] = {}
        self.dealers: list[Any] = []
        for proxy in settings.proxies:
            self.dealers.append(sockets.dealer(proxy))
        self._unsent = Unsent(UNSENT_BYTES_MAX, UNSENT_TOTAL_MAX)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of large answers that wait to be sent."""
        return self._unsent.size

    def turn(self, ready: Container[Any], now: float) -> None:
        """Run one turn.

        Args:
            ready: the readable sockets.
            now: monotonic seconds.

        Raises:
            StorageError: the disk failed; every answer sent so far is on the disk.
            ConfigurationError: another server has this server's ID, or this store is an older copy of itself.
        """
        if self._core.state.measures is not None:
            self._core.state.measures.turn(now)
        for proxy, dealer in enumerate(self.dealers):
            if dealer in ready:
                self._drain(proxy, dealer, now)
        if self.listener in ready:
            self._drain_listener(now)
        for address, (peer, _) in list(self.servers.items()):
            if peer in ready:
                self.servers[address] = (peer, now)
                self._drain(address, peer, now)
        self._core.tick(now)
        taken = self._core.proxies.taken(now)
        if taken:
            raise ConfigurationError(f"server {self._settings.id} cannot join the cluster: {taken.replace('_', ' ')}")
        self._finish(now)

    def _finish(self, now: float) -> None:
        self._group_commit.commit(now)
        check_stale(self._settings, self._core)  # After the commit, so that the finding is durable.
        self._check()
        self._give_up_silent(now)
        if self._unsent.size:
            self._unsent.sweep()
        self.reconnect()  # Before sending, so that messages go through the new sockets.
        self.send(now)
        self._group_commit.check_full(now)
        self._group_commit.log_backlogs()

    def _drain(self, link: int | str, sock: Any, now: float) -> None:
        size = taken = 0
        while taken < DRAIN_MAX and size < DRAIN_BYTES_MAX:
            frames = self._sockets.receive(sock)
            if frames is None:
                return
            size += sum(map(len, frames))
            taken += self._group_commit.handle(link, [b"", *frames] if isinstance(link, str) else frames, now)

    def _drain_listener(self, now: float) -> None:
        size = 0
        for _ in range(TRANSFER_DRAIN_MAX):
            taken = self._sockets.receive_known(self.listener) if size < DRAIN_BYTES_MAX else None
            if taken is None:
                return
            speaker, frames = taken
            size += sum(map(len, frames))
            self._group_commit.handle(LISTENER, frames, now, speaker)

    def send(self, now: float) -> None:
        """Send the core's messages, after the commit."""
        core, sockets = self._core, self._sockets
        sent = self._group_commit.outgoing(now)
        for out, frames in sent:
            try:
                sock = self._socket(out.link, now)
            except ConfigurationError:  # Another process sent us an invalid address.
                core.state.counters["addresses_bad"] += 1
                continue
            if len(frames[-1]) > LARGE_BYTES:
                whom = out.link, out.origin
                if not self._unsent.has_room(whom):
                    core.state.counters["not_sent"] += 1
                    continue
                last: Any = self._unsent.frame(whom, frames[-1])
            else:
                last = frames[-1]
            if not sockets.send(sock, [*frames[isinstance(out.link, str) : -1], last]):
                core.state.counters["not_sent"] += 1
        if self._group_commit.clock is not None:
            observe(sent, self._group_commit.clock())

    def _socket(self, link: int | str, now: float) -> Any:
        if isinstance(link, str):
            return self.server(link, now)
        return self.listener if link == LISTENER else self.dealers[link]

    def server(self, address: str, now: float) -> Any:
        """Return the socket to another server; a new socket if the old one has been silent for `PEER_SECONDS`.

        Raises:
            ConfigurationError: the address is invalid, or no socket can be opened.
        """
        known = self.servers.get(address)
        if known is not None and now - known[1] < PEER_SECONDS:
            return known[0]
        self._close_server(address)
        if len(self.servers) >= PEERS_MAX:
            self._core.state.counters["servers_forgotten"] += 1
            self._close_server(min(self.servers, key=lambda one: self.servers[one][1]))
        peer = self._sockets.to_server(address)
        self.servers[address] = (peer, now)
        return peer

    def close_servers(self, which: Callable[[Any], bool]) -> None:
        """Close the sockets to other servers that satisfy `which`, and drop the messages in them."""
        for address in [one for one, (sock, _) in self.servers.items() if which(sock)]:
            self._close_server(address)

    def _close_server(self, address: str) -> None:
        if address in self.servers:
            self._sockets.close(self.servers.pop(address)[0])

    def _give_up_silent(self, now: float) -> None:
        """Close the sockets to servers that may never return, because chunks that wait in a socket take memory."""
        for address in [one for one, (_, received_at) in self.servers.items() if now - received_at >= 2 * PEER_SECONDS]:
            self._close_server(address)

    def reconnect(self) -> None:
        """Open a new socket for each proxy that the core names."""
        for proxy in self._core.proxies.reconnect:
            old = self.dealers[proxy]
            try:
                self.dealers[proxy] = self._sockets.dealer(self._settings.proxies[proxy])
            except ConfigurationError:  # The limit on open files is reached: keep the old socket.
                self._core.state.counters["sockets_not_opened"] += 1
                continue
            self._sockets.close(old)
        self._core.proxies.reconnect.clear()

    def close(self) -> None:
        """Close every connection except the server's own address: this server stops serving."""
        for address in list(self.servers):
            self._close_server(address)
        for dealer in self.dealers:
            self._sockets.close(dealer)
        self.dealers = []

    def connect_anew(self, listener: Any, now: float) -> None:
        """Close every connection, drop the messages in it, and open it again.

        Args:
            listener: the new socket on the server's own address.
        """
        for address in list(self.servers):
            self._close_server(address)
        self.listener = listener
        self._unsent = Unsent(UNSENT_BYTES_MAX, UNSENT_TOTAL_MAX)
        self._core.proxies.connect_anew(now)
        self.reconnect()


def observe(sent: Iterable[tuple[Outgoing, object]], now: float) -> None:
    """Record the durations of the answers just sent; equal timings in a row are recorded with one call.

    Args:
        sent: as `GroupCommit.outgoing` returned it.
        now: monotonic seconds.
    """
    success = Outcome.SUCCESS
    timings = [
        out.timing
        for out, _ in sent
        if out.timing is not None and out.message.outcome is success  # type: ignore[union-attr]  # only a STATUS has one
    ]
    for timing, alike in groupby(timings):
        timing.histogram.observe(now - timing.since, len(list(alike)))


def check_stale(settings: ServerSettings, core: ServerCore) -> None:
    """Refuse to run on an older copy of the store. Its change numbers may look current by now, so this is remembered.

    Raises:
        ConfigurationError: the store is an older copy.
    """
    if core.state.stale:
        why = core.state.stale.replace("_", " ")
        raise ConfigurationError(
            f"server {settings.id} runs on an older copy of its store ({why}); if there is no newer copy, run"
            f" pubsub server restored --dir {settings.directory}"
        )
