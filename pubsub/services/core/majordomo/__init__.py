"""The Majordomo pattern: broker, worker and client (RFC 7, RFC 18), and the services of the broker itself (RFC 8)."""
