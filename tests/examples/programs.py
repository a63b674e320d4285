"""Programs of examples/ as processes, with a cluster and directories of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_SECONDS = 120.0


class Programs:
    """Starts programs in an empty directory, and kills what still runs.

    Args:
        proxies: addresses of the cluster's proxies.
        place: the directory.
    """

    def __init__(self, proxies: Sequence[str], place: Path) -> None:
        self.place = place
        self.running: list[subprocess.Popen[str]] = []
        (place / "proxies").write_text("".join(f"{address}\n" for address in proxies))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")} | {
            "PUBSUB_PROXIES_FILE": str(place / "proxies"),
            "PUBSUB_CLIENT_DIRECTORY": str(place / "clients"),
            "PYTHONPATH": f"{EXAMPLES.parent}:{EXAMPLES}",
        }

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a program; what it says goes to the file `log`."""
        with (self.place / "log").open("a") as log:
            started = subprocess.Popen(
                command, cwd=self.place, env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, text=True,
            )  # fmt: skip
        self.running.append(started)
        return started

    def python(self, name: str, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Starts an example in Python."""
        return self.start(sys.executable, str(EXAMPLES / name), *words, **environment)

    def run(self, *command: str, text: str = "", code: int = 0) -> str:
        """What a program prints that ends by itself."""
        done = subprocess.run(
            command, cwd=self.place, env=self.environment, input=text, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr + self.log()
        return done.stdout

    def log(self) -> str:
        """What started programs have said."""
        return (self.place / "log").read_text() if (self.place / "log").exists() else ""

    def stop(self, program: subprocess.Popen[str]) -> int:
        """Its exit code after SIGTERM."""
        program.terminate()
        return program.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Kills what still runs."""
        for program in self.running:
            program.kill()
            program.wait()
