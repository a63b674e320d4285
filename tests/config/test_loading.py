from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.config import ClientSettings, ProxySettings, ServerSettings, load
from pubsub.config.loading import ROLES, flag_name, unknown_variables
from pubsub.config.rules import RULES
from pubsub.errors import ConfigurationError
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair

SERVER = {"id": "s1", "proxies": ("tcp://127.0.0.1:5602",), "directory": "data"}
PROXY = {"id": "p1", "bind": "tcp://127.0.0.1:5601"}


@pytest.fixture(autouse=True)
def _no_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pubsub.toml"
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_settings() -> None:
    loaded = load(ClientSettings, environment={})
    assert loaded.settings == ClientSettings()
    assert set(loaded.origins.values()) == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "[client]\ntries = 4\nwindow = 4\nlinger_seconds = 0.25\n")
    environment = {"PUBSUB_CLIENT_TRIES": "5", "PUBSUB_CLIENT_WINDOW": "5"}
    loaded = load(ClientSettings, {"tries": "6"}, environment=environment, file=file)
    found = loaded.settings
    assert (found.tries, found.window, found.linger_seconds, found.timeout_seconds) == (6, 5, 0.25, 30.0)
    origins = loaded.origins
    assert origins["tries"] == "--tries"
    assert origins["window"] == "PUBSUB_CLIENT_WINDOW"
    assert origins["linger_seconds"] == f"{file} [client]"
    assert origins["timeout_seconds"] == "default"


def test_a_setting_of_the_cluster_applies_to_each_role(tmp_path: Path) -> None:
    file = toml(tmp_path, "[cluster]\nheartbeat_seconds = 0.5\nliveness = 7\n[server]\nliveness = 8\n")
    server = load(ServerSettings, SERVER, environment={}, file=file).settings
    proxy = load(ProxySettings, PROXY, environment={}, file=file).settings
    assert (server.heartbeat_seconds, server.liveness) == (0.5, 8)
    assert (proxy.heartbeat_seconds, proxy.liveness) == (0.5, 7)
    environment = {"PUBSUB_LIVENESS": "9", "PUBSUB_SERVER_HEARTBEAT_SECONDS": "2", "PUBSUB_HEARTBEAT_SECONDS": "3"}
    server = load(ServerSettings, SERVER, environment=environment, file=file).settings
    assert (server.heartbeat_seconds, server.liveness) == (2.0, 9)


def test_the_file_comes_from_the_flag_or_the_environment_or_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, by_variable = tmp_path / "a.toml", tmp_path / "b.toml"
    named.write_text("[client]\ntries = 1\n")
    by_variable.write_text("[client]\ntries = 2\n")
    own = tmp_path / "config" / "pirate-pubsub" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[client]\ntries = 7\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    environment = {"PUBSUB_CONFIG": str(by_variable)}
    assert load(ClientSettings, environment=environment, file=named).settings.tries == 1
    assert load(ClientSettings, environment=environment).settings.tries == 2
    assert load(ClientSettings, environment={}).settings.tries == 7


def test_a_proxies_file_gives_clients_and_servers_their_own_addresses(tmp_path: Path) -> None:
    proxies = tmp_path / "proxies"
    proxies.write_text("# ours\n127.0.0.1:1001\n\ntcp://127.0.0.1:1002 tcp://127.0.0.1:2002  # two sides\n")
    environment = {"PUBSUB_PROXIES_FILE": str(proxies)}
    client = load(ClientSettings, environment=environment)
    server = load(ServerSettings, {"id": "s1", "directory": "d"}, environment=environment)
    assert client.settings.proxies == ("tcp://127.0.0.1:1001", "tcp://127.0.0.1:1002")
    assert server.settings.proxies == ("tcp://127.0.0.1:1001", "tcp://127.0.0.1:2002")
    assert client.origins["proxies"] == "PUBSUB_PROXIES_FILE"


def test_proxies_of_the_nearer_place_win_and_one_place_names_only_one_kind(tmp_path: Path) -> None:
    proxies = tmp_path / "proxies"
    proxies.write_text("127.0.0.1:1001\n")
    environment = {"PUBSUB_PROXIES_FILE": str(proxies)}
    flags = {"proxies": ("tcp://127.0.0.1:9",)}
    assert load(ClientSettings, flags, environment=environment).settings.proxies == ("tcp://127.0.0.1:9",)
    environment["PUBSUB_CLIENT_PROXIES"] = "tcp://127.0.0.1:9"
    with pytest.raises(ConfigurationError, match="named twice"):
        load(ClientSettings, environment=environment)


def test_lists_come_as_toml_arrays_and_as_text(tmp_path: Path) -> None:
    both = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    file = toml(tmp_path, '[client]\nproxies = ["tcp://127.0.0.1:1", "127.0.0.1:2"]\n')
    assert load(ClientSettings, environment={}, file=file).settings.proxies == both
    text = {"PUBSUB_CLIENT_PROXIES": "tcp://127.0.0.1:1, tcp://127.0.0.1:2"}
    assert load(ClientSettings, environment=text).settings.proxies == both


