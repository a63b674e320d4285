from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.cli.app import LAZY
from pubsub.config import ClientSettings

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, **options
    )  # type: ignore[call-overload,no-any-return]


def test_help_names_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in LAZY)


def test_the_option_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pubsub {version('pirate-pubsub')}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["proxy"], "Missing command"),
        (["proxy", "bogus"], "No such command 'bogus'"),
        (["proxy", "start", "--id"], "requires an argument"),
        (["proxy", "start", "--bogus", "1"], "No such option"),
        (["client"], "Missing argument"),
        (["client", "c", "put", "t"], "Missing argument 'PATH'"),
        (["client", "c", "get", "t", "--count", "0"], "Invalid value for '--count'"),
        (["up"], "Missing option '--dir'"),
        (["up", "--dir", "d", "--proxies", "0"], "Invalid value for '--proxies'"),
        (["config", "show", "bogus"], "'bogus' is not a role"),
        (["server", "export", "there"], "Missing option '--dir'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.startswith("pubsub: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["proxy", "start", "--id", "p1"], "proxy bind is not set"),
        (["proxy", "start", "--id", "p1", "--bind", "nowhere"], "proxy bind = 'nowhere' (from --bind)"),
        (["server", "start", "--id", "s1", "--proxy", "h:1"], "server directory is not set"),
        (["server", "start", "--id", "../x", "--proxy", "h:1", "--dir", "d"], "server id = '../x' (from --id)"),
        (["server", "start", "--id", "s", "--proxies-file", "/none/x", "--dir", "d"], "No such file"),
        (["client", "c", "flush", "--tries", "0"], "client tries = '0' (from --tries)"),
        (["client", "c", "flush", "--config", "/none/x"], "configuration file /none/x: No such file"),
        (["status", "--proxy", "nowhere"], "client proxies = ('nowhere',) (from --proxy)"),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_code_8(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 8
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


def test_help_of_a_client_works_behind_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "billing", "--help"]) == 0
    assert "unsubscribe" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["pubsub", "proxy", "server", "client"])
def test_the_rooms_run_as_modules_from_a_checkout(module: str) -> None:
    done = run("-m", module, "--help", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Usage: " in done.stdout


def test_a_command_loads_neither_tables_nor_the_other_roles() -> None:
    """What `pubsub client … put` costs before it does anything is imports."""
    unwanted = ("rich", "pydantic", "asyncio", "pubsub.server", "pubsub.proxy", "hashlib")
    program = (
        "import sys; from pubsub.cli import main; main(['client', 'c', 'put', 't', '/none', '--proxy', 'h:1']);"
        f"print([name for name in {unwanted} if name in sys.modules])"
    )
    done = run("-c", program)
    assert "/none: No such file" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


_READING = ["pydantic", "asyncio", "rich", "importlib.metadata"]


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["server", "start", "--id", "s", "--dir", "/dev/null"], [*_READING, "pubsub.client", "pubsub.proxy"]),
        (["proxy", "start", "--id", "p", "--dir", "/dev/null"], [*_READING, "pubsub.client", "pubsub.server.process"]),
        (["up", "--dir", "/dev/null", "--servers", "2"], [*_READING, "zmq", "pubsub.client"]),
        (["topic", "table", "t", "--patience", "0.05", "--proxy", "tcp://127.0.0.1:1"], _READING),
    ],
)
def test_a_process_loads_only_what_it_needs(words: list[str], unwanted: list[str]) -> None:
    """The start of a cluster is mostly imports of its processes."""
    program = (
        f"import sys; from pubsub.cli import main; code = main({words});"
        f"print(code, [name for name in {unwanted} if name in sys.modules])"
    )
    done = run("-c", program)
    code, loaded = done.stdout.splitlines()[-1].split(maxsplit=1)
    assert code != "0", done.stderr
    assert loaded == "[]"


def test_completion_offers_the_commands() -> None:
    environment = {"_PUBSUB_COMPLETE": "complete_bash", "COMP_WORDS": "pubsub ", "COMP_CWORD": "1"}
    done = run("-m", "pubsub", env=environment)
    assert set(LAZY) <= set(done.stdout.split())


