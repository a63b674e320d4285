"""Write an order and its message in one transaction, in a session of SQLAlchemy.

    pubsub relay --install --database postgresql://app@127.0.0.1/shop
    python examples/outgoing/with_sqlalchemy.py postgresql://app@127.0.0.1/shop 17 pear

Beside it runs `pubsub relay --database …`, which sends the message after the commit, once. An order of a fruit that is
not sold rolls back, and no message is sent.
"""

from __future__ import annotations

import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pubsub import write_rows


class Base(DeclarativeBase):
    """The tables of this program."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    fruit: Mapped[str]


def order(url: str, number: int, fruit: str) -> None:
    """Take an order, unless the fruit is not sold."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():  # Commits at the end, and rolls back after an exception.
        session.add(Order(number=number, fruit=fruit))
        write_rows(session.connection().connection, "orders", [fruit.encode()], keys=[str(number).encode()])
        if fruit == "durian":
            raise SystemExit("durian is not sold")


if __name__ == "__main__":
    order(sys.argv[1], int(sys.argv[2]), sys.argv[3])
