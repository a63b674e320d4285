"""Write an order and its message in one transaction, within `atomic()` of Django.

    pubsub relay --install --database postgresql://app@127.0.0.1/shop
    python examples/outgoing/with_django.py postgresql://app@127.0.0.1/shop 17 pear

Beside it runs `pubsub relay --database …`, which sends the message after the commit, once. An order of a fruit that is
not sold rolls back, and no message is sent.
"""

from __future__ import annotations

import sys
from typing import Any

import django
from django.conf import settings
from django.db import connection, models, transaction
from psycopg.conninfo import conninfo_to_dict

from pubsub import write_rows


def set_up(url: str) -> None:
    """Configure Django, as the settings of a project do."""
    parts: dict[str, Any] = conninfo_to_dict(url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts["user"]}
    database |= {"HOST": parts["host"], "PORT": parts.get("port", "5432")}
    settings.configure(DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
    django.setup()


def order(number: int, fruit: str) -> None:
    """Take an order, unless the fruit is not sold."""

    class Order(models.Model):
        number = models.IntegerField(primary_key=True)
        fruit = models.TextField()

        class Meta:
            app_label = "shop"
            db_table = "orders"

    if "orders" not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    with transaction.atomic():  # Commits at the end, and rolls back after an exception.
        Order.objects.create(number=number, fruit=fruit)
        write_rows(connection.connection, "orders", [fruit.encode()], keys=[str(number).encode()])
        if fruit == "durian":
            raise SystemExit("durian is not sold")


if __name__ == "__main__":
    set_up(sys.argv[1])
    order(int(sys.argv[2]), sys.argv[3])
