"""Load settings from four sources: flag, then environment, then TOML file, then default; each value knows its source.

A setting has the same name everywhere. `retention_hold_seconds` of a server is `--retention-hold-seconds`,
`PUBSUB_SERVER_RETENTION_HOLD_SECONDS`, and `retention_hold_seconds` under `[server]` in the file. Settings shared by
every process of a cluster (SHARED) may also be given once: as `PUBSUB_LIVENESS`, and under `[cluster]`. Proxies are
given by `proxies` or by `proxies_file`. The nearer source wins, and a source must give only one of them.

Every bad value raises one ConfigurationError with the setting, the value, its source and the allowed values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pubsub.base.paths import expanded
from pubsub.base.text import without_mark
from pubsub.config import locations
from pubsub.config.addresses import ProxyAddress, read_proxies
from pubsub.config.rules import RULES
from pubsub.config.settings import ClientSettings, LivenessSettings, ProxySettings, ServerSettings
from pubsub.errors import ConfigurationError, SettingRefused
from pubsub.security.keys import format_public

S = TypeVar("S", ProxySettings, ServerSettings, ClientSettings)

ROLES: Final[Mapping[str, type[ProxySettings] | type[ServerSettings] | type[ClientSettings]]] = {
    "proxy": ProxySettings,
    "server": ServerSettings,
    "client": ClientSettings,
}
"""Settings of each role, by the role's name in tables of the file and in environment variables."""

SHARED: Final = frozenset(
    {field.name for field in fields(LivenessSettings)} | {"proxies_file", "authorized", "topics_auto"}
)
"""Settings that may be given once for all roles."""

FLAGS: Final[Mapping[str, str]] = {
    "directory": "--dir",
    "proxies": "--proxy",
    "proxy_keys": "--proxy-key",
    "key_file": "--key",
    "topic_defaults": "--topic-default",
}
"""Settings with a flag of another name."""

CONFIG_VARIABLE: Final = "PUBSUB_CONFIG"

RULES_TABLE: Final = "topics"
"""The tables of a server's file with a rule each for the settings of topics; see `topic_defaults`."""


