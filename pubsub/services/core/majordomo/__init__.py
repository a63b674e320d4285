"""The Majordomo pattern: broker, worker and client (RFC 7, RFC 18), and what a broker tells of itself (RFC 8)."""
