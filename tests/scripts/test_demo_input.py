from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from demo_input import Item, from_file, from_shop, number_of, save, saved


def test_lines_go_to_the_topic_of_their_repository_or_to_the_named_one(tmp_path: Path) -> None:
    lines = [
        json.dumps({"repository": "zeromq/pyzmq", "commit": "1"}),
        "plain text\twith a tab",
        json.dumps({"repository": "not a topic"}),
        json.dumps({"repository": 5}),
        json.dumps(["repository"]),
        "plain text\twith a tab",
    ]
    path = tmp_path / "input.jsonl"
    path.write_text("\n".join(lines) + "\n")
    items = from_file(path, "lines")
    assert [item.topic for item in items] == ["zeromq/pyzmq", *["lines"] * 5]
    assert [item.number for item in items] == [0, 1, 2, 3, 4, 5]
    assert items[1].body == b"1\tplain text\twith a tab"
    assert items[1].body != items[5].body


def test_a_compressed_file_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"a\r\nb\n\nc")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\r\nb\n\nc"))
    assert from_file(tmp_path / "plain", "t") == from_file(tmp_path / "packed.gz", "t")
    assert [body for _, body in from_file(tmp_path / "plain", "t")] == [b"0\ta", b"1\tb", b"2\t", b"3\tc"]


def test_the_publisher_reads_the_saved_input_back(tmp_path: Path) -> None:
    items = [Item("a/b", b"0\t\x00\xffx"), Item("c", b"1\t\t")]
    save(items, tmp_path / "input")
    assert list(saved(tmp_path / "input")) == items
    assert [number_of(item.body) for item in items] == [0, 1]


def test_a_shops_day_is_the_same_for_the_same_seed_and_has_every_kind_of_event() -> None:
    items = from_shop(3_000)
    assert from_shop(3_000) == items
    assert from_shop(3_000, seed=2) != items
    assert [item.number for item in items] == list(range(3_000))
    events: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        events.setdefault(item.topic, []).append(json.loads(item.body.partition(b"\t")[2]))
    assert set(events) == {"orders", "payments", "shipments", "stock"}
    assert all(len(found) > 300 for found in events.values())
    times = [json.loads(item.body.partition(b"\t")[2])["at"] for item in items]
    assert times == sorted(times)
    placed, paid, shipped = ([one["order"] for one in events[name]] for name in ("orders", "payments", "shipments"))
    assert set(shipped) <= set(paid) <= set(placed)
    assert len(set(paid)) == len(paid), "an order is paid once"
    assert all(one["left"] >= 0 for one in events["stock"])
