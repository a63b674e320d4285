"""`pubsub up`: a local cluster, every role a process of its own, in the foreground.

A directory that was used before starts again at the same addresses, which its proxies file names, since clients hold
them. In an empty directory there is no owner to wait for, so the proxies assign topics at once.

No process outlives this one: whatever signal can be caught ends all of them in order, and where this process is killed
its children see the end of a pipe that only it holds open. A directory runs one cluster: a lock on `DIR/running`, which
the children inherit, lasts as long as any process of the cluster, and the file says which these are.
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
"""Patience with a child until it says that it is ready."""

COUNT_MAX: Final = 64

SIGNALS: Final = tuple(
    getattr(signal, "SIG" + name)
    for name in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU", "IO", "PWR", "STKFLT"]
    if hasattr(signal, "SIG" + name)
)
"""Signals that end the cluster: all that would end this process, but those that say that it is broken."""

ANY_PORT: Final = ProxyAddress("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")

app = typer.Typer(name="up", rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(slots=True)
class Child:
    """One process of the cluster.

    Attributes:
        role, id: who it is; of a second member of server s1 it is s1b, as its directory is called.
        command: its command line, to start it again.
        process: the running one.
        ready: its ready line; "" until it came.
    """

    role: str
    id: str
    command: list[str]
    process: subprocess.Popen[str]
    ready: str = ""

    @property
    def output(self) -> IO[str]:
        """Where its ready line comes from."""
        assert self.process.stdout is not None
        return self.process.stdout


class Cluster:
    """Children that are started, watched and stopped together; use as a context manager.

    Args:
        directory: where all of it lives; None: somewhere that no other cluster uses.
        errors: a file that gets what the children write to stderr; None: our own stderr.
        metrics: HOST:PORT where the first child tells its metrics, and each further one a port higher; port 0: at free
            ones; None: nowhere.

    Raises:
        StillRunning: the directory's cluster is running.
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
            if signal.getsignal(number) is not signal.SIG_IGN:  # As under nohup.
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
        """Ends `watch`; from a signal handler too."""
        self._stopping = True

    def start(self, role: str, name: str, *options: str, of: str = "") -> Child:
        """Starts a process; `of`: the server that it is a second member of."""
        told = [] if self._metrics is None else ["--metrics", numbered(self._metrics, len(self.children))]
        command = _command(role, of or name, *options, *told)
        child = Child(role, name, command, self._spawn(role, name, command))
        self.children.append(child)
        self._selector.register(child.output, selectors.EVENT_READ, child)
        return child

    def kill(self, child: Child) -> None:
        """SIGKILL; nobody is told, and it may be restarted."""
        self._selector.unregister(child.output)
        child.process.kill()
        child.process.wait()
        child.output.close()

    def restart(self, child: Child) -> None:
        """Starts a child that died once more, as it was started."""
        child.process, child.ready = self._spawn(child.role, child.id, child.command), ""
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _spawn(self, role: str, name: str, command: Sequence[str]) -> subprocess.Popen[str]:
        """A child in a session of its own: Ctrl-C is ours to pass on. It ends when this process has."""
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
        """Returns when every child has said that it is ready, or somebody asked to stop.

        Raises:
            ConfigurationError: one ended, or said nothing for too long; what it had to say is on stderr already.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping and (waiting := [child for child in self.children if not child.ready]):
            if time.monotonic() > deadline:
                raise ConfigurationError(f"{waiting[0].role} {waiting[0].id} was not ready within {READY_SECONDS:g} s")
            for child in self._step(deadline - time.monotonic()):
                raise ConfigurationError(f"{child.role} {child.id} did not start: {_ending(child.process)}")

    def watch(self, again: bool) -> None:
        """Waits for a signal, and says so when a child dies.

        Args:
            again: start it again, after saying so.
        """
        while not self._stopping:
            for child in self._step(None):
                self.died += 1
                tail = (
                    "starting it again"
                    if again
                    else "the others go on; Ctrl-C and `up` again starts it, or use --restart"
                )
                console.complain(f"{child.role} {child.id} (pid {child.process.pid}) {_ending(child.process)}; {tail}")
                if again:
                    self.restart(child)
            if not any(child.process.poll() is None for child in self.children):
                raise ConfigurationError("no process of the cluster is left")

    def _step(self, seconds: float | None) -> list[Child]:
        """Reads what came; the children that ended."""
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
        for role in ("server", "proxy"):  # Servers first: so each can still say goodbye to its proxies.
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


@app.command()
def up(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where all of it lives.")],
    proxies: Annotated[
        int | None, typer.Option(min=1, max=COUNT_MAX, help="How many proxies; 2, with --standby 3.")
    ] = None,
    servers: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="How many servers.")] = 2,
    standby: Annotated[bool, typer.Option("--standby", help="Give each server a second member, in DIR/s1b …")] = False,
    with_keys: Annotated[bool, typer.Option("--keys", help="Let nobody in without a key; makes the keys.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR", help="Tell metrics at HOST:PORT, each further process a port higher; 0: free ones."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--restart", help="Start a process that died again, and say so.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
    detached: Annotated[
        bool, typer.Option("--detach", help="Return when it is up; pubsub down --dir DIR stops it, DIR/up.log has it.")
    ] = False,
    background: Annotated[bool, typer.Option(DETACHED, hidden=True)] = False,
) -> None:
    """Run a local cluster until SIGTERM, SIGINT or SIGHUP, or pubsub down --dir DIR, on free ports of this host.

    DIR/proxies lists the proxies: set PUBSUB_PROXIES_FILE to it, or give it as --proxies-file.
    With --keys it has their keys too, DIR/authorized says who may come in, and DIR/client.key may do everything:
    set PUBSUB_CLIENT_KEY_FILE to it. A directory that has keys or second members keeps them, unasked.
    A process that dies is reported; the exit code is then 1. With --metrics each says where it tells its metrics.
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
    """Start the proxies, write down where they are, and start the servers; where the proxies are."""
    listing = directory / "proxies"
    found = _start_proxies(cluster, directory, addresses, keys)
    if len(found) == len(addresses):
        found = found if keys is None else keys.named(found)
        if found != list(addresses):
            write_proxies(listing, found)
        _start_servers(cluster, directory, members, keys)
    return found


