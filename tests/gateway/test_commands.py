"""`pubsub webhook …` and `pubsub gateway token`."""

from __future__ import annotations

import json

import pytest

from pubsub.cli import main
from pubsub.web.tokens import parse_users
from tests.faults.cluster import until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway


@pytest.fixture(autouse=True)
def at(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_GATEWAY", gateway.url)


def test_a_webhook_is_added_listed_retried_and_removed(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver() as receiver:
        assert main(["webhook", "add", "shell/t", "w", receiver.url]) == 0
        assert capsys.readouterr().out.startswith("whsec_")
        gateway.put("shell%2Ft", b"x")
        until(lambda: receiver.bodies() == [b"x"], "it is delivered")
        assert main(["webhook", "list", "shell/t"]) == 0
        assert receiver.url.removeprefix("http://") in capsys.readouterr().out.replace("\n", "")
        assert main(["webhook", "list", "shell/t", "--json"]) == 0
        assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["w"]
        assert main(["webhook", "retry", "shell/t", "w", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"retried": 0}
        assert main(["webhook", "redrive", "shell/t", "w", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"redriven": 0}
        assert main(["webhook", "purge", "shell/t", "w", "30d", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"purged": 0}
        assert main(["webhook", "purge", "shell/t", "w", "soon"]) == 2
        assert main(["webhook", "remove", "shell/t", "w"]) == 0
        assert main(["webhook", "remove", "shell/t", "w"]) == 13


def test_dead_letters_are_shown_with_why_and_nothing_that_a_terminal_obeys(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    with Receiver(lambda headers, body: 410) as receiver:
        assert main(["webhook", "add", "shell/d", "w", receiver.url]) == 0
        gateway.put("shell%2Fd", b"\x1b[31m[red]" + b"x" * 5000)

        def dead_letters() -> str:
            capsys.readouterr()
            assert main(["webhook", "dead-letters", "shell/d", "w"]) == 0
            return capsys.readouterr().out

        shown = until(lambda: "status 410" in (out := dead_letters()) and out, "the letter is shown").replace("\n", "")
        assert "\x1b" not in shown
        assert "5,010" in shown
        assert main(["webhook", "list", "shell/d"]) == 0
        assert "status 410, try 1" in capsys.readouterr().out
        assert main(["webhook", "dead-letters", "shell/d", "w", "--json"]) == 0
        (letter,) = json.loads(capsys.readouterr().out)["dead_letters"]
        assert (letter["error"], len(letter["body"])) == ("status 410", 5010)


def test_each_failure_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhook", "add", "t", "w", "ftp://x"]) == 2
    assert main(["webhook", "list", "t", "--gateway", "http://127.0.0.1:9"]) == 4
    assert main(["webhook", "list", "t", "--gateway", "nowhere"]) in {4, 8}
    assert "Traceback" not in capsys.readouterr().err


def test_a_new_token_comes_with_its_line_for_the_tokens_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "token", "alice"]) == 0
    token, line = capsys.readouterr().out.splitlines()
    user = parse_users([line], "f").find(token)
    assert user is not None
    assert (user.name, user.may_put("x")) == ("alice", True)
    assert main(["gateway", "token", "a.b"]) == 8


NOWHERE = [
    ("ALL_PROXY", "socks5://127.0.0.1:9"),
    ("HTTP_PROXY", "http://127.0.0.1:9"),
    ("HTTP_PROXY", "foo://x"),
    ("HTTPS_PROXY", "foo://x"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem"),
    ("SSL_CERT_DIR", "/nowhere"),
    ("SSLKEYLOGFILE", "/nowhere/keys"),
]


@pytest.mark.parametrize(("name", "value"), NOWHERE)
def test_a_gateway_on_this_host_is_reached_despite_proxy_variables(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["webhook", "list", "shell/e"]) == 0


@pytest.mark.parametrize(("name", "value", "url"), [
    ("ALL_PROXY", "foo://me:Passw0rd@x", "http://gateway.example"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem", "https://127.0.0.1:9"),
    ("SSL_CERT_DIR", "/nowhere", "https://gateway.example"),
])  # fmt: skip
def test_a_needed_variable_with_a_bad_path_is_named(
    name: str, value: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for other in (
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "ALL_PROXY",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "https_proxy",
    ):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert main(["webhook", "list", "t", "--gateway", url]) == 8
    said = capsys.readouterr().err
    assert f"{name}=" in said
    assert "Passw0rd" not in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("body", [b"hello", b"", b"{}", b"[1]", b"[" * 5_000])
def test_an_answer_of_no_gateway_is_named_in_one_line(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver() as receiver:
        receiver.page = 200, body
        url = receiver.url.replace("http://", "http://me:Passw0rd@")
        code = main(["webhook", "list", "t", "--gateway", url])
    said = capsys.readouterr().err
    assert (code, "Passw0rd" in said, len(said.splitlines())) == (8, False, 1), said
    assert "is not a gateway" in said
