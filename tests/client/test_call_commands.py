"""`pubsub client ID call|replies|serve`: their output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pubsub.client import Client
from pubsub.client.commands import main
from pubsub.client.errors import CallFailed
from tests.client.opened import names


def test_a_call_is_made_served_asked_for_again_and_forgotten(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    assert "served 0 calls" in capfd.readouterr().out
    assert main(["c", "call", name, "hello", "--id", "c1", "--wait", "3", *place]) == 30
    assert "the call continues. Ask again: pubsub client c replies c1" in capfd.readouterr().err
    assert main(["w", "serve", name, "--count", "1", *place, "--", "tr", "a-z", "A-Z"]) == 0
    capfd.readouterr()
    assert main(["c", "replies", "c1", "--wait", "20", *place]) == 0
    assert capfd.readouterr().out == "HELLO"
    assert main(["c", "call", name, "hello", "--id", "c1", "--json", *place]) == 0
    assert json.loads(capfd.readouterr().out) == {"call": "c1", "service": name, "body": "HELLO"}
    assert main(["c", "call", name, "other", "--id", "c1", *place]) == 2
    assert main(["c", "replies", "--json", *place]) == 0
    (kept,) = json.loads(capfd.readouterr().out)
    assert (kept["id"], kept["outcome"], kept["told"]) == ("c1", "done", True)
    assert main(["c", "replies", "c1", "--forget", *place]) == 0
    assert main(["c", "replies", "c1", *place]) == 33
    assert main(["w", "serve", name, "--withdraw", *place]) == 0
    assert f"w no longer serves {name}" in capfd.readouterr().out


def test_workers_of_a_group_share_a_service(service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w1", "serve", name, "--group", "--idle", "0", *place]) == 0
    assert main(["c", "call", name, "hello", "--id", "c1", "--wait", "3", *place]) == 30
    assert main(["w2", "serve", name, "--group", "--count", "1", *place, "--", "tr", "a-z", "A-Z"]) == 0
    capfd.readouterr()
    assert main(["c", "replies", "c1", "--wait", "20", *place]) == 0
    assert capfd.readouterr().out == "HELLO"
    assert main(["w3", "serve", name, "--idle", "0", "--timeout-seconds", "1", *place]) != 0


def test_a_command_that_reads_late_gets_all_of_a_large_call(service: str, tmp_path: Path) -> None:
    """The call is larger than a pipe, and signals are checked meanwhile."""
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    body = bytes(range(256)) * 2_000
    with Client("c", proxies=[service], directory=tmp_path / "c") as client:
        client.request(name, body, id="large", timeout=20.0)
        words = ["sh", "-c", "sleep 0.3; cat"]
        assert main(["w", "serve", name, "--count", "1", *place, "--", *words]) == 0
        assert client.reply("large", timeout=20.0).body == body


def test_a_failed_command_and_a_late_call_get_error_replies(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    assert main(["c", "call", name, "bad", "--id", "bad", "--wait", "3", *place]) == 30
    assert main(["c", "call", name, "late", "--id", "late", "--deadline", "0", "--wait", "0", *place]) == 30
    assert main(["c", "flush", *place]) == 0
    failing = ["--handler-attempts", "1", "--count", "2", *place, "--", "sh", "-c", "echo why >&2; exit 3"]
    assert main(["w", "serve", name, *failing]) == 0
    capfd.readouterr()
    assert main(["c", "replies", "bad", "--wait", "20", *place]) == 31
    assert "sh ended with 3: why" in capfd.readouterr().err
    assert main(["c", "replies", "late", "--wait", "20", *place]) == 32
    assert "deadline passed" in capfd.readouterr().err


def test_a_command_that_hangs_is_killed_and_is_an_error_reply(service: str, tmp_path: Path) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    with Client("c", proxies=[service], directory=tmp_path / "c") as client:
        client.request(name, b"hello", id="hung", timeout=20.0)
        hanging = ["--handler-timeout", "0.3", "--handler-attempts", "1", "--count", "1", *place]
        assert main(["w", "serve", name, *hanging, "--", "sh", "-c", "sleep 1000 & wait"]) == 0
        with pytest.raises(CallFailed, match=r"sh ran for longer than 0\.3 s and was killed"):
            client.reply("hung", timeout=20.0)


def test_a_worker_that_ends_after_so_many_calls_leaves_no_reply_behind(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close does not wait for messages in flight, and a reply left behind would come with the worker's next start."""
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    monkeypatch.setattr("pubsub.client.client.ACKNOWLEDGE_SECONDS", 0.0)
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    calls = [f"c{number}" for number in range(20)]
    with Client("c", proxies=[service], directory=tmp_path) as client:
        for call in calls:
            client.request(name, b"hello", id=call, timeout=20.0)
        assert main(["w", "serve", name, "--count", "20", *place]) == 0
        with Client("w", proxies=[service], directory=tmp_path) as worker:
            assert worker.unfinished("$replies.c") == 0
        assert [client.reply(call, timeout=20.0).body for call in calls] == [b"hello"] * 20


@pytest.mark.parametrize(
    "words",
    [
        ["call", "a b", "x"],
        ["call", "s", "x", "--header", "pubsub-call=1"],
        ["replies", "--forget"],
        ["serve", "s", "--part", "1"],
    ],
)
def test_an_invalid_argument_is_one_line_with_exit_code_2_and_makes_no_client(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["c", *words, "--dir", str(tmp_path)]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.glob("*.db"))
