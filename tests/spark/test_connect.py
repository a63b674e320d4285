"""What Spark Connect changes for programs that use this package: sessions, and the text of errors. No server runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException

from pubsub.cli import main
from pubsub.errors import ConfigurationError
from pubsub.spark.pipelines import failure
from pubsub.spark.session import start

TRACEBACK = 'Traceback (most recent call last):\n  File "sink.py", line 1, in write\n    raise X\n'


@pytest.mark.parametrize(
    ("error", "said", "exit_code"),
    [
        (
            AnalysisException(
                f"[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance creates writer: {TRACEBACK}"
                "pubsub.errors.ConfigurationError: a topic cannot be overwritten; use mode append\n SQLSTATE: 38000"
            ),
            "a topic cannot be overwritten; use mode append",
            8,
        ),
        (
            PythonException(
                "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
                f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {TRACEBACK}"
                "ValueError: 1 of 1 values are null; replace them\n SQLSTATE: 38000\n"
            ),
            "ValueError: 1 of 1 values are null; replace them",
            1,
        ),
        (PySparkException("(java.lang.Exception) [DATA_SOURCE_NOT_FOUND] Failed to find"), "Failed to find", 1),
    ],
)
def test_errors_of_a_remote_session_are_one_sentence(error: PySparkException, said: str, exit_code: int) -> None:
    found = failure(error)
    assert str(found).endswith(said)
    assert "\n" not in str(found)
    assert getattr(found, "exit_code", 0) == exit_code


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_pipeline_beside_a_remote_session_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "sc://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="this process uses Spark Connect"):
        start()


def test_the_command_refuses_the_variable_of_a_remote_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    to = tmp_path / "orders"
    assert main(["pipeline", "archive", "orders", "--to", str(to), "--once", "--proxy", "tcp://127.0.0.1:1"]) == 8
    assert not to.exists()
    assert "run it in another process, without SPARK_REMOTE" in capsys.readouterr().err.splitlines()[-1]
