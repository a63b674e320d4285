"""Write a handler's rows by a session of SQLAlchemy, in the transaction of the client.

    python examples/databases/handler_with_sqlalchemy.py postgresql://app@127.0.0.1/shop cluster/proxies

The session uses the connection of the handler's transaction. Its `commit` sends the rows to PostgreSQL and ends
nothing: the client commits them together with its position and its puts. A payment that fails rolls all of it back.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pubsub.client import Client, Message, Transaction


class Base(DeclarativeBase):
    """The tables of this program."""


class Payment(Base):
    """A payment for an order."""

    __tablename__ = "payments"
    order: Mapped[str] = mapped_column(primary_key=True)
    fruit: Mapped[str]


lent = threading.local()
engine = create_engine("postgresql+psycopg://", creator=lambda: lent.connection, poolclass=NullPool)
for ending in ("do_commit", "do_rollback", "do_close"):  # The client ends the transaction.
    setattr(engine.dialect, ending, lambda _: None)


def pay(message: Message, transaction: Transaction) -> None:
    """Take the payment for an order: one row, or an exception."""
    lent.connection = transaction.connection
    with Session(engine) as session:
        session.add(Payment(order=message.key.decode(), fruit=message.body.decode()))
        session.commit()
    if message.body == b"durian":
        raise ValueError("durian is not sold")


def work(client: Client, timeout: float) -> int:
    """Pay all orders that come until none comes for `timeout` seconds; return their number."""
    with client.transaction() as transaction:
        lent.connection = transaction.connection
        Base.metadata.create_all(engine)
    paid = 0
    while taken := client.process("orders", pay, timeout=timeout):
        paid += taken
    return paid


if __name__ == "__main__":
    proxies = [line for line in Path(sys.argv[2]).read_text().splitlines() if not line.startswith("#")]
    with Client("payments", database=sys.argv[1], proxies=proxies) as opened:
        opened.subscribe("orders", start="earliest")
        work(opened, timeout=60.0)
