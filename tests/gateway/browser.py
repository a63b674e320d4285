"""A real browser: Chromium, driven over HTTP as the W3C's WebDriver has it."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from tests.faults.cluster import until
from tests.ports import free_port

DRIVER = shutil.which("chromedriver")
REQUIRED = os.environ.get("PUBSUB_BROWSER_TESTS") == "required"
"""Whether the tests that need a browser must not be left out, as in `.ci/run`."""

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What WebDriver calls a reference to an element."""

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,900",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
    "--no-first-run",
]  # fmt: skip
"""It asks nobody outside of this host for anything."""


class Browser:
    """A browser; a context manager that ends it."""

    def __enter__(self) -> Browser:
        assert DRIVER is not None
        port = free_port()
        self._profile = tempfile.mkdtemp(prefix="pubsub-browser-")
        self._driver = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._http = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False)
        until(self._ready, "chromedriver is ready")
        options = {"args": [*FLAGS, f"--user-data-dir={self._profile}"]}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = ""
        self._session = self._do("POST", "/session", capabilities=capabilities)["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._session:
                self._do("DELETE", "")
        finally:
            self._driver.kill()
            self._driver.wait()
            self._http.close()
            shutil.rmtree(self._profile, ignore_errors=True)

    def _ready(self) -> bool:
        try:
            return bool(self._http.get("/status").json()["value"]["ready"])
        except httpx2.HTTPError:
            return False

    def _do(self, method: str, path: str, **facts: Any) -> Any:
        status, value = self._ask(method, path, facts)
        assert status == 200, value
        return value

    def _ask(self, method: str, path: str, facts: dict[str, Any]) -> tuple[int, Any]:
        place = f"/session/{self._session}{path}" if self._session else path
        answer = self._http.request(method, place, json=facts if method == "POST" else None)
        return answer.status_code, answer.json()["value"]

    def open_window(self) -> None:
        """Goes on in a new window, and forgets what the old one has complained of."""
        handle = self._do("POST", "/window/new", type="tab")["handle"]
        self._do("DELETE", "/window")
        self._do("POST", "/window", handle=handle)
        self.complaints()

    def go(self, url: str) -> None:
        """Opens a page."""
        self._do("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._do("POST", "/execute/sync", script=script, args=list(arguments))

    def text(self, css: str) -> str:
        """The text of an element that is shown; "" where there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def _use(self, css: str, deed: str, **facts: Any) -> None:
        """Does something to an element: to the next one, where the page was drawn anew after it had been found."""

        def done() -> bool:
            element = self._do("POST", "/element", using="css selector", value=css)[ELEMENT]
            status, value = self._ask("POST", f"/element/{element}/{deed}", facts)
            assert status == 200 or value["error"] == "stale element reference", value
            return status == 200

        until(done, f"{css} stays as it is")

    def click(self, css: str) -> None:
        """As a person does."""
        self._use(css, "click")

    def type(self, css: str, text: str) -> None:
        """As a person does."""
        self._use(css, "value", text=text)

    def press(self, *keys: str) -> None:
        """Keys, one after the other, on whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._do("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def complaints(self) -> list[str]:
        """What the browser's console has of errors since it was asked last."""
        return [one["message"] for one in self._do("POST", "/se/log", type="browser") if one["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        """What a person sees."""
        path.write_bytes(base64.b64decode(self._do("GET", "/screenshot")))
