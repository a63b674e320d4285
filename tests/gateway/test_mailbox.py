"""A subscriber's mailbox, on a real client: taken, confirmed and lost messages, and their numbers.

The rule is docs/explanation/gateway.md, H5.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub.config.settings import ClientSettings
from pubsub.errors import DataLoss, Unavailable
from pubsub.gateway import mailbox as module
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.mailbox import Mail, Mailbox, Place
from pubsub.gateway.polling import confirm, next_batch
from pubsub.gateway.problems import Problem
from pubsub.gateway.schemas import Lost
from tests.faults.cluster import Cluster


def run(cluster: Cluster, directory: Path, scene: Callable[[Mailbox], Awaitable[None]]) -> None:
    async def whole() -> None:
        settings = ClientSettings(proxies=tuple(cluster.addresses), directory=directory)
        async with GatewayClient(f"m-{directory.name}", settings=settings) as client:
            client.make_tables(module.TABLES)
            box = Mailbox(client, f"box/{directory.name}")
            await client.subscribe(box.topic)
            await scene(box)

    asyncio.run(whole())


async def put(box: Mailbox, count: int) -> None:
    await box.client.put_many(box.topic, [b"%d" % number for number in range(count)])


def test_taken_messages_are_numbered_and_stay_until_they_are_confirmed(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(box: Mailbox) -> None:
        assert box.place() == Place()
        await put(box, 5)
        assert await box.take(3, 10.0, opened=True) == 3
        assert box.place() == Place(3, 0, 3)
        assert [(one.number, one.body) for one in box.after(0, 10)] == [(1, b"0"), (2, b"1"), (3, b"2")]
        assert [one.number for one in box.after(1, 1)] == [2]
        await box.confirm(2)
        assert [one.number for one in box.after(0, 10)] == [3]
        assert await box.take(10, 10.0, confirmed=3) == 2
        assert box.place() == Place(5, 3, 3)
        assert [one.number for one in box.after(0, 10)] == [4, 5]

    run(cluster, tmp_path, scene)


def test_numbers_go_on_where_everything_was_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(box: Mailbox) -> None:
        await put(box, 2)
        await box.take(2, 10.0, opened=True)
        box.empty()
        assert box.place() == Place(2, 2, 2)
        assert box.after(0, 10) == []
        await put(box, 1)
        await box.take(1, 10.0)
        assert [one.number for one in box.after(0, 10)] == [3]

    run(cluster, tmp_path, scene)


def test_nothing_is_taken_where_the_rows_cannot_be_written(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(box: Mailbox) -> None:
        await put(box, 2)
        with monkeypatch.context() as patch:

            def broken(*_: Any, **__: Any) -> None:
                raise Problem("internal", "no")

            patch.setattr(module, "_add", broken)
            with pytest.raises(Problem):
                await box.take(2, 10.0)
        assert await box.take(2, 10.0) == 2
        assert [one.body for one in box.after(0, 10)] == [b"0", b"1"]

    run(cluster, tmp_path, scene)


def test_a_loss_is_taken_like_a_message(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(box: Mailbox) -> None:
        async def lost(*_: Any) -> int:
            raise DataLoss(box.topic, "a.1", "a.9", "the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(GatewayClient, "hand_on", lost)
            (loss,) = await next_batch(box, 10, 1.0)
        assert loss.facts() == Lost("lost-a.1..a.9", "the disk is gone", "a.1..a.9")
        await put(box, 1)
        assert await next_batch(box, 10, 1.0) == [loss]
        await confirm(box, 1)
        assert [one.body for one in await next_batch(box, 10, 10.0)] == [b"0"]

    run(cluster, tmp_path, scene)


def test_deletions_without_a_known_range_have_no_position_and_ids_of_their_own() -> None:
    rows = [Mail(number, "", "", 0, 0, b"", None, "deleted", 0, 0.0) for number in (4, 5)]
    assert [row.facts() for row in rows] == [Lost("lost-4", "deleted"), Lost("lost-5", "deleted")]
    assert json.loads(msgspec.json.encode(rows[0].facts())) == {"id": "lost-4", "lost": "deleted"}


def test_a_poll_without_an_answer_of_the_service_gets_an_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pubsub.gateway import polling

    monkeypatch.setattr(polling, "ANSWER_SECONDS", 0.0)

    async def scene(box: Mailbox) -> None:
        async def silent(*_: Any) -> int:
            raise Unavailable("get", box.topic, 1.0)

        monkeypatch.setattr(GatewayClient, "hand_on", silent)
        with pytest.raises(Unavailable):
            await next_batch(box, 10, 0.0)

    run(cluster, tmp_path, scene)


def test_a_batch_beyond_the_last_one_cannot_be_confirmed(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(box: Mailbox) -> None:
        await put(box, 1)
        await next_batch(box, 1, 10.0)
        for number in (0, 2):
            with pytest.raises(Problem):
                await confirm(box, number)
        await confirm(box, 1)
        await confirm(box, 1)

    run(cluster, tmp_path, scene)


def test_a_message_with_any_content_is_json() -> None:
    mail = Mail(1, "a.1", "c/ab", 2**62, 5, b"\xff", '"ü\\\n'.encode(), "", 0, 0.0)
    found = json.loads(msgspec.json.encode(mail.facts()))
    assert found == {
        "id": f"ab-{2**62}",
        "position": "a.1",
        "publisher": "c/ab",
        "counter": str(2**62),
        "stamp": 5,
        "key_base64": "/w==",
        "body": '"ü\\\n',
    }


def test_only_a_message_that_may_have_been_processed_is_marked_doubtful() -> None:
    mail = Mail(1, "a.1", "c/ab", 1, 5, b"", b"one", "", 0, 0.0)
    for beginnings in (False, True):
        assert b"doubtful" not in msgspec.json.encode(mail.facts(beginnings=beginnings))
        marked = msgspec.to_builtins(mail._replace(doubtful=1).facts(beginnings=beginnings))
        assert marked["doubtful"] is True


@pytest.mark.parametrize("lacking", [("headers", "doubtful", "replay"), ("doubtful", "replay"), ("replay",), ()])
def test_a_mailbox_of_an_earlier_release_gets_its_columns_and_keeps_its_messages(
    cluster: Cluster, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    tables = list(module.TABLES)
    number = "INTEGER NOT NULL DEFAULT 0"
    columns = {"headers": "BLOB NOT NULL DEFAULT x''", "doubtful": number, "replay": number}
    for name, kind in (*columns.items(), ("source", "TEXT NOT NULL DEFAULT ''")):
        if name in (*lacking, "source"):
            tables = [one.replace(f" {name} {kind},", "") for one in tables]
    more = "" if "headers" in lacking else ", x''"
    more += "" if "doubtful" in lacking else ", 0"
    more += "" if "replay" in lacking else ", 0"
    old = f"""
        INSERT INTO gateway_mail
            VALUES ('box/{tmp_path.name}', 1, 'a.1', 'c/ab', 1, 5, x'', x'6f6c64', '', 0, 0, 0{more});
        INSERT INTO gateway_place VALUES ('box/{tmp_path.name}', 1, 0, 0)"""

    async def whole() -> None:
        settings = ClientSettings(proxies=tuple(cluster.addresses), directory=tmp_path)
        async with GatewayClient(f"m-{tmp_path.name}", settings=settings) as client:
            client.make_tables([*tables, old])
            module.make_tables(client)
            module.make_tables(client)
            box = Mailbox(client, f"box/{tmp_path.name}")
            await client.subscribe(box.topic)
            await client.put(box.topic, b"new", key=b"k", headers={"a": b"1"})
            assert await box.take(1, 10.0, opened=True) == 1
            before, new = box.after(0, 10)
            assert (before.body, before.headers, before.doubtful, before.replay, before.source) == (
                b"old",
                b"",
                0,
                0,
                "",
            )
            assert msgspec.to_builtins(new.facts())["headers"] == {"a": "1"}

    asyncio.run(whole())
