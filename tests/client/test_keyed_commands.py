"""`pubsub client …` against proxies with keys: exit codes, one line each, and never a secret."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keyed import BOB, EVERYTHING, Keyed, keyed, line, pair, public

from pubsub.cli import main
from pubsub.config.addresses import ProxyAddress, write_proxies
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_secret

Run = Callable[..., int]
AT_ONCE = 20.0
"""Seconds for a process to start and end: less than a call's time-out."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """Directory of the clients' states and keys."""
    directory = tmp_path / "clients"
    for name in ("alice", "bob", "stranger"):
        make_key_file(directory / f"{name}.key", pair(name).secret)
    return directory


@pytest.fixture
def run(cluster: Keyed, clients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pubsub client ARGUMENTS` with the usual key file, and the proxies from their file."""
    cluster.authorize(EVERYTHING, BOB)
    write_proxies(
        tmp_path / "proxies", [ProxyAddress(cluster.proxy.address, cluster.proxy.process.servers, (pair("p1").public,))]
    )
    (tmp_path / "body").write_bytes(b"body")
    monkeypatch.setenv("PUBSUB_PROXIES_FILE", str(tmp_path / "proxies"))
    monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", str(clients))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: main(["client", *map(str, arguments)])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    for name in ("alice", "bob", "stranger", "p1"):
        assert format_secret(pair(name).secret) not in captured.err
    return captured.err.removeprefix("pubsub: error: ").rstrip("\n")


def test_the_key_is_beside_the_state(run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("bob", "subscribe", "there") == 0
    assert run("alice", "put", "there", "body") == 0
    assert run("bob", "get", "there") == 0
    assert capfdbinary.readouterr().out.endswith(b"body")


def test_keys_are_given_by_name(run: Run, cluster: Keyed, clients: Path, tmp_path: Path) -> None:
    named = ["--key", clients / "alice.key", "--proxy", cluster.proxy.address, "--proxy-key", public("p1")]
    assert run("alice", "put", "named", "body", "--dir", tmp_path / "elsewhere", *named) == 0


def test_an_unauthorized_key_is_exit_code_21(run: Run, cluster: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    key = public("stranger")
    for arguments in (["put", "t", "body"], ["flush"], ["subscribe", "t"], ["get", "t"]):
        begun = time.monotonic()
        assert run("stranger", *arguments) == 21
        assert time.monotonic() - begun < AT_ONCE
        assert one_line(capsys) == (
            f"proxy {cluster.proxy.address} does not know the key {key[:11]}… of client stranger: "
            f"pubsub keys authorize client stranger {key}"
        )


def test_another_proxys_key_is_exit_code_21(run: Run, cluster: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    other = public("p2")
    assert run("alice", "put", "t", "body", "--proxy", cluster.proxy.address, "--proxy-key", other) == 21
    text = f"{cluster.proxy.address} closed the handshake: its key is not the one in the proxies file, {other}"
    assert one_line(capsys) == text
    assert run("alice", "discard", "t") == 0


def test_a_missing_key_is_exit_code_21_or_8(
    run: Run, cluster: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["nobody", "put", "t", "body", "--dir", tmp_path / "none"]
    assert run(*arguments, "--proxy", cluster.proxy.address) == 21
    assert one_line(capsys) == f"{cluster.proxy.address} wants a key: pubsub keys new client nobody"
    assert run(*arguments) == 8
    text = f"{cluster.proxy.address} has a key, and client nobody has none: pubsub keys new client nobody"
    assert one_line(capsys) == text


def test_a_missing_right_is_exit_code_22(run: Run, cluster: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("alice", "subscribe", "orders") == 0
    capsys.readouterr()
    cluster.authorize(line("client", "alice"), BOB)
    kept = "the put is kept: ask for the right, then pubsub client alice flush, or discard orders"
    for arguments, text in (
        (["put", "orders", "body"], f"client alice may not put to orders; {kept}"),
        (["flush"], f"client alice may not put to orders; {kept}"),
        (["get", "orders"], "client alice may not get from orders"),
        (["subscribe", "other"], "client alice may not get from other"),
        (["unsubscribe", "orders"], "client alice may not get from orders"),
    ):
        assert run("alice", *arguments) == 22
        assert one_line(capsys) == text
    cluster.authorize(EVERYTHING, BOB)
    assert run("alice", "flush") == 0


def test_denied_lines_are_kept(run: Run, cluster: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.authorize(line("client", "alice"), BOB)
    (tmp_path / "lines").write_text("1\n2\n3\n")
    assert run("alice", "put", "lines", "lines", "--lines") == 22
    assert "the put is kept" in one_line(capsys)
    assert run("alice", "discard", "lines") == 0
    assert capsys.readouterr().out == "discarded 3 unfinished puts on lines\n"


def test_a_key_of_another_client_is_exit_code_22(run: Run, clients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bob", "put", "t", "body", "--key", clients / "alice.key") == 22
    assert one_line(capsys).startswith("this key is alice's, not bob's; the put is kept")


def test_a_refusing_proxy_and_a_missing_proxy_are_both_named(
    run: Run, cluster: Keyed, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["--proxy-key", public("p1"), "--proxy-key", public("p2")]
    proxies = ["--proxy", cluster.proxy.address, "--proxy", "tcp://127.0.0.1:9"]
    assert run("stranger", "put", "t", "body", "--timeout-seconds", "0.5", *proxies, *keys) == 5
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"proxy {cluster.proxy.address} does not know the key" in said
    assert "tcp://127.0.0.1:9: Connection refused" in said


def test_a_process_prints_nothing_else_about_keys(run: Run, clients: Path) -> None:
    """The full output of a real process, with warnings, tracebacks and output at the interpreter's end."""
    command = [sys.executable, "-W", "always", "-m", "pubsub", "client", "stranger", "put", "t", "body"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 21
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert format_secret(pair("stranger").secret) not in done.stderr
