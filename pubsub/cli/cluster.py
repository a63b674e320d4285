"""`pubsub up`: runs a local cluster in the foreground, with a process for each proxy and server.

A directory that was used before starts again at the addresses in its proxies file, because clients have stored them. A
new directory has no topics, so its proxies assign topics at once.

No child outlives this process. Every signal that can be caught ends all children in order. If this process is killed,
the children notice the end of a pipe that only it holds open. A directory runs one cluster: the children inherit a
lock on `DIR/running`, and the file lists the processes.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.base.addresses import join_place, split_place
from pubsub.cli.cluster_lock import STOP_SECONDS, Running
from pubsub.cli.detached import DETACHED, detach, let_go
from pubsub.config.addresses import ProxyAddress, check_http_address, read_proxies, write_proxies
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from pubsub.cli.cluster_keys import ClusterKeys

READY_SECONDS: Final = 30.0
"""Time limit for a child to print its ready line."""

COUNT_MAX: Final = 64

SIGNALS: Final = tuple(
    getattr(signal, "SIG" + name)
    for name in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU", "IO", "PWR", "STKFLT"]
    if hasattr(signal, "SIG" + name)
)
"""Signals that end the cluster: all that end a process by default, except those that report a fault in it."""

ANY_PORT: Final = ProxyAddress("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")

app = typer.Typer(name="up", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@dataclass(slots=True)
class Child:
    """One process of the cluster; the second member of server s1 has the ID s1b, like its directory."""

    role: str
    id: str
    command: list[str]
    process: subprocess.Popen[str]
    ready: str = ""

    @property
    def output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout


class Cluster:
    """Child processes that are started, watched and stopped together; a context manager.

    Args:
        directory: state of the cluster; None for a place that no other cluster uses.
        errors: a file for the children's stderr; None for this process's own stderr.
        metrics: HOST:PORT of the first child's metrics, one port higher for each further child; None serves none.

    Raises:
        StillRunning: the directory's cluster is already running.
    """

    def __init__(
        self, directory: Path | None = None, errors: IO[bytes] | None = None, metrics: str | None = None
    ) -> None:
        self._errors, self._metrics = errors, metrics
        self._running = Running(directory) if directory is not None else None
        self._lifeline, self._held = os.pipe()
        self.children: list[Child] = []
        self.died = 0
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._stopping = False

    def __enter__(self) -> Cluster:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # Already ignored, for example by nohup.
                signal.signal(number, lambda *_: self.stop())
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._end_children()
        self._selector.close()
        for number in (self._wake, self._waker, self._lifeline, self._held):
            os.close(number)
        if self._running is not None:
            self._running.close()

    def stop(self) -> None:
        """End `watch`; safe in a signal handler."""
        self._stopping = True

    def start(self, role: str, name: str, *options: str, of: str = "") -> Child:
        told = [] if self._metrics is None else ["--metrics", numbered(self._metrics, len(self.children))]
        command = _command(role, of or name, *options, *told)
        child = Child(role, name, command, self._spawn(role, name, command))
        self.children.append(child)
        self._selector.register(child.output, selectors.EVENT_READ, child)
        return child

    def kill(self, child: Child) -> None:
        """Kill a child with SIGKILL; `watch` does not report it, and `restart` may start it again."""
        self._selector.unregister(child.output)
        child.process.kill()
        child.process.wait()
        child.output.close()

    def restart(self, child: Child) -> None:
        """Start a dead child again with the same command line."""
        child.process, child.ready = self._spawn(child.role, child.id, child.command), ""
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _spawn(self, role: str, name: str, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a child in its own session, so that Ctrl-C reaches this process only, which then stops the child."""
        kept = [self._lifeline] if self._running is None else [self._lifeline, self._running.number]
        process = subprocess.Popen(  # noqa: S603  our own interpreter and our own commands
            [*command, "--lifeline", str(self._lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=kept,
        )
        if self._running is not None:
            self._running.note(role, name, process.pid)
        return process

    def wait_ready(self) -> None:
        """Return when every child has printed its ready line, or when a signal asked to stop.

        Raises:
            ConfigurationError: a child ended, or printed nothing in time. Its own error is on stderr already.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping and (waiting := [child for child in self.children if not child.ready]):
            if time.monotonic() > deadline:
                raise ConfigurationError(f"{waiting[0].role} {waiting[0].id} was not ready within {READY_SECONDS:g} s")
            for child in self._step(deadline - time.monotonic()):
                raise ConfigurationError(f"{child.role} {child.id} did not start: {_ending(child.process)}")

    def watch(self, again: bool) -> None:
        """Wait for a signal, and report each child that dies.

        Args:
            again: start a dead child again after the report.
        """
        while not self._stopping:
            for child in self._step(None):
                self.died += 1
                tail = (
                    "starting it again"
                    if again
                    else "the others continue; to start it, press Ctrl-C and run pubsub up again, or use --restart"
                )
                console.complain(f"{child.role} {child.id} (pid {child.process.pid}) {_ending(child.process)}; {tail}")
                if again:
                    self.restart(child)
            if not any(child.process.poll() is None for child in self.children):
                raise ConfigurationError("no process of the cluster is left")

    def _step(self, seconds: float | None) -> list[Child]:
        ended = []
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                os.read(self._wake, 4096)
                continue
            child: Child = key.data
            line = child.output.readline()
            if line:
                child.ready = child.ready or line.strip()
                continue
            self._selector.unregister(child.output)
            child.process.wait()
            child.output.close()
            ended.append(child)
        return ended

    def _end_children(self) -> None:
        running = [child for child in self.children if child.process.poll() is None]
        for role in ("server", "proxy"):  # Servers first, so that each can still sign off at its proxies.
            for child in running:
                if child.role == role:
                    child.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in running:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                console.complain(f"{child.role} {child.id} did not stop within {STOP_SECONDS:g} s and was killed")
                child.process.kill()
                child.process.wait()


Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Serve metrics over HTTP: the first process here, each further one a port higher. Port 0: free ports.",
    ),
]
Detached = Annotated[
    bool,
    typer.Option("--detach", help="Return when the cluster is up. It logs to DIR/up.log; pubsub down stops it."),
]


@app.command()
def up(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Directory for all state of the cluster; made if absent.")
    ],
    proxies: Annotated[
        int | None, typer.Option(min=1, max=COUNT_MAX, help="Number of proxies; default 2, or 3 with --standby.")
    ] = None,
    servers: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="Number of servers.")] = 2,
    standby: Annotated[bool, typer.Option("--standby", help="Give each server a standby, in DIR/s1b …")] = False,
    with_keys: Annotated[bool, typer.Option("--keys", help="Make keys, and reject clients without one.")] = False,
    metrics: Metrics = None,
    again: Annotated[bool, typer.Option("--restart", help="Report a process that died, and start it again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
    detached: Detached = False,
    background: Annotated[bool, typer.Option(DETACHED, hidden=True)] = False,
) -> None:
    """Run a local cluster on free ports of this host.

    It runs until Ctrl-C, SIGTERM, SIGHUP or pubsub down --dir DIR. Example: pubsub up --dir cluster --detach.

    The addresses of the proxies are in the file DIR/proxies. Clients need that file: set PUBSUB_PROXIES_FILE to its
    path, or name it by --proxies-file. With --keys, DIR/proxies also has the public keys of the proxies. DIR/authorized
    lists the keys that may connect. The key in DIR/client.key may do everything; set PUBSUB_CLIENT_KEY_FILE to that
    path to use it.

    State stays in DIR, and the next pubsub up continues there, with the same keys and standbys. If a process dies, the
    command reports it, and its exit code is 1.
    """
    listing = directory / "proxies"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--dir {directory}: {error.strerror}") from None
    before, count = _proxies_before(listing, proxies, standby)
    if detached:
        flags = {"--standby": standby, "--keys": with_keys, "--restart": again, "--json": as_json}
        words = ["--proxies", str(count), "--servers", str(servers), *(name for name, on in flags.items() if on)]
        detach(directory, servers, words if metrics is None else [*words, "--metrics", metrics])
        return
    with Cluster(directory, metrics=_metrics(metrics, count + 2 * servers)) as cluster:
        members = _members(directory, servers, standby)
        keys = _keys(directory, with_keys, count, members)
        found = _start_all(cluster, directory, before or [ANY_PORT] * count, members, keys)
        _announce(cluster, found, listing, keys, as_json)
        if background:
            let_go()
        cluster.watch(again)
    if cluster.died:
        raise typer.Exit(console.EXIT_ERROR)


def _start_all(
    cluster: Cluster,
    directory: Path,
    addresses: Sequence[ProxyAddress],
    members: dict[str, str],
    keys: ClusterKeys | None,
) -> list[ProxyAddress]:
    """Start all processes, write the proxies' addresses to the proxies file, and return them."""
    listing = directory / "proxies"
    found = _start_proxies(cluster, directory, addresses, keys)
    if len(found) == len(addresses):
        found = found if keys is None else keys.named(found)
        if found != list(addresses):
            write_proxies(listing, found)
        _start_servers(cluster, directory, members, keys)
    return found


def _proxies_before(listing: Path, proxies: int | None, standby: bool) -> tuple[list[ProxyAddress], int]:
    """Return the proxies that the directory has from an earlier run, and the number of proxies to start."""
    before = list(read_proxies(listing)) if listing.exists() else []
    count = proxies or len(before) or (3 if standby else 2)
    if before and len(before) != count:
        raise ConfigurationError(
            f"--proxies {count}: {listing} names {len(before)}, and the proxies of a cluster are fixed"
        )
    return before, count


def _members(directory: Path, servers: int, standby: bool) -> dict[str, str]:
    """Return the directory of each member with its server, first members first; earlier second members are kept."""
    names = [f"s{number}" for number in range(1, servers + 1)]
    seconds = {f"{name}b": name for name in names if standby or (directory / f"{name}b" / "local").exists()}
    return dict(zip(names, names, strict=True)) | seconds


def _start_servers(cluster: Cluster, directory: Path, members: dict[str, str], keys: ClusterKeys | None) -> None:
    """Start first members before second ones, because a second member needs the address of the first."""
    primaries: dict[str, str] = {}
    for name, server in members.items():
        options = ["--proxies-file", str(directory / "proxies"), "--dir", str(directory / name)]
        if name != server and not primaries:
            cluster.wait_ready()
            primaries = {child.id: listening(child).servers for child in cluster.children if child.ready}
        if name != server:
            if server not in primaries:
                return  # A signal asked to stop.
            options += ["--standby-of", primaries[server]]
        cluster.start("server", name, *options, *_key_options(keys, "server", server, name), of=server)
    cluster.wait_ready()


def _metrics(given: str | None, processes: int) -> str | None:
    """Return the metrics address of the first process; raises ConfigurationError if too few ports follow it."""
    if given is None:
        return None
    try:
        found = check_http_address(given)
        check_http_address(numbered(found, processes - 1))
    except ValueError as error:
        raise ConfigurationError(f"--metrics {given}: it is {error}, with a port for each process") from None
    return found


def numbered(address: str, place: int) -> str:
    """Return HOST:PORT of the process at this place, counted from 0. Port 0 stays 0: each process takes a free port."""
    host, port = split_place(address)
    return address if port == 0 else join_place(host, port + place)


def _keys(directory: Path, wanted: bool, proxies: int, members: dict[str, str]) -> ClusterKeys | None:
    from pubsub.cli.cluster_keys import ClusterKeys

    keys = ClusterKeys(directory)
    if not wanted and not keys.there:
        if os.environ.get("PUBSUB_AUTHORIZED"):
            raise ConfigurationError(
                f"PUBSUB_AUTHORIZED names an access list, but the cluster in {directory} has no keys: start it with"
                " --keys, which makes an access list in that directory, or unset PUBSUB_AUTHORIZED"
            )
        return None
    if not keys.there:
        keys.make_client()  # Only once: an operator may have removed it since.
    for number in range(1, proxies + 1):
        keys.options("proxy", f"p{number}")
    for name, server in members.items():  # Before the proxies start: a running proxy reads the list only once a second.
        keys.options("server", server, name)
    return keys


def _key_options(keys: ClusterKeys | None, role: str, name: str, place: str = "") -> list[str]:
    return [] if keys is None else keys.options(role, name, place)


def _start_proxies(
    cluster: Cluster, directory: Path, addresses: Sequence[ProxyAddress], keys: ClusterKeys | None
) -> list[ProxyAddress]:
    """Start the proxies and return their addresses; [] if a signal asked to stop meanwhile."""
    fresh = ["--startup-wait-seconds", "0"] if not (directory / "proxies").exists() else []
    for number, address in enumerate(addresses, 1):
        name = f"p{number}"
        locked = _key_options(keys, "proxy", name)
        cluster.start("proxy", name, *_proxy_options(directory / name, address), *locked, *fresh)
    cluster.wait_ready()
    if not all(child.ready for child in cluster.children):
        return []
    found = []
    for child, address in zip(cluster.children, addresses, strict=True):
        found.append(replace(listening(child), keys=address.keys))
        # A restarted proxy uses the same address, and waits for announcements before it assigns topics.
        locked = _key_options(keys, "proxy", child.id)
        told = child.command[child.command.index("--metrics") :] if "--metrics" in child.command else []
        child.command = _command("proxy", child.id, *_proxy_options(directory / child.id, found[-1]), *locked, *told)
    return found


def _proxy_options(directory: Path, address: ProxyAddress) -> list[str]:
    options = ["--bind", address.clients, "--dir", str(directory)]
    return options if address.servers == address.clients else [*options, "--servers", address.servers]


def _command(role: str, name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "pubsub", role, "start", "--id", name, *options]


def listening(child: Child) -> ProxyAddress:
    """Return the addresses in the ready line, such as "proxy p1 ready: clients tcp://…, servers tcp://…"."""
    words = child.ready.replace(",", " ").split()
    addresses = [word for word in words if "://" in word and not word.startswith("http://")]
    if not addresses:
        raise ConfigurationError(
            f"{child.role} {child.id} printed {child.ready!r} instead of a ready line with its addresses"
        )
    return ProxyAddress(addresses[0], addresses[-1])


def _announce(
    cluster: Cluster, proxies: Sequence[ProxyAddress], listing: Path, keys: ClusterKeys | None, as_json: bool
) -> None:
    processes: list[dict[str, Any]] = [
        {"role": child.role, "id": child.id, "pid": child.process.pid} for child in cluster.children
    ]
    if as_json:
        for process, proxy in zip(processes, proxies, strict=False):
            process |= {"clients": proxy.clients, "servers": proxy.servers}
        for process, child in zip(processes, cluster.children, strict=True):
            process.update(("metrics", word) for word in child.ready.split() if word.startswith("http://"))
        files = {"proxies_file": str(listing)}
        if keys is not None:
            files |= {"client_key_file": str(keys.client), "authorized": str(keys.authorized)}
        console.announce(json.dumps({**files, "processes": processes}))
        return
    for child in cluster.children:
        console.announce(f"{child.ready} (pid {child.process.pid})")
    if keys is not None:
        words = {"PUBSUB_CLIENT_KEY_FILE": keys.client, "PUBSUB_AUTHORIZED": keys.authorized}
        named = " ".join(f"{name}={quote(str(path.absolute()))}" for name, path in words.items())
        console.announce(f"keys: export {named}")
    console.announce(f"proxies file: {listing}")


def _ending(process: subprocess.Popen[str]) -> str:
    code = process.wait()
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
