"""A keyed proxy as a process: refused settings, the effect of SIGHUP, and hidden secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.errors import AuthorizedRefused, ConfigurationError
from pubsub.messenger.curve import CurveClient
from pubsub.protocol import Outcome, Subscribe
from pubsub.proxy.process import ProxyProcess
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_secret
from tests.proxy.locked import USUAL, line, pair, write
from tests.proxy.peers import TCP, Peer, wait_until
from tests.proxy.stage import settings

PROGRAM = """
import sys
from pathlib import Path
from pubsub.config.settings import ProxySettings
from pubsub.proxy.process import run_proxy
tcp, directory = "tcp://127.0.0.1:0", Path(sys.argv[1])
authorized = directory / "authorized"
run_proxy(ProxySettings(id="p1", bind=tcp, servers=tcp, directory=directory / "p1", startup_wait_seconds=0.0,
                        authorized=authorized if authorized.exists() else None, audit_file=directory / "audit"))
"""


@contextmanager
def program(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A proxy with keys where there is a file of who is authorized; and where clients connect."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().replace(",", "").split()[4]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


def keyed(directory: Path) -> Path:
    make_key_file(directory / "p1" / "key", pair("p1").secret)
    write(directory / "authorized", *USUAL)
    return directory


def client(context: zmq.Context[Any], address: str, name: str) -> Peer:
    return Peer(context, address, curve=CurveClient(pair(name), (pair("p1").public,)))


def noted(directory: Path, what: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (directory / "audit").read_text().splitlines())
    return [line for line in lines if line["what"] == what]


def test_sighup_reads_the_file_again_begins_the_audit_anew_and_ends_nothing(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with program(keyed(tmp_path)) as (process, address):
        ann = client(context, address, "ann")
        assert ann.ask(Subscribe("ann", "t", 1, 1)).reason == "no_server_sends_heartbeats"
        (tmp_path / "audit").rename(tmp_path / "audit.1")
        write(tmp_path / "authorized", *USUAL[:3], line("client", "bob", "get=t"))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: (tmp_path / "audit").exists() and len(noted(tmp_path, "line_came")) == 1)
        assert ann.ask(Subscribe("ann", "t", 1, 1)).outcome is Outcome.DENIED
        bob = client(context, address, "bob")
        assert bob.ask(Subscribe("bob", "t", 1, 1)).reason == "no_server_sends_heartbeats"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(5.0) == 0


def test_sighup_ends_a_proxy_without_keys(tmp_path: Path) -> None:
    with program(tmp_path) as (process, _):
        process.send_signal(signal.SIGHUP)
        assert process.wait(5.0) == -signal.SIGHUP


def test_no_output_of_a_proxy_shows_a_secret(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with program(keyed(tmp_path)) as (process, address):
        client(context, address, "ann").ask(Subscribe("ann", "t", 1, 1))
        stranger = client(context, address, "stranger")
        stranger.send(Subscribe("ann", "t", 1, 1))
        wait_until(lambda: len(noted(tmp_path, "refused")) == 1)
        write(tmp_path / "authorized", f"client ann {format_secret(pair('ann').secret)}")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(noted(tmp_path, "reload_failed")) == 1)
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=5)
        text = out + err + command + (tmp_path / "audit").read_text()
    for name in ("p1", "ann", "stranger"):
        secret = format_secret(pair(name).secret)
        assert secret[3:20] not in text
    assert "authorized" in err


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://10.1.2.3:5601"])
@pytest.mark.parametrize("field", ["bind", "servers"])
def test_a_proxy_without_keys_does_not_listen_on_a_public_address(tmp_path: Path, field: str, address: str) -> None:
    process = ProxyProcess(settings(directory=tmp_path, **{"bind": TCP, "servers": TCP, field: address}))
    with pytest.raises(ConfigurationError) as caught:
        process.start()
    assert str(caught.value) == (
        f"proxy p1 would listen on {address} without keys, for anyone who reaches it: pubsub keys new proxy p1, "
        "or --insecure"
    )


def test_a_proxy_with_insecure_listens_without_keys_and_the_audit_shows_that(tmp_path: Path) -> None:
    # An address for documents, which no host has (RFC 5737).
    address = "tcp://203.0.113.1:0"
    chosen = settings(directory=tmp_path, bind=address, insecure=True, audit_file=tmp_path / "audit")
    process = ProxyProcess(chosen)
    with suppress(ConfigurationError):  # It has no such address; the doors are not what it fails at.
        process.start()
    process.close()
    assert noted(tmp_path, "insecure")[0]["address"] == address


@pytest.mark.parametrize("what", ["no file", "no key", "bad file", "open key"])
def test_keys_that_are_half_set_up_are_refused_before_anything_listens(tmp_path: Path, what: str) -> None:
    keyed(tmp_path)
    authorized: Path | None = tmp_path / "authorized"
    if what == "no file":
        authorized = None
    elif what == "no key":
        (tmp_path / "p1" / "key").unlink()
    elif what == "bad file":
        (tmp_path / "authorized").write_text("half a li")
    else:
        (tmp_path / "p1" / "key").chmod(0o644)
    process = ProxyProcess(settings(directory=tmp_path / "p1", bind=TCP, authorized=authorized))
    with pytest.raises((ConfigurationError, AuthorizedRefused)) as caught:
        process.start()
    says = {"no file": "--authorized FILE", "no key": "pubsub keys new proxy p1", "bad file": "line 1"}
    assert says.get(what, "chmod 600") in str(caught.value)
    assert not (tmp_path / "p1" / "routes.db").exists()