@dataclass(frozen=True, slots=True)
class Given:
    """One value, not checked yet, with its source."""

    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings that were read.

    Attributes:
        settings: all values, checked.
        origins: source of each setting: "--dir", "PUBSUB_SERVER_DIRECTORY", "/etc/pubsub.toml [server]" or "default".
    """

    settings: S
    origins: Mapping[str, str]


def load(
    role: type[S],
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | str | None = None,
    origin: str = "",
) -> Loaded[S]:
    """Read a role's settings.

    Args:
        role: ProxySettings, ServerSettings or ClientSettings.
        flags: settings from the command line or from a program, including `proxies_file`; None and () mean not given.
        environment: environment variables; None: this process's.
        file: the TOML file; None: the file named by PUBSUB_CONFIG, otherwise the user's config.toml if it exists.
        origin: source of `flags`; "": the command line.

    Returns:
        The settings, with their sources.

    Raises:
        ConfigurationError: a value is not allowed, or a setting without default is not given.
    """
    values, origins = _collect(role, flags or {}, os.environ if environment is None else environment, file, origin)
    for setting, value in values.items():
        if value is MISSING:
            raise _unset(role_name(role), setting)
    try:
        settings: S = role(**values)
    except SettingRefused as error:  # A rule about more than one setting.
        origin = origins[error.setting]
        raise SettingRefused(error.role, error.setting, error.value, error.allowed, origin) from None
    return Loaded(settings, origins)


def survey(
    role: type[S],
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | str | None = None,
) -> list[tuple[str, object, str]]:
    """List (setting, value, source) of a role for a person; a setting that must still be given is "not set".

    Raises:
        ConfigurationError: a value is not allowed.
    """
    values, origins = _collect(role, flags or {}, os.environ if environment is None else environment, file)
    return [
        (setting, None, "not set") if value is MISSING else (setting, value, origins[setting])
        for setting, value in values.items()
    ]


def _collect(
    role: type[S],
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | str | None,
    origin: str = "",
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value and the source of every setting; MISSING: it has no default and was not given."""
    name = role_name(role)
    places = [
        _from_flags(name, flags, origin),
        _from_environment(name, environment),
        _from_tables(name, _read_tables(file, environment)),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field in fields(role):
        given = _find(field, places)
        if given is None:
            origins[field.name] = "default"
            values[field.name] = _default(name, field, values)
        else:
            origins[field.name] = given.origin
            values[field.name] = _check(name, field.name, given)
    return values, origins


def role_name(role: type[S]) -> str:
    """Return the name of a role: "proxy", "server" or "client"."""
    return role.role


def flag_name(role: str, setting: str) -> str:
    """Return the flag of a setting, such as "--retention-hold-seconds"; some have a shorter one."""
    return FLAGS.get(setting, "--" + setting.replace("_", "-"))


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return names that look like a role's settings but are none, and are probably misspelt.

    They are not an error, since orchestrators set similar variables of their own (a service named `pubsub-server`
    causes PUBSUB_SERVER_PORT). `pubsub config show` lists them.
    """
    known = {
        variable
        for role, settings in ROLES.items()
        for name in _settings_of(settings)
        for variable in _variables(role, name)
    }
    prefixes = tuple(f"PUBSUB_{role.upper()}_" for role in ROLES)
    return sorted(name for name in environment if name.startswith(prefixes) and name not in known)


def configuration_path(file: Path | str | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the TOML file to read, and True if a user named it, so that it must exist."""
    if file is not None:
        return expanded(file), True
    if environment.get(CONFIG_VARIABLE):
        return expanded(environment[CONFIG_VARIABLE]), True
    return locations.configuration_file(), False


def _settings_of(role: type[Any]) -> list[str]:
    names = [field.name for field in fields(role)]
    return [*names, "proxies_file"] if "proxies" in names else names


def _variables(role: str, setting: str) -> list[str]:
    names = [f"PUBSUB_{role.upper()}_{setting.upper()}"]
    return [*names, f"PUBSUB_{setting.upper()}"] if setting in SHARED else names


def _from_flags(role: str, flags: Mapping[str, object], origin: str) -> dict[str, Given]:
    return {
        name: Given(value, origin or flag_name(role, name))
        for name, value in flags.items()
        if value is not None and value != ()
    }


def _from_environment(role: str, environment: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    for setting in _settings_of(ROLES[role]):
        for variable in _variables(role, setting):
            if variable in environment and setting not in found:
                found[setting] = Given(environment[variable], variable)
    return found


def _from_tables(role: str, tables: Mapping[str, Mapping[str, Given]]) -> dict[str, Given]:
    known = _settings_of(ROLES[role])
    shared = {name: given for name, given in tables.get("cluster", {}).items() if name in known}
    return shared | dict(tables.get(role, {}))


def _read_tables(file: Path | str | None, environment: Mapping[str, str]) -> dict[str, dict[str, Given]]:
    path, named = configuration_path(file, environment)
    if not named and not path.exists():
        return {}
    import tomllib  # noqa: PLC0415  only where there is a file

    try:
        content = tomllib.loads(without_mark(path.read_bytes()).decode())
    except OSError as error:
        raise ConfigurationError(f"configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path} is not TOML: {error}") from None
    known = {role: _settings_of(settings) for role, settings in ROLES.items()} | {"cluster": sorted(SHARED)}
    tables: dict[str, dict[str, Given]] = {}
    rules = content.pop(RULES_TABLE, None)
    if rules is not None:
        if not isinstance(rules, list):
            raise ConfigurationError(f"configuration file {path}: write [[{RULES_TABLE}]], once for each rule")
        tables["server"] = {"topic_defaults": Given(rules, f"{path} [[{RULES_TABLE}]]")}
    for table, entries in content.items():
        if table not in known or not isinstance(entries, dict):
            tables_known = ", ".join([f"[{name}]" for name in known] + [f"[[{RULES_TABLE}]]"])
            raise ConfigurationError(f"configuration file {path}: {table} is not known; allowed: {tables_known}")
        for name, value in entries.items():
            if name not in known[table]:
                allowed = ", ".join(known[table])
                raise ConfigurationError(f"configuration file {path}: [{table}] has no {name}; allowed: {allowed}")
            tables.setdefault(table, {})[name] = Given(value, f"{path} [{table}]")
    return tables


def _find(field: Field[Any], places: list[dict[str, Given]]) -> Given | None:
    """Return the value of a setting from the nearest source; for proxies and their keys a file may give it."""
    nearer = False  # A file from a farther source lists other proxies than nearer addresses.
    for place in places:
        found = place.get(field.name)
        listed = place.get("proxies_file") if field.name in {"proxies", "proxy_keys"} and not nearer else None
        if found is not None and listed is not None:
            raise ConfigurationError(
                f"proxies are named twice: by {found.origin} and by the file {listed.value} ({listed.origin}); "
                "allowed: one of them"
            )
        if found is not None:
            return found
        if listed is not None:
            return Given(_ProxiesFile(listed), listed.origin)
        nearer = nearer or (field.name == "proxy_keys" and "proxies" in place)
    return None


@dataclass(frozen=True, slots=True)
class _ProxiesFile:
    given: Given

    def value(self, role: str, setting: str) -> tuple[str, ...]:
        """Return the addresses of its proxies, or their keys."""
        proxies = self._read(role)
        if setting == "proxies":
            return tuple(proxy.servers if role == "server" else proxy.clients for proxy in proxies)
        return tuple(",".join(map(format_public, proxy.keys)) for proxy in proxies if proxy.keys)

    def _read(self, role: str) -> tuple[ProxyAddress, ...]:
        try:
            path = RULES["directory"].value(self.given.value)
        except ValueError as error:
            raise _refusal(role, "proxies_file", self.given, str(error)) from None
        return read_proxies(path)  # type: ignore[arg-type]


def _check(role: str, setting: str, given: Given) -> object:
    if isinstance(given.value, _ProxiesFile):
        return given.value.value(role, setting)
    try:
        return RULES[setting].value(given.value)
    except ValueError as error:
        raise _refusal(role, setting, given, str(error)) from None


def _refusal(role: str, setting: str, given: Given, allowed: str) -> SettingRefused:
    return SettingRefused(role, setting, given.value, allowed, given.origin)


def _default(role: str, field: Field[Any], values: Mapping[str, Any]) -> object:
    if field.name == "directory" and role == "proxy" and values["id"] is not MISSING:
        return locations.state_directory(role, values["id"])
    return field.default


def _unset(role: str, setting: str) -> ConfigurationError:
    places = f"{flag_name(role, setting)}, {_variables(role, setting)[0]} or {setting} under [{role}]"
    if setting == "proxies":
        places = f"{places}; or a proxies file: --proxies-file, PUBSUB_PROXIES_FILE or proxies_file under [cluster]"
    return ConfigurationError(f"{role} {setting} is not set; set it by {places}")
