"""Arguments of a wrong type: one clear line with the argument's name, from every call, and nothing done."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from pubsub import AsyncClient, Client, ClientSettings, embedded
from pubsub.client.arguments import check_bodies
from pubsub.client.storage.recorder import RecordFile
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, ConfigurationError, PubsubError, TooLarge
from pubsub.protocol import RECORD_BYTES_MAX


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        with running.client("c") as client:
            client.subscribe("t")
        yield running


def nothing(message: Any, transaction: Any) -> None:
    raise AssertionError("nothing was put")


async def finished(found: Any) -> None:
    await (found if inspect.isawaitable(found) else anext(found))


CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    *[
        ("topic", call)
        for call in (
            lambda c: c.put(5, b"x"),
            lambda c: c.put(b"t", b"x"),
            lambda c: c.put(None, b"x"),
            lambda c: c.put_many(["t"], [b"x"]),
            lambda c: c.publisher(5),
            lambda c: c.subscribe(b"t"),
            lambda c: c.unsubscribe(5),
            lambda c: c.get(["t"]),
            lambda c: c.get_many({}),
            lambda c: c.messages(5),
            lambda c: c.process(5, nothing),
            lambda c: c.discard(5),
            lambda c: c.unfinished([]),
            lambda c: c.dead_letters(5),
        )
    ],
    ("body", lambda c: c.put("t", "text")),
    ("body", lambda c: c.put("t", None)),
    ("body", lambda c: c.put("t", 5)),
    ("bodies", lambda c: c.put_many("t", "text")),
    ("bodies", lambda c: c.put_many("t", b"body")),
    ("bodies", lambda c: c.put_many("t", bytearray(b"body"))),
    ("bodies", lambda c: c.put_many("t", 5)),
    ("bodies", lambda c: c.put_many("t", None)),
    (r"bodies\[1\]", lambda c: c.put_many("t", [b"x", "y"])),
    ("body", lambda c: c.put_many("t", iter([None]))),
    ("key ", lambda c: c.put("t", b"x", key="text")),
    ("key ", lambda c: c.put("t", b"x", key=None)),
    (r"key\[1\]", lambda c: c.put_many("t", [b"x", b"y"], keys=[b"k", 5])),
    ("keys has one for each message, or none: 1 for 2", lambda c: c.put_many("t", [b"x", b"y"], keys=[b"k"])),
    ("keys", lambda c: c.put_many("t", [b"x"], keys=b"k")),
    ("headers", lambda c: c.put("t", b"x", headers=[("a", b"1")])),
    ("headers", lambda c: c.put("t", b"x", headers=5)),
    (r"headers\['a'\]", lambda c: c.put("t", b"x", headers={"a": "text"})),
    ("a name in headers", lambda c: c.put("t", b"x", headers={5: b"1"})),
    ("header name 'a b' is not allowed:", lambda c: c.put("t", b"x", headers={"a b": b"1"})),
    ("headers", lambda c: c.put_many("t", [b"x"], headers={"a": b"1"})),
    ("headers has one for each message, or none: 2 for 1", lambda c: c.put_many("t", [b"x"], headers=[{}, {}])),
    ("number of headers of a message is 17,", lambda c: c.put("t", b"x", headers={f"h{n}": b"" for n in range(17)})),
    ("headers of a message is 8,196,", lambda c: c.publisher("t").put(b"x", headers={"h": bytes(8192)})),
    *[
        ("timeout", call)
        for call in (
            lambda c: c.put("t", b"x", timeout="1"),
            lambda c: c.put_many("t", [b"x"], timeout=True),
            lambda c: c.flush("soon"),
            lambda c: c.flush(float("nan")),
            lambda c: c.subscribe("t", timeout=[]),
            lambda c: c.unsubscribe("t", timeout="1"),
            lambda c: c.get("t", "1"),
            lambda c: c.get("t", timeout=float("nan")),
            lambda c: c.get_many("t", timeout=b"1"),
            lambda c: c.messages("t", timeout="1"),
            lambda c: c.process("t", nothing, timeout="1"),
        )
    ],
    *[
        ("timeout is at least 0 s, not -1;", call)
        for call in (
            lambda c: c.put("t", b"x", timeout=-1),
            lambda c: c.put("t", b"x", timeout=-1.0, wait=False),
            lambda c: c.put_many("t", [b"x"], timeout=-1),
            lambda c: c.flush(-1),
            lambda c: c.publisher("t").flush(-1),
            lambda c: c.subscribe("t", timeout=-1),
            lambda c: c.unsubscribe("t", timeout=-1),
            lambda c: c.get("t", -1),
            lambda c: c.get_many("t", timeout=-1),
            lambda c: c.messages("t", timeout=-1),
            lambda c: c.process("t", nothing, timeout=-1),
        )
    ],
    ("linger is at least 0 s, not -0.5;", lambda c: c.publisher("t", linger=-0.5)),
    (r"topic 'or\*' is not allowed:", lambda c: c.get("or*")),
    (r"topic 'or\*' is not allowed:", lambda c: c.process("or*", nothing)),
    ("max", lambda c: c.get_many("t", "10")),
    ("max", lambda c: c.get_many("t", 0)),
    ("max", lambda c: c.get_many("t", 1.5)),
    ("max", lambda c: c.get_many("t", True)),
    ("max", lambda c: c.process("t", nothing, max=0)),
    ("max", lambda c: c.process("t", nothing, max=None)),
    ("handler", lambda c: c.process("t", None)),
    ("handler", lambda c: c.process("t", "print")),
    ("transaction", lambda c: c.put("t", b"x", transaction="yes")),
    ("wait", lambda c: c.put("t", b"x", wait="no")),
    ("keep", lambda c: c.renew(keep="no")),
    ("records", lambda c: c.publisher("t", records="5")),
    ("records", lambda c: c.publisher("t", records=0)),
    ("size", lambda c: c.publisher("t", size=1.5)),
    ("linger", lambda c: c.publisher("t", linger="5")),
]


@pytest.mark.parametrize(("name", "call"), CALLS, ids=range(len(CALLS)))
def test_a_client_names_the_argument(cluster: Embedded, name: str, call: Callable[[Any], Any]) -> None:
    with cluster.client("c") as client:
        with pytest.raises(CallerError, match=rf"^{name}(?<= )" if name.endswith(" ") else rf"^{name} "):
            next(call(client))  # Only an iteration gets as far as `next`.
        assert client.unfinished("t") == 0


@pytest.mark.parametrize(("name", "call"), CALLS, ids=range(len(CALLS)))
def test_an_async_client_names_the_argument(cluster: Embedded, name: str, call: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with cluster.async_client("c") as client:
            with pytest.raises(CallerError, match=rf"^{name}(?<= )" if name.endswith(" ") else rf"^{name} "):
                await finished(call(client))
            assert client.unfinished("t") == 0

    asyncio.run(main())


OPENINGS: list[tuple[str, dict[str, Any]]] = [
    ("proxies", {"proxies": 5}),
    ("proxies", {"proxies": [5]}),
    ("proxies", {"proxies": [b"tcp://127.0.0.1:1"]}),
    ("proxies and proxies_file", {"proxies": "tcp://127.0.0.1:1", "proxies_file": "proxies"}),
    ("proxies_file", {"proxies_file": 5}),
    ("directory", {"directory": 5}),
    ("power_safe", {"power_safe": "yes"}),
    ("timeout", {"timeout": "30"}),
    ("settings", {"settings": {"timeout_seconds": 5}}),
    ("recorder", {"recorder": 1}),
    ("recorder", {"recorder": object()}),
    ("recorder", {"recorder": b"record"}),
    ("recorder", {"recorder": RecordFile}),
    ("clock", {"clock": 1}),
    ("clock", {"clock": time.monotonic}),
    ("random", {"random": 1}),
    ("boot", {"boot": 1}),
    ("context", {"context": "zmq"}),
    ("context", {"context": zmq.asyncio.Context}),
]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(("name", "options"), OPENINGS, ids=range(len(OPENINGS)))
def test_opening_a_client_names_the_argument(
    tmp_path: Path, kind: type[Client | AsyncClient], name: str, options: dict[str, Any]
) -> None:
    if options.get("context") is zmq.asyncio.Context:
        options = {"context": zmq.asyncio.Context()}
    with pytest.raises(CallerError, match=rf"^{name}(?<= )" if name.endswith(" ") else rf"^{name} "):
        kind("c", **({"directory": tmp_path} | options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("forever", [float("inf"), 1e300, 10**12])
def test_a_timeout_may_be_endless(cluster: Embedded, forever: float) -> None:
    async def main() -> None:
        async with cluster.async_client("endless") as client:
            await client.subscribe("endless", timeout=forever)
            await client.put("endless", b"x", timeout=forever)
            await client.flush(forever)
            assert await client.get("endless", forever)
            waiting = asyncio.ensure_future(client.get("endless", forever))
            await asyncio.sleep(0)
            await client.put("endless", b"y")
            assert await waiting

    asyncio.run(main())
    with cluster.client("endless") as client, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client.get, "endless", forever) for _ in range(2)]
        client.put_many("endless", [b"x", b"y"], timeout=forever)
        assert {one.result(30).body for one in waiting} == {b"x", b"y"}
        client.put("endless", b"z", timeout=forever)
        assert client.process("endless", lambda message, transaction: None, timeout=forever) == 1
        client.flush(forever)


def test_a_body_that_is_too_large_says_the_largest(cluster: Embedded) -> None:
    with cluster.client("c") as client:
        client.put("large", bytes(RECORD_BYTES_MAX))
        with pytest.raises(TooLarge, match=f"body is {RECORD_BYTES_MAX + 1:,}, above the limit .* = 16,777,"):
            client.put("large", bytearray(RECORD_BYTES_MAX + 1))
        with pytest.raises(TooLarge, match="body is"), client.publisher("large") as publisher:
            publisher.put(bytes(RECORD_BYTES_MAX + 1))
        with pytest.raises(TooLarge, match=r"bodies\[1\] is"):
            client.put_many("large", [b"x", bytes(20 << 20)])


def test_bodies_may_come_from_anything_that_gives_bytes() -> None:
    assert check_bodies([b"a"]) == [b"a"]
    assert check_bodies(iter((b"a", bytearray(b"b"), memoryview(b"c")))) == [b"a", b"b", b"c"]
    assert check_bodies(()) == ()


class TestProxies:
    """A program finds its proxies as the commands do."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def settings(self, **options: Any) -> ClientSettings:
        with Client("c", **options) as client:
            return client.settings

    def test_a_file_with_comments(self, tmp_path: Path) -> None:
        file = tmp_path / "proxies"
        file.write_text("# one proxy a line\n\n127.0.0.1:1 127.0.0.1:2  # the first\ntcp://127.0.0.1:3\n")
        for path in (file, str(file)):
            assert self.settings(proxies_file=path).proxies == ("tcp://127.0.0.1:1", "tcp://127.0.0.1:3")
        metadata = ClientSettings(proxies=("tcp://127.0.0.1:9",), window=7)
        found = self.settings(proxies_file=file, settings=metadata)
        assert (found.proxies, found.window) == (("tcp://127.0.0.1:1", "tcp://127.0.0.1:3"), 7)

    def test_the_environment_and_the_configuration_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config/pirate-pubsub").mkdir(parents=True)
        config = tmp_path / "config.toml"
        config.write_text("[client]\nproxies = ['tcp://127.0.0.1:5']\ntimeout_seconds = 7\n")
        monkeypatch.setenv("PUBSUB_CONFIG", str(config))
        assert self.settings().proxies == ("tcp://127.0.0.1:5",)
        assert self.settings().timeout_seconds == 7.0
        monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", "127.0.0.1:6,127.0.0.1:7")
        assert self.settings().proxies == ("tcp://127.0.0.1:6", "tcp://127.0.0.1:7")
        # Arguments of the program win, and the rest comes from the usual sources; with `settings`, only from there.
        found = self.settings(proxies=["tcp://127.0.0.1:8"])
        assert (found.proxies, found.timeout_seconds) == (("tcp://127.0.0.1:8",), 7.0)
        assert self.settings(settings=ClientSettings()) == ClientSettings()
        monkeypatch.setenv("PUBSUB_PROXIES_FILE", str(tmp_path / "missing"))
        monkeypatch.delenv("PUBSUB_CLIENT_PROXIES")
        with pytest.raises(ConfigurationError, match="missing"):
            self.settings()
        assert self.settings(proxies="tcp://127.0.0.1:8").proxies == ("tcp://127.0.0.1:8",)

    def test_the_environment_says_nothing_of_an_embedded_cluster(
        self, cluster: Embedded, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", "127.0.0.1:6")
        monkeypatch.setenv("PUBSUB_CLIENT_TIMEOUT_SECONDS", "0.001")
        with cluster.client("c") as client:
            assert client.settings.proxies == cluster.proxies
            client.put("t", b"x")

    @pytest.mark.parametrize(
        "options", [{"proxies": ["nonsense"]}, {"proxies": []}, {"proxies": ["tcp://127.0.0.1:99999"]}, {"timeout": -1}]
    )
    def test_invalid_settings_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(PubsubError, match=r"this program|none is named|timeout is at least 0 s"):
            self.settings(**options)
