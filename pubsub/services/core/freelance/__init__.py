"""Freelance: callers that talk to several servers directly (the Guide, chapter 4; ZeroMQ RFC 10)."""
