"""Offer the settings of every role: defaults, files, environment, and default locations."""

from pubsub.config.addresses import ProxyAddress, read_proxies, write_proxies
from pubsub.config.loading import Loaded, load
from pubsub.config.settings import ClientSettings, LivenessSettings, ProxySettings, ServerSettings

__all__ = [
    "ClientSettings",
    "LivenessSettings",
    "Loaded",
    "ProxyAddress",
    "ProxySettings",
    "ServerSettings",
    "load",
    "read_proxies",
    "write_proxies",
]
