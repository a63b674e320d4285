"""Time and memory of an audit of many messages, each put and taken by a line of its own.

    python -m tests.spark.audit_scale --messages 10000000 --memory 1g --dir DIR

A publisher puts each message into a topic, and a subscriber takes it. Ten deliveries are left out, and ten are written
twice. The audit runs as a command of its own; its Java has so much heap. Printed are its time, the most memory that its
Java had at once, and whether it found the twenty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

FLAWS: Final = 10
"""Deliveries that are left out, and those that are written twice."""

PUBLISHER: Final = "0123456789abcdef"
LOG: Final = "fedcba9876543210"


def write(record: Path, messages: int) -> None:
    """Write the records of a publisher and of a subscriber."""
    step = messages // (2 * FLAWS + 1)
    lost = {step * (2 * number + 1) for number in range(FLAWS)}
    doubled = {step * (2 * number + 2) for number in range(FLAWS)}
    began = 1_700_000_000_000_000
    with record.open("w") as file:
        for client in ("pub", "sub"):
            _line(file, client, 1, began, kind="open", publisher=PUBLISHER, boot="b")
        _line(file, "sub", 2, began + 1, kind="subscription", topic="t", on=True, result="asked")
        _line(file, "sub", 3, began + 2, kind="subscription", topic="t", on=True, result="answered", log=LOG, offset=0)
        put, taken = 1, 3
        for number in range(1, messages + 1):
            at = began + 10 * number
            facts = {"topic": "t", "publisher": PUBLISHER, "first": number, "count": 1}
            for result in ("begun", "acknowledged"):
                put += 1
                _line(file, "pub", put, at, kind="put", result=result, **facts)
            for _ in range(0 if number in lost else 2 if number in doubled else 1):
                taken += 1
                place = {"log": LOG, "offset": number, "handler": True, "result": "taken"}
                _line(file, "sub", taken, at + 5, kind="delivery", **facts, **place)
        _line(file, "sub", taken + 1, began + 10 * messages + 60_000_000, kind="drained", topic="t")


def _line(file: object, client: str, n: int, at: int, **facts: object) -> None:
    file.write(json.dumps({"client": client, "session": 1, "n": n, "at": at, **facts}) + "\n")  # type: ignore[attr-defined]


def peak_of_java(parent: int) -> int:
    """Return the most bytes of memory that a Java below a process had so far; 0 if there is none."""
    most = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if "java" not in (place / "comm").read_text() or not _is_below(int(place.name), parent):
                continue
            rows = dict(row.split(":", 1) for row in (place / "status").read_text().splitlines())
            most = max(most, int(rows["VmHWM"].split()[0]) * 1024)
        except (OSError, KeyError):
            continue
    return most


def _is_below(pid: int, parent: int) -> bool:
    while pid > 1:
        if pid == parent:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--dir", type=Path, required=True)
    words = parser.parse_args()
    words.dir.mkdir(parents=True)
    record = words.dir / "record.jsonl"
    write(record, words.messages)
    command = [
        sys.executable, "-m", "pubsub", "pipeline", "audit", str(record), "--drained",
        "--conf", f"spark.driver.memory={words.memory}", "--conf", f"spark.local.dir={words.dir}",
    ]  # fmt: skip
    began, peak = time.monotonic(), 0
    with (words.dir / "said").open("w") as said, subprocess.Popen(command, stdout=said) as audit:
        while audit.poll() is None:
            peak = max(peak, peak_of_java(audit.pid))
            time.sleep(0.5)
    seconds = time.monotonic() - began
    lines = (words.dir / "said").read_text().splitlines()
    found = {kind: sum(line.startswith(kind) for line in lines) for kind in ("lost", "doubled")}
    print(
        f"{words.messages} messages, {record.stat().st_size >> 20} MiB: {seconds:.0f} s, Java {peak >> 20} MiB, {found}"
    )
    sys.exit(found != {"lost": FLAWS, "doubled": FLAWS})


if __name__ == "__main__":
    main()
