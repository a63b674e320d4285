"""A pytest plugin: a proxy and a server on threads, for tests of programs that use pubsub."""

from __future__ import annotations
