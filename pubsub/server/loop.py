"""One turn of a server's loop, over whatever sockets it is given (docs/architecture.md, *Cores and shells*).

    take what the sockets hold, bounded  →  the core's timers  →  commit once  →  send the answers

The process gives it ZeroMQ's sockets and its clock, the simulator a network that it can cut and a clock of its own: so
the order that everything rests on, durable first and answer second, is the same code in both.
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
"""Messages, and rows of trains, taken from one proxy before the loop commits; the last train may go beyond it."""

DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes after which no more is taken from it in this loop."""

TRANSFER_DRAIN_MAX: Final = 8
"""Messages taken from other servers before the loop commits: chunks are large, and clients wait."""

PEERS_MAX: Final = 256
"""Other servers that this one has a socket to; for one more, the one that was silent for longest is closed."""

PEER_SECONDS: Final = 10.0
"""Silence of another server after which the link to it is made anew, or after twice as long given up."""

UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of large answers that wait to be sent to one client, or to one other server; a further one is dropped."""

UNSENT_TOTAL_MAX: Final = 256 * 1024 * 1024
"""The same of all; beyond it those come first who have nothing waiting, up to twice as much."""


class Sockets(Protocol):
    """What carries a server's messages."""

    def dealer(self, address: str) -> Any:
        """A new socket to a proxy.

        Raises:
            ConfigurationError: the address is none, or no socket can be opened.
        """

    def to_server(self, address: str) -> Any:
        """A new socket to another server.

        Raises:
            ConfigurationError: the address is none, or of nobody whose key is known, or no socket can be opened.
        """

    def close(self, sock: Any) -> None:
        """Close one of them, with what waits in it."""

    def receive(self, sock: Any) -> Frames | None:
        """The next message, None where none waits."""

    def receive_known(self, listener: Any) -> tuple[str | None, Frames] | None:
        """The next message at the server's own address, None where none waits; and who speaks, as in `Origin`."""

    def send(self, sock: Any, frames: list[Any]) -> bool:
        """Send a message; False where it cannot be taken."""


class Loop:
    """What a server does between two waits.

    Args:
        settings: its configuration.
        group_commit: the server on its store.
        sockets: what carries its messages.
        listener: the socket on its own address.
        check: called between the commit and the answers; raises where nothing may be answered any more.

    Attributes:
        dealers: the sockets to its proxies.
        servers: by address, the socket to another server, and when it was heard.

    Raises:
        ConfigurationError: a proxy's address is none.
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
        """Of large answers that wait to be sent."""
        return self._unsent.size

    def turn(self, ready: Container[Any], now: float) -> None:
        """One turn.

        Args:
            ready: the sockets that have something.
            now: monotonic seconds.

        Raises:
            StorageError: the disk failed; nothing was answered that is not on it.
            ConfigurationError: another server has this one's ID, or this one's store is an older copy of itself.
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
            raise ConfigurationError(f"server {self._settings.id} cannot join: {taken.replace('_', ' ')}")
        self._finish(now)

    def _finish(self, now: float) -> None:
        self._group_commit.commit(now)
        check_stale(self._settings, self._core)  # once that is durable
        self._check()
        self._give_up_silent(now)
        if self._unsent.size:
            self._unsent.sweep()
        self.reconnect()  # first, so that what is sent goes through the new sockets
        self.send(now)
        self._group_commit.check_full(now)

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
        """Send what the core has to say, after the commit."""
        core, sockets = self._core, self._sockets
        sent = self._group_commit.outgoing(now)
        for out, frames in sent:
            try:
                sock = self._socket(out.link, now)
            except ConfigurationError:  # An address that another process gave us, and that is none.
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
        """The socket to another server; a new one where the old one has been silent for long.

        Raises:
            ConfigurationError: the address is none, or no socket can be opened.
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
        """Close the sockets to those other servers of which that is so, with what waits in them."""
        for address in [one for one, (sock, _) in self.servers.items() if which(sock)]:
            self._close_server(address)

    def _close_server(self, address: str) -> None:
        if address in self.servers:
            self._sockets.close(self.servers.pop(address)[0])

    def _give_up_silent(self, now: float) -> None:
        """Close the sockets to servers that may never be there again: chunks that wait in one are memory."""
        for address in [one for one, (_, heard) in self.servers.items() if now - heard >= 2 * PEER_SECONDS]:
            self._close_server(address)

    def reconnect(self) -> None:
        """Give those proxies a new socket that the core says need one."""
        for proxy in self._core.proxies.reconnect:
            old = self.dealers[proxy]
            try:
                self.dealers[proxy] = self._sockets.dealer(self._settings.proxies[proxy])
            except ConfigurationError:  # No further file may be opened: the old socket may do, or this is tried again.
                self._core.state.counters["sockets_not_opened"] += 1
                continue
            self._sockets.close(old)
        self._core.proxies.reconnect.clear()

    def close(self) -> None:
        """Close every connection but that of the server's own address: this server serves no more."""
        for address in list(self.servers):
            self._close_server(address)
        for dealer in self.dealers:
            self._sockets.close(dealer)
        self.dealers = []

    def connect_anew(self, listener: Any, now: float) -> None:
        """Close every connection, with what waits in it, and open it again.

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
    """Observe what the answers that were just sent have a timing for; the same timing in a row at once.

    Args:
        sent: as `GroupCommit.outgoing` gave it.
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
    """Refuse to run on what was found to be an older copy: its change numbers may have caught up by now.

    Raises:
        ConfigurationError: it was.
    """
    if core.state.stale:
        why = core.state.stale.replace("_", " ")
        raise ConfigurationError(
            f"server {settings.id} runs on an older copy of its store ({why}); where there is no newer one:"
            f" pubsub server restored --dir {settings.directory}"
        )
