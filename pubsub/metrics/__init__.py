"""Metrics of a proxy or a server in Prometheus's format (docs/monitoring.md, *How to scrape*)."""
