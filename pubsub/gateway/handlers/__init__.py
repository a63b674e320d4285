"""Handlers of requests, by resource."""
