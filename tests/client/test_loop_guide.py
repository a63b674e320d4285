"""The loops of docs/how-to/consume.md run as programs: they receive, and end at SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub.client import Client
from pubsub.protocol import Report
from tests.client.opened import PATIENCE, eventually, rows
from tests.spark.broker import Broker

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "consume.md").read_text()
LOOPS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def waiting(broker: Broker) -> int | None:
    """Return the backlog of the loop's subscriber; None before it is subscribed to both topics."""
    topics = json.loads(bytes(broker.link.ask(Report("spark", "s1")).body))["topics"]
    held = [topics.get(topic, {}).get("subscribers", {}).get("accounts") for topic in ("orders", "refunds")]
    return None if None in held else sum(one["waiting"] for one in held)


@pytest.mark.parametrize("source", LOOPS, ids=["threads", "asyncio"])
def test_a_loop_of_the_guide_takes_from_its_topics_and_ends_at_sigterm(tmp_path: Path, source: str) -> None:
    broker = Broker(tmp_path / "broker")
    log, own = tmp_path / "log", tmp_path / "own"
    place = {"PUBSUB_CLIENT_PROXIES": broker.address, "PUBSUB_CLIENT_DIRECTORY": str(own)}
    with log.open("w") as out:
        loop = subprocess.Popen([sys.executable, "-c", source], env=os.environ | place, stdout=out, stderr=out)
    try:

        def holds(number: int) -> bool:
            assert loop.poll() is None, log.read_text()
            return waiting(broker) == number

        eventually(lambda: holds(0))
        with Client("shop", proxies=[broker.address], directory=tmp_path / "shop") as shop:
            for topic in ("orders", "refunds"):
                shop.put_many(topic, [b"1", b"2"], timeout=PATIENCE)
        eventually(lambda: holds(0))
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(PATIENCE) == 0, log.read_text()
        with Client("accounts", proxies=[broker.address], directory=own) as accounts:
            found = rows(accounts, "select topic, body from received")
        assert sorted(found) == [(topic, body) for topic in ("orders", "refunds") for body in (b"1", b"2")]
    finally:
        loop.kill()
        loop.wait()
        broker.close()
