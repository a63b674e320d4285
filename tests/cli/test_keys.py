"""`pubsub keys …` as a person types it, on real files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.security.files import read_authorized, read_key_file
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import format_public, format_secret
from pubsub.security.pairs import pair_of
from tests.security.keyring import key, pk

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own, and no setting from outside."""
    for name in [name for name in os.environ if name.startswith("PUBSUB_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PUBSUB_AUTHORIZED", str(tmp_path / "authorized"))
    return tmp_path / "authorized"


def keys(captured: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main(["keys", *arguments])
    out, err = captured.readouterr()
    return code, out, err


def done(captured: Captured, *arguments: str) -> str:
    code, out, err = keys(captured, *arguments)
    assert code == 0, err
    return out


def refused(captured: Captured, code: int, *arguments: str) -> str:
    found, out, err = keys(captured, *arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("pubsub: error: ")
    assert err.count("\n") == 1
    return err


# new ---


def test_a_clients_key_is_beside_its_state_and_its_public_half_is_printed(capsys: Captured, home: Path) -> None:
    role, name, public = done(capsys, "new", "client", "alice").split()
    path = home / "pirate-pubsub" / "client" / "alice" / "alice.key"
    assert (role, name) == ("client", "alice")
    assert public == format_public(pair_of(read_key_file(path)).public)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("role", "name", "setting", "file"),
    [
        ("client", "alice", "PUBSUB_CLIENT_DIRECTORY", "alice.key"),
        ("server", "s1", "PUBSUB_SERVER_DIRECTORY", "key"),
        ("proxy", "p1", "PUBSUB_PROXY_DIRECTORY", "key"),
    ],
)
def test_a_key_is_in_the_state_directory_of_the_settings(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, name: str, setting: str, file: str
) -> None:
    monkeypatch.setenv(setting, str(tmp_path / "data"))
    done(capsys, "new", role, name)
    assert len(read_key_file(tmp_path / "data" / file)) == 32


def test_a_key_is_written_to_a_named_file_and_printed_as_json(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "s1.key"
    facts = json.loads(done(capsys, "new", "server", "s1", "--out", str(path), "--json"))
    public = pair_of(read_key_file(path)).public
    assert facts == {
        "role": "server",
        "id": "s1",
        "key": format_public(public),
        "fingerprint": fingerprint(public),
        "file": str(path),
    }


def test_a_key_is_never_overwritten_and_never_printed(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = keys(capsys, "new", "client", "alice", "--out", str(path))
    before = path.read_text()
    assert "exists already and is not overwritten" in refused(capsys, 8, "new", "client", "alice", "--out", str(path))
    assert path.read_text() == before
    assert before.strip() not in f"{first}"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["cleint", "alice"], 2, "there is no role 'cleint'"),
        (["server", "s*"], 2, "a server's ID is one name"),
        (["client", "a/b"], 2, "a character that no client ID has"),
        (["client"], 2, "Missing argument 'ID'"),
        (["server", "s1"], 8, "the state directory of server s1 is not known; set PUBSUB_SERVER_DIRECTORY"),
        (["client", "spark-*"], 8, "client spark-* is a pattern and has no state directory"),
    ],
)
def test_an_impossible_key_file_is_refused(capsys: Captured, arguments: list[str], code: int, complaint: str) -> None:
    assert complaint in refused(capsys, code, "new", *arguments)


# authorize ---


def test_two_commands_authorize_a_client(capsys: Captured, rules: Path) -> None:
    printed = done(capsys, "new", "client", "alice").split()
    assert done(capsys, "authorize", *printed).split() == [*printed, "put=*", "get=*"]
    (line,) = read_authorized(rules).lines
    assert (line.role, str(line.id), line.rights) == ("client", "alice", ("put=*", "get=*"))


def test_the_given_rights_are_written(capsys: Captured, rules: Path) -> None:
    options = ["--put", "orders/*,audit", "--put", "b", "--get", "orders/*", "--names", "n-*", "--status", "--operate"]
    options += ["--call", "billing", "--serve", "stock,b*"]
    facts = json.loads(done(capsys, "authorize", "client", "spark-*", pk("a"), *options, "--json"))
    assert facts == {
        "role": "client",
        "id": "spark-*",
        "key": pk("a"),
        "fingerprint": fingerprint(key("a")),
        "put": ["audit", "b", "orders/*"],
        "get": ["orders/*"],
        "names": ["n-*"],
        "call": ["billing"],
        "serve": ["b*", "stock"],
        "status": True,
        "operate": True,
        "digest": read_authorized(rules).digest,
        "changed": True,
    }
    done(capsys, "authorize", "server", "s1", pk("s1"))
    assert [line.rights for line in read_authorized(rules).lines][1] == ()


def test_a_key_that_is_authorized_gets_the_rights_that_are_given_now(capsys: Captured, rules: Path) -> None:
    done(capsys, "authorize", "client", "bob", pk("bob"))
    done(capsys, "authorize", "client", "alice", pk("alice"), "--put", "a")
    rules.write_text(rules.read_text() + "# a remark\n")
    done(capsys, "authorize", "client", "alice", pk("alice"), "--get", "b")
    assert [line.rights for line in read_authorized(rules).lines] == [("put=*", "get=*"), ("get=b",)]
    assert rules.read_text().endswith("# a remark\n")


def test_authorizing_again_without_rights_changes_none(capsys: Captured, rules: Path) -> None:
    done(capsys, "authorize", "client", "alice", pk("alice"), "--put", "a")
    before = rules.stat().st_ino
    facts = json.loads(done(capsys, "authorize", "client", "alice", pk("alice"), "--json"))
    assert (facts["put"], facts["get"], facts["changed"]) == (["a"], [], False)
    assert rules.stat().st_ino == before


def test_a_second_key_gets_the_rights_of_the_first_and_no_more(capsys: Captured, rules: Path) -> None:
    done(capsys, "authorize", "client", "alice", pk("alice"), "--put", "orders/*", "--status")
    done(capsys, "authorize", "client", "alice", pk("new"))
    assert [line.rights for line in read_authorized(rules).lines] == [("put=orders/*", "status")] * 2
    done(capsys, "authorize", "client", "alice", pk("new"), "--put", "a")
    complaint = refused(capsys, 8, "authorize", "client", "alice", pk("third"))
    assert "client alice has different rights in lines 2, 3; give this key's rights: --put" in complaint


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["client", "bob", pk("alice")], 8, "this key belongs to client alice; make a key for each process"),
        (["server", "alice", pk("alice")], 8, "this key belongs to client alice"),
        (["server", "s1", pk("s1"), "--put", "a"], 2, "a server has no rights, only clients have"),
        (["client", "bob", pk("bob"), "--put", "a b"], 2, "in a pattern of a topic"),
        (["client", "bob", pk("bob"), "--names", "a/b"], 2, "a character that no name has"),
        (["client", "bob", pk("bob"), "--put", ""], 2, "a pattern of a topic is empty"),
        (["client", "bob", "pk_short"], 2, "the key is not allowed: it is not pk_ and 43 characters"),
        (["client", "bob", format_secret(key("bob"))], 2, "the key is not allowed: it is a secret key"),
        (["client", "a/b", pk("bob")], 2, "a character that no client ID has"),
    ],
)
def test_an_invalid_line_is_refused_in_one_line_and_changes_nothing(
    capsys: Captured, rules: Path, arguments: list[str], code: int, complaint: str
) -> None:
    done(capsys, "authorize", "client", "alice", pk("alice"))
    before = rules.read_text()
    error = refused(capsys, code, "authorize", *arguments)
    assert complaint in error
    assert format_secret(key("bob"))[3:20] not in error
    assert rules.read_text() == before