def test_the_directory_of_a_proxy_is_in_the_users_data_directory_by_its_id(tmp_path: Path) -> None:
    assert load(ProxySettings, PROXY, environment={}).settings.directory == tmp_path / "share/pirate-pubsub/proxy/p1"


@pytest.mark.parametrize(
    ("role", "flags", "missing"),
    [
        (ServerSettings, {"proxies": SERVER["proxies"], "directory": "d"}, "server id is not set; set it by --id"),
        (ServerSettings, {"id": "s1", "directory": "d"}, "--proxies-file"),
        (ServerSettings, {"id": "s1", "proxies": SERVER["proxies"]}, "server directory is not set; set it by --dir"),
        (ProxySettings, {"id": "p1"}, "proxy bind is not set; set it by --bind, PUBSUB_PROXY_BIND or bind under"),
    ],
)
def test_a_missing_setting_names_the_flag_and_the_variable(role: type, flags: dict[str, object], missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing.replace("[", r"\[")):
        load(role, flags, environment={})


BAD = {
    "heartbeat_seconds": ["0", "nan", "x", "-1", ""],
    "liveness": ["0", "1.5", "x"],
    "id": ["", ".", "..", "a/b", "a b", "ä", "x" * 65],
    "bind": ["", "tcp://", "127.0.0.1", "http://x:1", "tcp://h:65536", "tcp://h:x", "ipc://", "ipc://" + "x" * 108],
    "servers": ["tcp://nowhere"],
    "advertise": ["tcp://*:5", "tcp://0.0.0.0:5", "tcp://h:0"],
    "proxies": ["", "nonsense", "tcp://h:0", "tcp://h:1,tcp://h:1", ",".join(f"tcp://h:{n}" for n in range(1, 66))],
    "directory": ["", "  "],
    "database": ["mysql://db/shop", "host=db", "shop.db", "postgresql://a b/shop"],
    "record": ["a\0b"],
    "startup_wait_seconds": ["-1", "soon"],
    "announce_seconds": ["0", "inf"],
    "retention_hold_seconds": ["-1", "1"],
    "skew_seconds": ["-0.1", "99999"],
    "backlog_bytes_max": ["0", "8 GB", "much"],
    "history_bytes_max": ["0"],
    "store_bytes_max": ["-1"],
    "reserve_bytes": ["2000 TiB"],
    "memory_bytes_max": [-1, "much"],
    "standby_of": ["nonsense", "tcp://h:0"],
    "standby_stream_bytes_max": ["0", "much"],
    "member_liveness_seconds": ["0", "-1", "4000"],
    "standby_heartbeat_seconds": ["0", "-1"],
    "topics_max": ["0", "1e3"],
    "servers_max": ["0", "99999"],
    "publishers_max": ["0"],
    "topic_defaults": ["audit.>", "audit.> kept=7d", "a.>.b keep=7d", "> keep=7", 7, [{"keep": "7d"}]],
    "subscribers_max": ["-5"],
    "answer_records_max": ["0", "65537"],
    "answer_bytes_max": ["0", "1 GiB"],
    "wait_seconds_max": ["-1"],
    "timeout_seconds": ["-1"],
    "try_seconds": ["0"],
    "tries": ["0"],
    "power_safe": ["maybe", ""],
    "outbox_bytes_max": ["12"],
    "window": ["0"],
    "prefetch_records": ["0"],
    "prefetch_bytes": ["10"],
    "handler_attempts": ["0"],
    "dead_letters": ["", "topics"],
    "retry_first_seconds": ["-1", "86401", "soon"],
    "retry_longest_seconds": ["-1", "86401", "soon"],
    "publisher_records": ["0", "65537"],
    "publisher_bytes": ["0"],
    "linger_seconds": ["-1"],
    "proxy_keys": ["pk_short", "pk_" + "A" * 42 + "!", "sk_" + "A" * 43, " ".join(["pk_" + "A" * 43] * 65)],
    "key_file": ["a\0b"],
    "authorized": ["a\0b"],
    "audit_file": ["a\0b"],
    "insecure": ["maybe", ""],
    "metrics": ["9400", "h:", "h:x", "h:65536", "::1:80", "tcp://h:1", "h:1/metrics"],
    "topics_auto": ["maybe", ""],
    "witness": ["maybe", ""],
}


def roles_with(setting: str) -> list[str]:
    return [role for role, settings in ROLES.items() if setting in {field.name for field in fields(settings)}]


def test_every_setting_has_a_rule_and_a_bad_value_here() -> None:
    everything = {field.name for settings in ROLES.values() for field in fields(settings)}
    assert everything == set(RULES) == set(BAD)


@pytest.mark.parametrize(
    ("role", "setting", "value"),
    [(role, setting, value) for setting, values in BAD.items() for role in roles_with(setting) for value in values],
)
def test_a_bad_value_is_one_line_with_setting_value_place_and_rule(role: str, setting: str, value: str) -> None:
    flags = {"proxy": PROXY, "server": SERVER, "client": {}}[role]
    flags = {name: given for name, given in flags.items() if name != setting}
    variable = f"PUBSUB_{role.upper()}_{setting.upper()}"
    if value == "" and RULES[setting].optional:
        return
    with pytest.raises(ConfigurationError) as raised:
        load(ROLES[role], flags, environment={variable: value})
    line = str(raised.value)
    assert line.startswith(f"{role} {setting} = ")
    assert f"(from {variable}) is not allowed; allowed: " in line
    assert "\n" not in line
    assert len(line) < 300


