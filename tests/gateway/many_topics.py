"""A gateway of a cluster with ten thousand topics that is made up: a program, since the gateway is a process.

    python -m tests.gateway.many_topics HOST:PORT DIR

What servers and proxies would answer is made once; each question reads it and makes one picture of it, as `pubsub
status` does. Topic `area3/topic-00003` holds 3 messages, and every thousandth has subscribers by the thousand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pubsub.cli.reports import picture
from pubsub.config.settings import ClientSettings
from pubsub.gateway.handlers.look_back import Reads
from pubsub.gateway.process import GatewaySettings, run_gateway

TOPICS = 10_000
AREAS = 7
CROWD = 1_000
"""Subscribers of every CROWD-th topic."""

PROCESS = {"memory_bytes": 1 << 28, "disk_size_bytes": 1 << 40, "disk_free_bytes": 1 << 35, "disk_used_bytes": 1 << 39}


def names() -> list[str]:
    """The topics, by name."""
    return sorted(f"area{number % AREAS}/topic-{number:05d}" for number in range(TOPICS))


def held(name: str) -> dict[str, Any]:
    number = int(name[-5:])
    waiting = {"waiting": number % 100, "polling": False, "oldest_unacknowledged_seconds": float(number)}
    subscribers = {f"http.s{one}": waiting for one in range(1 if number % CROWD else CROWD)}
    return {"records": number, "bytes": 10 * number, "others": [], "subscribers": subscribers}


def proxy() -> dict[str, Any]:
    holders = [{"server": "s1", "store": "0" * 16, "log": "1" * 16, "alive": True}]
    return {
        "proxy": "p1", "starting": False, "witness": False, "topics_total": TOPICS, "uptime_seconds": 9.0,
        "servers": [{"id": "s1", "alive": True}], "counters": {}, "process": PROCESS,
        "topics": [{"topic": name, "contested": False, "holders": holders} for name in names()],
        "warnings": [f"topic t{number} has more than one holder: s1, s2" for number in range(100)],
    }  # fmt: skip


def server() -> dict[str, Any]:
    return {
        "role": "server", "id": "s1", "store": "0" * 16, "address": "tcp://127.0.0.1:1", "uptime_seconds": 9.0,
        "full": False, "stale": "", "draining": False, "counters": {"records": 7}, "disk": {"store": 1 << 30},
        "process": PROCESS, "moves": [], "left_out": {"topics": 0},
        "topics": {name: held(name) for name in names()},
    }  # fmt: skip


class Operations:
    """An operator is refused whatever it is; every topic has the default settings."""

    def move(self, topic: str, to: str) -> dict[str, Any]:
        raise NotImplementedError(topic, to)

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        raise NotImplementedError(topic, client)

    def groups(self, user: str, topic: str) -> list[dict[str, Any]]:
        return []

    def group(self, user: str, topic: str, name: str) -> dict[str, Any]:
        raise NotImplementedError(topic, name)

    def act_on_group(self, action: str, topic: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError(action, topic, name)

    def settings(self, user: str, topic: str) -> dict[str, Any]:
        return {"topic": topic, "keep": "none", "drop": "never", "version": "", "conflict": False, "tombstones": "1d"}

    def configure(self, topic: str, values: Mapping[str, str | None], base: str | None) -> dict[str, Any]:
        raise NotImplementedError(topic, values, base)

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        raise NotImplementedError(server, stop)


def peek(user: str, topic: str, after: str | None, most: int) -> dict[str, Any]:
    """Nothing is held."""
    return {"held": 0, "messages": [], "next": None}


def main() -> None:
    """Serve until SIGTERM."""
    answers = json.dumps(proxy()), json.dumps(server())

    def gather() -> dict[str, Any]:
        of_proxy, of_server = map(json.loads, answers)
        return picture({"tcp://127.0.0.1:2": of_proxy}, {"s1": of_server})

    settings = ClientSettings(proxies=["tcp://127.0.0.1:9"])
    run_gateway(
        GatewaySettings(sys.argv[1], Path(sys.argv[2])),
        settings,
        gather,
        Operations(),
        peek,
        cast(Reads, None),
        lambda url: print(f"gateway ready: {url}", flush=True),
    )


if __name__ == "__main__":
    main()
