"""What a proxy or a server tells a scraper of itself (docs/monitoring.md, *How to scrape*)."""
