"""Webhooks: each message of a topic is POSTed to a URL, signed (docs/http.md, *Webhooks*)."""