def test_config_show_says_where_each_value_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[client]\nwindow = 3\n")
    monkeypatch.setenv("PUBSUB_CLIENT_TRIES", "7")
    monkeypatch.setenv("PUBSUB_CLIENT_TIRES", "7")
    assert main(["config", "show", "--config", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    client = found["settings"]["client"]
    assert client["tries"] == {"value": 7, "origin": "PUBSUB_CLIENT_TRIES"}
    assert client["window"] == {"value": 3, "origin": f"{file} [client]"}
    assert client["timeout_seconds"] == {"value": 30.0, "origin": "default"}
    assert found["settings"]["server"]["id"] == {"value": None, "origin": "not set"}
    assert found["unknown_variables"] == ["PUBSUB_CLIENT_TIRES"]
    assert main(["config", "show", "client", "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "PUBSUB_CLIENT_TRIES" in shown
    assert "without effect: PUBSUB_CLIENT_TIRES" in shown
    assert "server" not in shown


def test_config_show_has_the_default_place_of_a_clients_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pubsub.cli.settings.state_directory", lambda role, name: Path("/data") / role / name)
    assert main(["config", "show", "client"]) == 0
    assert "/data/client/ID" in capsys.readouterr().out
    monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", "/elsewhere")
    assert main(["config", "show", "client"]) == 0
    shown = capsys.readouterr().out
    assert "/elsewhere" in shown
    assert "/data" not in shown


INTERRUPTED_AT = """
import importlib.abc, os, signal, sys

MODULE = sys.argv.pop(1)

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from pubsub.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    ["pubsub.cli.app", "typer", "pubsub.console.parameters", "pubsub.client.commands", "pubsub.client.client", "zmq"],
)
def test_an_interrupt_while_a_command_starts_prints_nothing(module: str, tmp_path: Path) -> None:
    command = ["client", "c", "flush", "--proxy", "127.0.0.1:9", "--dir", str(tmp_path)]
    done = run("-c", INTERRUPTED_AT, module, *command)
    assert done.returncode in {130, -signal.SIGINT}
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        ["status", "--wait", "0.05"],
        ["topic", "move", "t", "--to", "s2", "--patience", "0.05"],
        ["client", "c", "subscribe", "t", "--timeout-seconds", "0.1"],
    ],
    ids=" ".join,
)
def test_an_unanswered_default_address_is_named_as_the_default(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = "tcp://127.255.255.254:9"
    monkeypatch.setattr(fields(ClientSettings)[0], "default", (nobody,))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("PUBSUB_PROXIES_FILE", "PUBSUB_CLIENT_PROXIES", "PUBSUB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert main(command) == 4
    hint = "; this is the default address; name another by --proxy, --proxies-file or PUBSUB_PROXIES_FILE"
    error = capsys.readouterr().err
    assert f"{nobody}: " in error
    assert hint in error
    assert main([*command, "--proxy", nobody]) == 4
    assert hint not in capsys.readouterr().err


SECRET = "sk_" + "A" * 43


@pytest.mark.parametrize(
    "setting",
    ["CLIENT_KEY_FILE", "CLIENT_PROXY_KEYS", "CLIENT_PROXIES", "AUTHORIZED", "SERVER_AUDIT_FILE", f"SERVER_{SECRET}"],
)
@pytest.mark.parametrize("words", [["config", "show"], ["config", "show", "--json"], ["client", "alice", "flush"]])
def test_no_command_shows_a_secret_key_in_the_wrong_setting(
    setting: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv(f"PUBSUB_{setting}", SECRET)
    main(words)
    out, err = capsys.readouterr()
    assert "A" * 16 not in out + err


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--key", SECRET, "--proxy", "127.0.0.1:9"],
        ["status", "--proxy-key", SECRET, "--proxy", "127.0.0.1:9"],
        ["status", SECRET],
        ["keys", "check", SECRET],
        ["keys", "new", "client", "alice", "--out", f"/dev/null/{SECRET}"],
        ["keys", "revoke", "alice", "--authorized", SECRET],
        ["up", "--dir", f"/dev/null/{SECRET}", "--keys"],
    ],
)
def test_no_command_shows_a_secret_key_among_its_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) != 0
    out, err = capsys.readouterr()
    assert "A" * 16 not in out + err
    assert err.count("\n") == 1