@pytest.mark.parametrize("role", ROLES)
def test_every_default_obeys_its_own_rule(role: str) -> None:
    flags = {"proxy": PROXY, "server": SERVER, "client": {}}[role]
    settings = load(ROLES[role], flags, environment={}).settings
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            assert RULES[field.name].value(value) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[client", "is not TOML"),
        ("[clients]\ntries = 1", "clients is not known; allowed: [proxy], [server], [client], [cluster]"),
        ("tries = 1", "tries is not known"),
        ("[client]\ntrys = 1", "[client] has no trys; allowed: proxies, "),
        ("[cluster]\ntries = 1", "[cluster] has no tries"),
        ("[client]\ntries = true", "client tries = True (from "),
        ("[client]\npower_safe = 1", "allowed: true or false"),
        ("[client]\nproxies = [1]", "client proxies = [1] (from "),
        ("[client]\nproxies = 5", "allowed: 1-64 addresses"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        load(ClientSettings, environment={}, file=file)
    assert complaint in str(raised.value)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(ClientSettings, environment={"PUBSUB_CONFIG": str(tmp_path / "none.toml")})


def test_the_hold_covers_twice_the_skew_and_one_liveness() -> None:
    with pytest.raises(ConfigurationError, match="at least twice skew_seconds and one full liveness, 13 s"):
        load(ServerSettings, SERVER | {"retention_hold_seconds": "12.9"}, environment={})
    assert load(ServerSettings, SERVER | {"retention_hold_seconds": "13"}, environment={})


def test_a_server_on_every_interface_needs_an_advertised_address() -> None:
    with pytest.raises(ConfigurationError, match="--advertise"):
        load(ServerSettings, SERVER | {"bind": "tcp://*:7000"}, environment={})
    assert load(ServerSettings, SERVER | {"bind": "tcp://*:7000", "advertise": "tcp://h:7000"}, environment={})


def test_misspelt_variables_are_found_and_shared_ones_are_known() -> None:
    environment = {
        "PUBSUB_SERVER_PORT": "1",
        "PUBSUB_CLIENT_TRIES": "1",
        "PUBSUB_LIVENESS": "1",
        "PUBSUB_EMULATOR": "x",
    }
    assert unknown_variables(environment) == ["PUBSUB_SERVER_PORT"]


@given(st.sampled_from(sorted(RULES)), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_a_rule_accepts_a_value_or_explains_the_refusal(setting: str, value: object) -> None:
    complaint = "fine"
    try:
        RULES[setting].value(value)
    except ValueError as error:
        complaint = str(error)
    assert complaint
    assert "\n" not in complaint


@pytest.mark.parametrize("path", ["~nobody-of-this-name/data", Path("~nobody-of-this-name")])
def test_a_home_directory_of_an_unknown_user_is_refused_in_one_line(path: Path | str) -> None:
    with pytest.raises(ConfigurationError, match="directory at its beginning is unknown") as raised:
        load(ServerSettings, {**SERVER, "directory": path}, environment={})
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="unknown"):
        load(ClientSettings, environment={}, file=path)


@given(st.integers(1, 2**50))
def test_sizes_with_units_are_the_same_sizes(number: int) -> None:
    rule = RULES["backlog_bytes_max"]
    assert rule.value(str(number)) == rule.value(number) == number
    assert rule.value(f"{number} KiB") == number * 1024


def test_flags_have_the_names_of_the_commands() -> None:
    assert flag_name("server", "directory") == "--dir"
    assert flag_name("client", "directory") == "--dir"
    assert flag_name("server", "proxies") == "--proxy"
    assert flag_name("server", "retention_hold_seconds") == "--retention-hold-seconds"


def test_proxies_named_outside_a_file_do_not_get_the_keys_of_the_file(tmp_path: Path) -> None:
    listing = tmp_path / "proxies"
    key = format_public(new_pair().public)
    listing.write_text(f"tcp://127.0.0.1:1 {key}\n")
    environment = {"PUBSUB_PROXIES_FILE": str(listing)}
    assert load(ClientSettings, environment=environment).settings.proxy_keys == (key,)
    named = load(ClientSettings, {"proxies": ("tcp://127.0.0.1:2",)}, environment=environment).settings
    assert (named.proxies, named.proxy_keys) == (("tcp://127.0.0.1:2",), ())


@pytest.mark.parametrize("variable", ["PUBSUB_CLIENT_PROXY_KEYS", "PUBSUB_CLIENT_TRIES"])
def test_a_secret_key_in_the_wrong_place_is_not_repeated(variable: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(ClientSettings, environment={variable: "sk_" + "B" * 43})
    assert "BBBB" not in str(raised.value) + repr(raised.value)
    assert "(a secret key)" in str(raised.value)
