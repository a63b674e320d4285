"""The gateway: topics for every language that speaks HTTP (docs/http.md, *The gateway*)."""
