"""The keys that `pubsub up --keys` makes: each is made once, kept, and never authorized again after a revocation."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from pubsub.cli.authorizing import revoke_lines
from pubsub.cli.cluster import _announce
from pubsub.cli.cluster_keys import ClusterKeys
from pubsub.config.addresses import ProxyAddress
from pubsub.errors import ConfigurationError
from pubsub.security.authorized import Role
from pubsub.security.files import make_key_file, read_authorized, read_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair, pair_of
from tests.security.keyring import key


@pytest.fixture
def keys(tmp_path: Path) -> ClusterKeys:
    made = ClusterKeys(tmp_path)
    made.make_client()
    return made


def public(path: Path) -> bytes:
    return pair_of(read_key_file(path)).public


def test_one_client_key_has_every_right_under_every_id(keys: ClusterKeys) -> None:
    (line,) = read_authorized(keys.authorized).lines
    assert (line.role, str(line.id), line.key) == (Role.CLIENT, "*", public(keys.client))
    assert line.rights == ("put=*", "get=*", "names=*", "call=*", "serve=*", "status", "operate")
    assert stat.S_IMODE(keys.client.stat().st_mode) == 0o600


def test_a_process_gets_its_own_key_once(tmp_path: Path, keys: ClusterKeys) -> None:
    options = keys.options("server", "s1")
    assert options == ["--key", str(tmp_path / "s1/key"), "--authorized", str(tmp_path / "authorized")]
    before = public(tmp_path / "s1/key")
    assert read_authorized(keys.authorized).keys_of(Role.SERVER, "s1") == (before,)
    text = keys.authorized.read_text()
    assert ClusterKeys(tmp_path).options("server", "s1") == options
    assert public(tmp_path / "s1/key") == before
    assert keys.authorized.read_text() == text


def test_a_revoked_key_is_not_authorized_again(tmp_path: Path, keys: ClusterKeys) -> None:
    keys.options("server", "s1")
    revoke_lines(keys.authorized, "s1", None, None)
    text = format_public(public(tmp_path / "s1/key"))
    with pytest.raises(ConfigurationError, match=f"to authorize it: pubsub keys authorize server s1 {text}"):
        keys.options("server", "s1")
    assert read_authorized(keys.authorized).keys_of(Role.SERVER, "s1") == ()


def test_a_start_killed_between_key_and_line_is_completed(tmp_path: Path) -> None:
    make_key_file(tmp_path / "client.key", new_pair().secret)
    keys = ClusterKeys(tmp_path)
    assert not keys.there
    keys.make_client()
    assert keys.there
    assert read_authorized(keys.authorized).lines[0].key == public(keys.client)


def test_a_missing_access_list_stops_the_cluster(tmp_path: Path, keys: ClusterKeys) -> None:
    keys.options("proxy", "p1")
    keys.authorized.unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        keys.options("proxy", "p1")


def test_proxies_are_listed_with_their_keys_and_keep_rotated_ones(tmp_path: Path, keys: ClusterKeys) -> None:
    for name in ("p1", "p2", "p3"):
        keys.options("proxy", name)
    own = [public(tmp_path / name / "key") for name in ("p1", "p2", "p3")]
    before = [
        ProxyAddress("tcp://h:1", "tcp://h:1"),
        ProxyAddress("tcp://h:2", "tcp://h:2", (key("old"), own[1])),
        ProxyAddress("tcp://h:3", "tcp://h:3", (key("of another"),)),
    ]
    assert [proxy.keys for proxy in keys.named(before)] == [(own[0],), (key("old"), own[1]), (own[2],)]


def test_the_paths_that_up_prints_hold_in_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = Path("cluster")
    _announce(SimpleNamespace(children=[]), (), here / "proxies", ClusterKeys(here), as_json=False)  # type: ignore[arg-type]
    line = capsys.readouterr().out.splitlines()[0]
    there = tmp_path / "cluster"
    assert line == f"keys: export PUBSUB_CLIENT_KEY_FILE={there}/client.key PUBSUB_AUTHORIZED={there}/authorized"
