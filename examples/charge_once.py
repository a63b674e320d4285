"""A call that happens once: a worker that charges an order, and a caller that may be killed and run again.

    export PUBSUB_PROXIES_FILE=cluster/proxies
    python charge_once.py worker &
    python charge_once.py order-17 20      # prints: order-17: charged 20, receipt 1
    python charge_once.py order-17 20      # the same receipt: nothing is charged again

The worker's row, its reply and its position are one commit. The caller stores its call before it sends it.
"""

import sys

from pubsub import CallExpired, CallFailed, CallKept, Client, Request, Transaction

TABLE = "create table if not exists charges (receipt integer primary key, call unique, caller, amount integer)"


def charge(request: Request, transaction: Transaction) -> bytes:
    amount = int(request.body)
    if amount <= 0:
        raise ValueError(f"{amount} cannot be charged")  # Tried again, then the caller's CallFailed.
    (row,) = transaction.execute(
        "insert into charges (call, caller, amount) values (?, ?, ?) returning receipt",
        (request.id, request.caller, amount),
    )
    return b"charged %d, receipt %d" % (amount, row[0])


def serve() -> None:
    with Client("billing") as worker:
        with worker.transaction() as transaction:
            transaction.execute(TABLE)
        print("serving", flush=True)
        worker.serve("charge", charge)  # Until it is ended; the call in hand comes again.


def pay(order: str, amount: str) -> int:
    with Client("shop") as shop:
        try:
            reply = shop.call("charge", amount.encode(), id=order, deadline=3600.0, timeout=30.0)
        except CallKept as error:
            print(f"{order}: no reply yet ({error}); run the same command again")
            return 1
        except (CallFailed, CallExpired) as error:
            print(f"{order}: not charged: {error}")
            return 2
        print(f"{order}: {reply.body.decode()}")
        return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        serve()
    else:
        sys.exit(pay(*sys.argv[1:]))
