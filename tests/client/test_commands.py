"""`pubsub client …` against a proxy and a server: printed and written output, and exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.client import Client, Message, Transaction
from pubsub.client.batch_contents import BatchContents
from pubsub.client.inputs import _lines
from pubsub.config import ClientSettings
from pubsub.protocol import RECORD_BYTES_MAX
from pubsub.server.requests import report

Run = Callable[..., int]


@pytest.fixture
def run(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pubsub client ARGUMENTS`, with its state in a directory of the test."""
    monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", service)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))

    def client(*arguments: str | Path, stdin: bytes | None = None) -> int:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return main(["client", *map(str, arguments)])

    return client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", ".").replace("]", "")[:80]


def test_a_message_is_delivered_once_byte_for_byte(
    run: Run, topic: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    body = b"\x00\xff no line end"
    (tmp_path / "body").write_bytes(body)
    assert run("billing", "subscribe", topic) == 0
    assert run("shop", "put", topic, tmp_path / "body") == 0
    assert capfdbinary.readouterr().out == f"billing is subscribed to {topic}\n".encode()
    assert run("billing", "get", topic) == 0
    assert capfdbinary.readouterr().out == body
    assert run("billing", "get", topic, "--wait", "0") == 3
    captured = capfdbinary.readouterr()
    assert captured.out == b""
    assert captured.err == f"pubsub: error: {topic} has no message for billing within 0 s\n".encode()


def test_lines_are_put_and_got(run: Run, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("c", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", "--lines", "--json", stdin=b"one\ntwo\n\nlast") == 0
    put = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (put["put"], put["topic"]) == (4, topic)
    assert run("c", "get", topic, "--count", "3", "--out", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n\n"
    assert run("c", "get", topic, "--count", "3", "--wait", "0.1", "--out", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == b"last\n"


def test_messages_are_printed_as_json(run: Run, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("c", "subscribe", topic, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"client": "c", "subscribed": topic}
    for body in ("grüß".encode(), b"\xff"):
        assert run("c", "put", topic, "-", "--json", stdin=body) == 0
    counter = json.loads(capsys.readouterr().out.splitlines()[0])["counter"]
    assert run("c", "get", topic, "--count", "2", "--json") == 0
    text, other = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (text["body"], text["counter"], text["topic"]) == ("grüß", counter, topic)
    assert text["publisher"].startswith("c/")
    assert text["id"] != other["id"]
    assert other["body_base64"] == "/w=="


def test_an_operator_ends_a_subscription_on_a_topic_that_a_report_has_no_room_for(
    run: Run, service: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", topic):
        assert run("n2", "subscribe", name) == 0
    monkeypatch.setattr(report, "TOPICS_MAX", 1)
    assert main(["topic", "unsubscribe", topic, "--subscriber", "n2", "--yes", "--proxy", service]) == 0


def test_the_command_subscribe_subscribes_again_after_a_removal_at_the_server(
    run: Run, service: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("n1", "subscribe", topic) == 0
    assert main(["topic", "unsubscribe", topic, "--subscriber", "n1", "--yes", "--proxy", service]) == 0
    assert run("n1", "subscribe", topic) == 0
    assert run("n1", "put", topic, "-", stdin=b"hello") == 0
    capsys.readouterr()
    assert run("n1", "get", topic) == 11
    assert "ended elsewhere" in capsys.readouterr().err
    assert run("n1", "get", topic) == 0
    assert capsys.readouterr().out == "hello"
    assert main(["topic", "unsubscribe", topic, "--subscriber", "n1", "--yes", "--proxy", service]) == 0
    assert run("n1", "get", topic) == 12
    assert run("n1", "subscribe", topic) == 0
    assert run("n1", "get", topic) == 11  # Another process got `Superseded`.
    assert run("n1", "get", topic) == 3


def test_unsubscribing_without_a_subscription_is_refused(
    run: Run, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("c", "subscribe", "another") == 0
    assert run("c", "unsubscribe", topic) == 6
    assert f"client c never subscribed to {topic}" in capsys.readouterr().err


def test_an_unsubscribed_client_gets_no_messages(run: Run, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("c", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", stdin=b"x") == 0
    assert run("c", "unsubscribe", topic) == 0
    assert run("c", "get", topic, "--wait", "0") == 6
    assert f"pubsub client c subscribe {topic}" in capsys.readouterr().err


def test_a_put_without_a_service_is_in_doubt_and_kept_and_finished_later(
    run: Run, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("reader", "subscribe", topic) == 0
    where = ["--dir", tmp_path / "own place"]
    nobody = ["--proxy", "tcp://127.0.0.1:9", "--timeout-seconds", "0.2"]
    assert run("c", "put", topic, "-", *where, *nobody, stdin=b"kept") == 5
    error = capsys.readouterr().err
    options = f" --dir '{tmp_path / 'own place'}' --proxy tcp://127.0.0.1:9"
    assert f"pubsub client c flush{options};" in error
    assert f"pubsub client c discard {topic}{options}\n" in error
    assert run("reader", "get", topic, "--wait", "0") == 3
    assert run("c", "flush", *where) == 0
    assert run("reader", "get", topic) == 0
    assert "kept" in capsys.readouterr().out
    assert run("reader", "get", topic, "--wait", "0") == 3


def test_a_put_in_doubt_can_be_discarded(run: Run, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reader", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", "--proxy", "tcp://127.0.0.1:9", "--timeout-seconds", "0.2", stdin=b"x") == 5
    capsys.readouterr()
    assert run("c", "discard", topic, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"client": "c", "topic": topic, "discarded": 1}
    assert run("c", "flush") == 0
    assert run("reader", "get", topic, "--wait", "0.1") == 3


def test_other_calls_without_a_service_are_unavailable(run: Run, topic: str) -> None:
    assert run("c", "subscribe", topic, "--proxy", "tcp://127.0.0.1:9", "--timeout-seconds", "0.2") == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a/b", "flush"], "client ID 'a/b' is not allowed"),
        (["..", "flush"], "client ID '..' is not allowed"),
        (["c", "subscribe", ""], "topic '' is not allowed"),
        (["c", "subscribe", "two words"], "topic 'two words' is not allowed"),
        (["c", "subscribe", "a\r\nb"], "is not allowed"),
        (["c", "subscribe", "x" * 81], "is not allowed"),
        (["c", "put", "t", "/none/file"], "/none/file: No such file or directory; PATH must be a file"),
        (["c", "put", "t", "/"], "/: Is a directory"),
        (["there", "get", "t", "--out", "/none/file"], "/none/file: No such file or directory"),
        (["c", "put", "a b", "-"], "topic 'a b' is not allowed"),
        (["c", "get", "a b"], "topic 'a b' is not allowed"),
        (["c", "discard", "a b"], "topic 'a b' is not allowed"),
        (["c", "dead-letters", "a b"], "topic 'a b' is not allowed"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run: Run, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if arguments[0] == "there":
        assert run("there", "subscribe", "t") == 0
        capsys.readouterr()
    assert run(*arguments) == 2
    assert not list(tmp_path.rglob("c.db"))
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["or*", "or>", "orders.#", "_x", "$x"])
def test_a_reserved_topic_is_refused_and_one_that_exists_goes_on(
    run: Run, service: str, tmp_path: Path, name: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for words in (["subscribe", name], ["put", name, "-"], ["put", name, "-", "--lines"]):
        assert run("c", *words, stdin=b"x") == 2
        assert b"are reserved" in capfdbinary.readouterr().err
    with Client("c", proxies=[service], directory=tmp_path / "share/pirate-pubsub/client/c") as client:
        calls = client._calls  # As a release made it that knew of no reserved names.
        client._run(calls.subscribing._intend(name, True, calls.session.until(10.0), 10.0))
        with client._session.entered():
            chain = calls.session.core.outbox.chain(name)
            calls.session.accumulator.put(chain, [BatchContents([b"old"])], calls.session.until(10.0))
        client.flush()
    assert run("c", "put", name, "-", stdin=b"new") == 0
    assert run("c", "subscribe", name) == 0
    capfdbinary.readouterr()
    assert run("c", "get", name, "--count", "2") == 0
    assert capfdbinary.readouterr().out == b"old\nnew\n"
    assert run("c", "unsubscribe", name) == 0


def test_the_state_is_exported_as_a_tree(run: Run, topic: str, tmp_path: Path) -> None:
    assert run("c", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", stdin=b"x") == 0
    assert run("c", "get", topic) == 0
    assert run("c", "export", tmp_path / "tree") == 0
    names = {path.name for path in (tmp_path / "tree").rglob("*") if path.is_file()}
    assert {"last_get_id", "last_put_counter"} <= names


@pytest.mark.parametrize("directory", [None, "states"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "tree"],
        ["renew"],
        ["flush"],
        ["discard", "t"],
        ["dead-letters"],
        ["get", "t"],
        ["get", "t", "--record", "record"],
        ["unsubscribe", "t"],
    ],
    ids=" ".join,
)
def test_a_mistyped_client_is_reported_and_not_made(
    run: Run,
    arguments: list[str],
    directory: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [] if directory is None else ["--dir", directory]
    place = directory or tmp_path / "share/pirate-pubsub/client"
    assert run("alcie", *arguments, *named) == 20
    assert f"there is no client alcie in {place} (there is none); " in capsys.readouterr().err
    for name in ("carol", "alice"):
        assert run(name, "subscribe", "elsewhere", *named) == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert run("alcie", *arguments, *named) == 20
    captured = capsys.readouterr()
    text = f"there is no client alcie in {place} (there are: alice, carol); its first subscribe or put creates it\n"
    assert (captured.out, captured.err) == ("", f"pubsub: error: {text}")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_replaces_nothing(run: Run, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = tmp_path / "tree"
    assert run("c", "subscribe", topic) == 0
    assert run("c", "export", tree) == 0
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run("c", "export", tree) == 2
    text = f"{tree}/client_c exists already, and an export replaces nothing: name another directory\n"
    assert capsys.readouterr().err == f"pubsub: error: {text}"
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before
    (tmp_path / "file").write_text("not a directory")
    assert run("c", "export", tmp_path / "file") == 2
    assert "Not a directory" in capsys.readouterr().err
    assert run("c", "export", "/dev/null/tree") == 2


def test_renew_makes_another_publisher(run: Run, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reader", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", stdin=b"1") == 0
    assert run("c", "renew", "--discard") == 0
    assert run("c", "put", topic, "-", stdin=b"2") == 0
    capsys.readouterr()
    assert run("reader", "get", topic, "--count", "2", "--json") == 0
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["publisher"] != second["publisher"]


def test_a_small_put_imports_only_what_it_needs(service: str, topic: str, tmp_path: Path) -> None:
    """Imports take most of the time of a small put; their number is tested, and never the time."""
    (tmp_path / "body").write_bytes(b"x" * 100)
    place = ["--proxy", service, "--dir", str(tmp_path / "state")]
    command = [sys.executable, "-X", "importtime", "-m", "pubsub", "client", "c", "put", topic, str(tmp_path / "body")]
    done = subprocess.run([*command, *place], check=True, timeout=60, capture_output=True, text=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert any(name.startswith("pubsub.client") for name in imported)
    dear = {"rich", "pydantic", "pubsub.server", "pubsub.proxy", "pubsub.cli.bench", "pyspark", "pyarrow", "hypothesis"}
    assert not imported & (dear | {"pubsub.client.storage.recorder", "pubsub.pipelines"})


def test_a_second_process_on_the_same_client_is_one_line_and_exit_code_9(
    run: Run, service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client("c", proxies=[service], directory=tmp_path / "share/pirate-pubsub/client/c"):
        assert run("c", "flush") == 9
    assert "in use by this very process" in capsys.readouterr().err
    assert run("c", "flush") == 0


def test_an_interrupt_ends_a_waiting_get_with_130(run: Run, service: str, topic: str, tmp_path: Path) -> None:
    place = ["--proxy", service, "--dir", str(tmp_path / "state")]
    assert run("c", "subscribe", topic, *place) == 0
    command = [sys.executable, "-m", "pubsub", "client", "c", "get", topic, "--wait", "60", *place]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "state/c.pid").exists() or int((tmp_path / "state/c.pid").read_text()) != process.pid:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_a_bar_shows_the_progress_of_lines_on_a_terminal(service: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * 5000)
    place = ["--proxy", service, "--dir", str(tmp_path / "state")]
    leader, terminal = os.openpty()
    command = [sys.executable, "-m", "pubsub", "client", "c", "put", topic, str(tmp_path / "lines"), "--lines", *place]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=True)
    os.close(terminal)
    assert b"put 5,000 messages" in done.stdout
    assert "━".encode() in os.read(leader, 1 << 16)
    os.close(leader)


def test_a_command_records_its_operations(run: Run, topic: str, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    for words in (["subscribe", topic], ["put", topic, "-"], ["get", topic], ["unsubscribe", topic]):
        assert run("c", *words, "--record", record, stdin=b"x") == 0
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len({line["session"] for line in lines if line["kind"] == "open"}) == 4
    (begun, acknowledged), (delivery,) = (
        [line for line in lines if line["kind"] == kind] for kind in ("put", "delivery")
    )
    assert (begun["result"], acknowledged["result"]) == ("begun", "acknowledged")
    assert delivery["first"] == begun["first"]
    assert [line["on"] for line in lines if line.get("result") == "answered"] == [True, False]


def test_a_command_whose_record_fails_does_its_work_and_reports_the_failure(
    run: Run, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("reader", "subscribe", topic) == 0
    assert run("c", "put", topic, "-", "--record", "/dev/full", stdin=b"x") == 0
    assert b"pubsub: error: the record is incomplete: [Errno 28]" in capfdbinary.readouterr().err
    assert run("c", "put", topic, "-", "--record", "/none/file", stdin=b"y") == 7
    assert run("reader", "get", topic, "--count", "2", "--wait", "1") == 0
    assert capfdbinary.readouterr().out == b"x\n"


def test_dead_letters_are_listed(
    run: Run, service: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "share/pirate-pubsub/client/c"

    def refuse(message: Message, transaction: Transaction) -> None:
        raise ValueError("cannot be handled")

    settings = ClientSettings(proxies=(service,), directory=directory, handler_attempts=1)
    with Client("c", settings=settings) as client:
        client.subscribe(topic)
        client.put(topic, b"bad")
        with contextlib.suppress(ValueError):
            client.process(topic, refuse, timeout=5)
    assert run("c", "dead-letters", "--json") == 0
    (letter,) = json.loads(capsys.readouterr().out)
    assert (letter["topic"], letter["body"], letter["attempts"]) == (topic, "bad", 1)
    assert "cannot be handled" in letter["error"]
    assert run("c", "dead-letters", topic) == 0
    assert "cannot be handled" in capsys.readouterr().out


@pytest.mark.slow
def test_an_unreachable_proxy_is_named_soon_and_the_error_gives_the_reason(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"  # Bound, and nobody listens.
        command = [sys.executable, "-m", "pubsub", "client", "c", "subscribe", "t", "--proxy", address]
        command += ["--dir", str(tmp_path), "--timeout-seconds", "5"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        first = process.stderr.readline()
        assert process.poll() is None, "it is said while it is still tried"
        _, rest = process.communicate(timeout=60)
    assert first == f"pubsub: {address} cannot be reached: Connection refused; the attempts go on\n"
    assert rest == f"pubsub: error: subscribe on t: no success within 5 s ({address}: Connection refused)\n"
    assert process.returncode == 4


@pytest.mark.slow
def test_a_long_wait_for_a_message_does_not_mention_a_reachable_proxy(run: Run, topic: str, service: str) -> None:
    assert run("c", "subscribe", topic) == 0
    command = [sys.executable, "-m", "pubsub", "client", "c", "get", topic, "--wait", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == f"pubsub: error: {topic} has no message for c within 3 s\n"


def test_a_file_larger_than_a_message_is_refused_before_reading(service: str, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 1 << 40)  # A log that was to go line by line, say; more than there is memory.
    assert main(["client", "c", "put", "t", str(huge), "--proxy", service, "--dir", str(tmp_path)]) == 2


def test_a_line_that_no_message_can_be_is_read_no_further() -> None:
    stream = io.BytesIO(b"a\n" + b"x" * (RECORD_BYTES_MAX + 100) + b"\nb")
    first, second, *_ = _lines(stream, Path("-"))
    assert (first, len(second)) == (b"a\n", RECORD_BYTES_MAX + 2)


def test_lines_beyond_the_window_leave_the_earlier_ones_in_doubt(
    run: Run, nowhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_bytes(b"x\n" * 20)
    for name, value in {"PROXIES": nowhere, "WINDOW": "1", "PUBLISHER_RECORDS": "2", "TIMEOUT_SECONDS": "0.3"}.items():
        monkeypatch.setenv(f"PUBSUB_CLIENT_{name}", value)
    assert run("c", "put", "t", tmp_path / "lines", "--lines") == 5
    told = capsys.readouterr().err
    assert "only the first 4 lines were put" in told
    assert "pubsub client c flush" in told
