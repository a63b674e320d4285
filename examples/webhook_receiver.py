"""A receiver of webhooks that has each message once; it needs Python and nothing else.

    python webhook_receiver.py 9000 received.db
    pubsub webhook add orders billing http://127.0.0.1:9000/ --secret $SECRET

The secret is in the variable SECRET. The gateway delivers a message again if it did not see the answer: its ID is
stored in the transaction of its effect.
"""

import base64
import hashlib
import hmac
import os
import signal
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

TOLERANCE_SECONDS = 300
BODY_BYTES_MAX = 16 << 20


def verified(headers: dict[str, str], body: bytes, secret: bytes) -> bool:
    """Whether a delivery is signed with the secret, and recent (Standard Webhooks)."""
    try:
        sent, at = headers["webhook-id"], int(headers["webhook-timestamp"])
        signatures = headers["webhook-signature"].split()
    except (KeyError, ValueError):
        return False
    signed = hmac.new(secret, f"{sent}.{at}.".encode() + body, hashlib.sha256).digest()
    ours = "v1," + base64.b64encode(signed).decode()
    known = [hmac.compare_digest(ours, signature) for signature in signatures]
    return any(known) and abs(time.time() - at) < TOLERANCE_SECONDS


class Receiver(BaseHTTPRequestHandler):
    secret = base64.b64decode(os.environ["SECRET"].removeprefix("whsec_"))
    store: sqlite3.Connection

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        if length > BODY_BYTES_MAX:
            self.answer(413)
            return
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not verified(headers, body, self.secret):
            self.answer(401)
            return
        with self.store:  # One transaction: the ID and the effect, or none.
            new = self.store.execute("insert or ignore into seen values (?)", (headers["webhook-id"],)).rowcount
            if new:
                self.store.execute("insert into orders (body) values (?)", (body,))
        self.answer(204)  # After the commit: an answer means that the message need not come again.

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    store = sqlite3.connect(sys.argv[2])
    store.executescript(
        "create table if not exists seen (id text primary key); create table if not exists orders (body blob);"
    )
    Receiver.store = store
    with HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
