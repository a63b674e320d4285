"""Durable, exactly-once publish/subscribe on ZeroMQ."""