def test_an_invalid_file_is_not_changed(capsys: Captured, rules: Path) -> None:
    rules.write_text("nonsense\n")
    for command in (["authorize", "client", "a", pk("a")], ["revoke", "a"], ["list"]):
        assert "line 1: a line is: role, ID, key" in refused(capsys, 8, *command)
    assert rules.read_text() == "nonsense\n"


def test_a_command_without_an_access_list_names_the_option(capsys: Captured) -> None:
    for command in (["authorize", "client", "a", pk("a")], ["revoke", "a"], ["list"]):
        assert "no access list is named; give --authorized FILE" in refused(capsys, 8, *command)


# revoke ---


@pytest.fixture
def three(rules: Path) -> Path:
    rules.write_text(
        f"# kept\nclient alice {pk('a')} put=a\nclient alice {pk('b')} put=a\n"
        f"client bob {pk('c')}\nserver bob {pk('d')}\n"
    )
    return rules


def test_revoking_an_id_removes_all_its_keys_and_no_other(capsys: Captured, three: Path) -> None:
    assert done(capsys, "revoke", "alice").splitlines() == [
        f"revoked: client alice {pk('a')} put=a",
        f"revoked: client alice {pk('b')} put=a",
    ]
    assert three.read_text() == f"# kept\nclient bob {pk('c')}\nserver bob {pk('d')}\n"


def test_one_key_is_revoked_alone(capsys: Captured, three: Path) -> None:
    facts = json.loads(done(capsys, "revoke", pk("a"), "--json"))
    assert [line["key"] for line in facts["revoked"]] == [pk("a")]
    assert facts["digest"] == read_authorized(three).digest
    assert [line.key for line in read_authorized(three).lines] == [key("b"), key("c"), key("d")]


def test_an_id_of_two_roles_needs_the_role(capsys: Captured, three: Path) -> None:
    assert "bob is the ID of a client and of a server; choose one with --role" in refused(capsys, 8, "revoke", "bob")
    done(capsys, "revoke", "bob", "--role", "server")
    assert [line.key for line in read_authorized(three).lines] == [key("a"), key("b"), key("c")]


