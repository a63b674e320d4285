"""Settings of reliable HTTP: impossible values are refused by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pubsub.errors import SettingRefused
from pubsub.http.settings import HttpSettings


@pytest.mark.parametrize("name", [one.name for one in fields(HttpSettings)])
@pytest.mark.parametrize("value", [0, -1, True, "1", None, float("nan"), float("inf")])
def test_a_setting_is_a_positive_number(name: str, value: Any) -> None:
    with pytest.raises(SettingRefused, match=name):
        HttpSettings(**{name: value})


def test_a_tombstone_stays_for_longer_than_a_request_is_sent() -> None:
    with pytest.raises(SettingRefused, match="tombstone_seconds"):
        HttpSettings(expiry_seconds=100.0, tombstone_seconds=100.0)
    assert HttpSettings().tombstone_seconds > HttpSettings().expiry_seconds
