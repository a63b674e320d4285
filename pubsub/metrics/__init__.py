"""What a proxy or a server tells a scraper of itself (docs/operations.md, *Metrics*)."""
