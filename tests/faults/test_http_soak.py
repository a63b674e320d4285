"""Reliable HTTP under random kills and a failing network; and its judge finds violations."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.http_rig import ROOT, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


ROUNDS_MAX = 6
"""How often 300 requests are made until both programs have died twice: a fast machine ends before its faults."""


def test_three_hundred_requests_under_random_faults_happen_once_each(tmp_path: Path) -> None:
    killed, faults = Counter({"sender": 0, "receiver": 0}), Counter[str]()
    for seed in range(3, 3 + ROUNDS_MAX):
        soak = tmp_path / f"soak{seed}"
        words = ["--requests", "300", "--seed", str(seed), "--dir", str(soak)]
        ended = subprocess.run(
            [sys.executable, ROOT / "scripts" / "http_soak.py", *words],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        told = json.loads((soak / "http_soak.json").read_text())
        assert told["objections"] == []
        killed.update(told["killed"])
        faults.update(told["faults"])
        if min(killed.values()) >= 2 and faults["bytes repeated"]:
            break
    assert min(killed.values()) >= 2
    assert faults["bytes repeated"] > 0


def test_the_count_finds_lost_doubled_and_falsely_reported_requests(tmp_path: Path) -> None:
    with Rig(tmp_path, count=4) as rig:
        (tmp_path / "receiver").mkdir()
        with closing(sqlite3.connect(tmp_path / "receiver" / "http.db")) as db, db:
            db.execute("create table effects (value text, token text)")
            db.executemany("insert into effects values (?, ?)", [("0", "a"), ("1", "b"), ("1", "c"), ("2", "d")])
        told = [{"value": 0, "answer": "a"}, {"value": 1, "answer": ""}, {"value": 2, "answer": "e"}]
        rig.record.write_text("".join(json.dumps(one) + "\n" for one in told))
        objections = " · ".join(rig.objections())
    assert "1 happened 2 times" in objections
    assert "3 happened 0 times" in objections
    assert "2 was told as {'e'}, and {'d'} happened" in objections
    assert "0 was" not in objections
