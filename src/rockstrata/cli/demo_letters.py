"""Messages of a small shop, for the demo: orders, payments, shipments and clicks that belong together.

Answers to no RocketMQ class. The same seed gives the same shop.
"""

import random
from collections.abc import Iterator

import msgspec

from rockstrata.message.model import Message

_GOODS = ("lamp", "kettle", "bicycle", "notebook", "headphones", "rucksack", "blanket", "chess set")
_REGIONS = ("north", "south", "east", "west")
QUEUES = 4


def letters(seed: int, first_order: int = 0) -> Iterator[Message]:
    """Messages without end: each order is clicked at, placed, paid and shipped, all under its number."""
    dice = random.Random(seed)
    number = first_order
    while True:
        order, customer = f"order-{number:06d}", f"customer-{dice.randrange(2_000):04d}"
        goods, region = dice.choice(_GOODS), dice.choice(_REGIONS)
        amount = round(dice.lognormvariate(3.5, 0.8), 2)
        queue_id = number % QUEUES
        number += 1
        for _ in range(dice.randrange(4)):
            body = {"page": f"/{goods}", "customer": customer, "ms": dice.randrange(5_000)}
            yield _letter("clicks", queue_id, "VIEW", customer, region, body)
        order_body = {"order": order, "customer": customer, "goods": goods, "amount": amount}
        yield _letter("orders", queue_id, "CREATED", f"{order} {customer}", region, order_body)
        paid = dice.random() < 0.95
        body = {"order": order, "amount": amount, "by": dice.choice(("card", "transfer"))}
        yield _letter("payments", queue_id, "PAID" if paid else "REFUSED", order, region, body)
        if paid:
            body = {"order": order, "parcel": f"{dice.getrandbits(40):010X}", "to": region}
            yield _letter("shipments", queue_id, "SENT", f"{order} {customer}", region, body)
        else:
            yield _letter("orders", queue_id, "CANCELLED", f"{order} {customer}", region, order_body)


def _letter(topic: str, queue_id: int, tags: str, keys: str, region: str, body: dict[str, object]) -> Message:
    return Message.of(
        topic,
        msgspec.json.encode(body),
        queue_id=queue_id,
        tags=tags,
        keys=keys,
        properties={"region": region},
    )
