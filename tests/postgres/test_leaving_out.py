"""Without PostgreSQL its tests are left out with the reason, and fail where they must run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys, pytest
import tests.postgres.programs as programs
programs.DEBIAN = programs.Path("/nonexistent")
programs.shutil.which = lambda *_, **__: None
sys.exit(pytest.main(["tests/postgres/test_infrastructure.py", "-k", "own or template"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "code", "said"), [("", 0, "left out: 1 test with PostgreSQL"), ("required", 1, "must run")]
)
def test_it_is_said_that_tests_were_left_out_and_why(asked: str, code: int, said: str) -> None:
    environment = {**os.environ, "PUBSUB_POSTGRES_TESTS": asked}
    command = [sys.executable, "-c", WITHOUT]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stdout
    assert said in ended.stdout
    assert "PostgreSQL is not installed (no initdb, postgres, pg_basebackup, psql); on Debian" in ended.stdout
