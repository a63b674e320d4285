"""The Messenger: acknowledged, retried, de-duplicated messages with callbacks over ZeroMQ."""