def _proxies_before(listing: Path, proxies: int | None, standby: bool) -> tuple[list[ProxyAddress], int]:
    """The proxies of a directory that was used before, and how many there are to be."""
    before = list(read_proxies(listing)) if listing.exists() else []
    count = proxies or len(before) or (3 if standby else 2)
    if before and len(before) != count:
        raise ConfigurationError(
            f"--proxies {count}: {listing} names {len(before)}, and the proxies of a cluster are fixed"
        )
    return before, count


def _members(directory: Path, servers: int, standby: bool) -> dict[str, str]:
    """The directories of all members, first ones first, and whose they are; one that was there before is kept."""
    names = [f"s{number}" for number in range(1, servers + 1)]
    seconds = {f"{name}b": name for name in names if standby or (directory / f"{name}b" / "local").exists()}
    return dict(zip(names, names, strict=True)) | seconds


def _start_servers(cluster: Cluster, directory: Path, members: dict[str, str], keys: ClusterKeys | None) -> None:
    """First members first: second ones are told where those listen."""
    primaries: dict[str, str] = {}
    for name, server in members.items():
        options = ["--proxies-file", str(directory / "proxies"), "--dir", str(directory / name)]
        if name != server and not primaries:
            cluster.wait_ready()
            primaries = {child.id: listening(child).servers for child in cluster.children if child.ready}
        if name != server:
            if server not in primaries:
                return  # Somebody asked to stop.
            options += ["--standby-of", primaries[server]]
        cluster.start("server", name, *options, *_key_options(keys, "server", server, name), of=server)
    cluster.wait_ready()


def _metrics(given: str | None, processes: int) -> str | None:
    """Where the first process tells its metrics.

    Raises:
        ConfigurationError: it is no address, or there are not so many ports behind it.
    """
    if given is None:
        return None
    try:
        found = check_http_address(given)
        check_http_address(numbered(found, processes - 1))
    except ValueError as error:
        raise ConfigurationError(f"--metrics {given}: it is {error}, with a port for each process") from None
    return found


def numbered(address: str, place: int) -> str:
    """HOST:PORT of the process in this place, the first one's being 0; port 0 stays, for a free one."""
    host, port = split_place(address)
    return address if port == 0 else join_place(host, port + place)


def _keys(directory: Path, wanted: bool, proxies: int, members: dict[str, str]) -> ClusterKeys | None:
    """The keys of a cluster that is to have them, or has them."""
    from pubsub.cli.cluster_keys import ClusterKeys

    keys = ClusterKeys(directory)
    if not wanted and not keys.there:
        if os.environ.get("PUBSUB_AUTHORIZED"):
            raise ConfigurationError(
                f"PUBSUB_AUTHORIZED says who may enter, and the cluster in {directory} has no keys: start it with"
                " --keys, which makes a file of its own, or unset PUBSUB_AUTHORIZED"
            )
        return None
    if not keys.there:
        keys.make_client()  # Not again where it was taken away.
    for number in range(1, proxies + 1):
        keys.options("proxy", f"p{number}")
    for name, server in members.items():  # Before a proxy runs: it would refuse them for a second.
        keys.options("server", server, name)
    return keys


def _key_options(keys: ClusterKeys | None, role: str, name: str, place: str = "") -> list[str]:
    return [] if keys is None else keys.options(role, name, place)


def _start_proxies(
    cluster: Cluster, directory: Path, addresses: Sequence[ProxyAddress], keys: ClusterKeys | None
) -> list[ProxyAddress]:
    """Where they listen; [] if somebody asked to stop meanwhile."""
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
        # A proxy that is started again listens where it did before, and waits for the owners of topics like any other.
        locked = _key_options(keys, "proxy", child.id)
        told = child.command[child.command.index("--metrics") :] if "--metrics" in child.command else []
        child.command = _command("proxy", child.id, *_proxy_options(directory / child.id, found[-1]), *locked, *told)
    return found


def _proxy_options(directory: Path, address: ProxyAddress) -> list[str]:
    options = ["--bind", address.clients, "--dir", str(directory)]
    return options if address.servers == address.clients else [*options, "--servers", address.servers]


def _command(role: str, name: str, *options: str) -> list[str]:
    """A command of this very program."""
    return [sys.executable, "-m", "pubsub", role, "start", "--id", name, *options]


def listening(child: Child) -> ProxyAddress:
    """From the ready line: "proxy p1 ready: clients tcp://…, servers tcp://…"."""
    words = child.ready.replace(",", " ").split()
    addresses = [word for word in words if "://" in word and not word.startswith("http://")]
    if not addresses:
        raise ConfigurationError(f"{child.role} {child.id} said {child.ready!r} where its addresses were expected")
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
