"""Freelance: callers that speak to several servers with nothing between (the Guide, chapter 4; ZeroMQ RFC 10)."""
