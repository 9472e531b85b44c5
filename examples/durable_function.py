"""A durable function: an order is charged, packed and shipped, each exactly once, whatever happens to the process.

    python durable_function.py orders

The argument is a folder for the data. Kill the program anywhere and start it again: it continues where it was.
The ledger stands for systems outside: it has a line for each time one of them was called.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell import SQLiteCheckpointStorage, step, workflow

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "orders")
FOLDER.mkdir(exist_ok=True)
WORK = 0.2  # seconds that a system outside takes


@dataclass
class Order:
    customer: str
    items: list[str]


async def call(what: str) -> None:
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(WORK)


@step
async def charge(customer: str, amount: int, idempotency_key: str = "") -> str:
    await call(f"charge {customer} {amount}")  # a real payment service gets the key, and refuses to book twice
    return f"receipt {idempotency_key}"


@step
async def pack(item: str) -> str:
    await call(f"pack {item}")
    return f"box of {item}"


@step
async def ship(boxes: list[str], customer: str) -> str:
    await call(f"ship {len(boxes)} boxes to {customer}")
    return f"{len(boxes)} boxes are on their way to {customer}"


@workflow(name="orders", checkpoint_storage=SQLiteCheckpointStorage(FOLDER / "runs.db"))
async def process_order(order: Order) -> str:
    await charge(order.customer, 20 * len(order.items))
    boxes = [await pack(item) for item in order.items]
    return await ship(boxes, order.customer)


async def main() -> None:
    order = Order("ada", ["lamp", "teapot", "clock"])
    # The id belongs to the order: however often this line is executed, there is one run of it.
    result = await process_order.run(order, run_id="order-7")
    print(result.get_outputs()[0])


if __name__ == "__main__":
    asyncio.run(main())