def test_a_revoked_id_that_a_pattern_still_matches_is_named(capsys: Captured, three: Path) -> None:
    three.write_text(three.read_text() + f"client al* {pk('e')}\n")
    code, _, err = keys(capsys, "revoke", "alice")
    assert code == 0
    still, unknown = err.splitlines()
    assert still == f"pubsub: alice may still be used by the key of client:al*#{fingerprint(key('e'))}"
    assert unknown.startswith("pubsub: the proxies could not be asked whether they have loaded the file: no proxies")


def test_the_file_stays_and_is_empty_after_the_last_line_is_revoked(capsys: Captured, rules: Path) -> None:
    rules.write_text(f"client alice {pk('a')}\n")
    done(capsys, "revoke", "alice")
    assert read_authorized(rules).lines == ()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["carol"], 13, "has no line of carol"),
        ([pk("none")], 13, "has no line of pk_"),
        (["alice", "--role", "server"], 13, "has no line of server alice"),
        (["alice", "--role", "king"], 2, "there is no role 'king'"),
        (["pk_short"], 2, "the key is not allowed"),
        ([format_secret(key("a"))], 2, "it is a secret key"),
        (["alice", "--authorized", "/none/authorized"], 8, "/none/authorized: No such file"),
    ],
)
def test_an_impossible_revocation_is_refused(
    capsys: Captured, three: Path, arguments: list[str], code: int, complaint: str
) -> None:
    before = three.read_text()
    assert complaint in refused(capsys, code, "revoke", *arguments)
    assert three.read_text() == before


# list and check ---


def test_the_list_shows_each_key_with_its_rights(capsys: Captured, three: Path) -> None:
    shown = done(capsys, "list")
    assert all(word in shown for word in ("client", "alice", "bob", pk("a"), "put=a", "server"))
    facts = json.loads(done(capsys, "list", "--json"))
    assert facts["digest"] == read_authorized(three).digest
    assert [(each["role"], each["id"], each["put"]) for each in facts["keys"]][:1] == [("client", "alice", ["a"])]


def test_a_valid_file_is_accepted(capsys: Captured, three: Path) -> None:
    digest = read_authorized(three).digest
    assert done(capsys, "check", str(three)) == f"{three}: 4 keys, digest {digest}\n"
    assert json.loads(done(capsys, "check", str(three), "--json")) == {"file": str(three), "keys": 4, "digest": digest}


def test_an_unusable_file_is_reported_with_its_line(capsys: Captured, three: Path) -> None:
    three.write_text(three.read_text() + "client carol\n")
    assert f"authorized file {three}, line 6: a line is: role, ID, key" in refused(capsys, 2, "check", str(three))
    code, out, _ = keys(capsys, "check", str(three), "--json")
    assert code == 2
    assert json.loads(out)["line"] == 6


def test_a_missing_file_cannot_be_checked(capsys: Captured, tmp_path: Path) -> None:
    assert "No such file" in refused(capsys, 8, "check", str(tmp_path / "none"))


# rotate ---


def test_a_key_is_replaced_by_a_second_one_while_both_are_authorized(capsys: Captured, home: Path, rules: Path) -> None:
    first = done(capsys, "new", "client", "alice").split()
    done(capsys, "authorize", *first, "--put", "orders/*")
    path = home / "pirate-pubsub" / "client" / "alice" / "alice.key"
    in_use = path.read_text()
    second = done(capsys, "rotate", "alice").split()
    assert path.read_text() == in_use
    assert second[:2] == ["client", "alice"]
    assert second[2] != first[2]
    done(capsys, "authorize", *second)
    assert [line.rights for line in read_authorized(rules).lines] == [("put=orders/*",)] * 2
    assert f"restart client alice, then: pubsub keys revoke {first[2]}" in done(capsys, "rotate", "alice", "--finish")
    assert format_public(pair_of(read_key_file(path)).public) == second[2]
    assert [file.name for file in path.parent.iterdir()] == ["alice.key"]
    done(capsys, "revoke", first[2])
    assert [format_public(line.key) for line in read_authorized(rules).lines] == [second[2]]


def test_a_server_rotates_a_key_file_that_is_named(capsys: Captured, tmp_path: Path) -> None:
    path = str(tmp_path / "s1.key")
    done(capsys, "new", "server", "s1", "--out", path)
    facts = json.loads(done(capsys, "rotate", "s1", "--role", "server", "--key", path, "--json"))
    assert facts["file"] == path + ".next"
    facts = json.loads(done(capsys, "rotate", "s1", "--role", "server", "--key", path, "--finish", "--json"))
    assert facts["file"] == path
    assert facts["old"] != facts["key"]


def test_an_impossible_rotation_is_refused(capsys: Captured, home: Path) -> None:
    assert "alice.key: No such file" in refused(capsys, 8, "rotate", "alice")
    done(capsys, "new", "client", "alice")
    assert "alice.key.next: No such file" in refused(capsys, 8, "rotate", "alice", "--finish")
    done(capsys, "rotate", "alice")
    assert "--finish puts it in use" in refused(capsys, 8, "rotate", "alice")
    path = home / "pirate-pubsub" / "client" / "alice" / "alice.key"
    path.chmod(0o644)
    assert f"chmod 600 {path}" in refused(capsys, 8, "rotate", "alice", "--finish")
