"""How property tests draw their examples, everywhere."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

_PATIENT = [HealthCheck.too_slow]

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=_PATIENT)
"""The same examples in every run, however slow the machine: what fails for one fails for all."""

settings.register_profile("searching", deadline=None, suppress_health_check=_PATIENT, max_examples=1000)
"""Others each time, and more of them: `pytest --hypothesis-profile searching`."""

settings.register_profile("few", deadline=None, derandomize=True, suppress_health_check=_PATIENT, max_examples=20)
"""The first of them: for who has drawn all of them already under another Python."""

settings.load_profile("same")


def pytest_configure() -> None:
    """Have SIGINT interrupt, here and in what tests start: whoever is started in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
