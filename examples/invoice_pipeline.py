"""An invoice pipeline: three checks side by side for each invoice, and only what passes all of them is paid.

    python invoice_pipeline.py invoices

The argument is a folder for the data. Kill the program anywhere and start it again: checks that have finished are
not repeated, and nothing is paid twice. The ledger has a line for each call of a system outside.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell import SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "invoices")
FOLDER.mkdir(exist_ok=True)
SUPPLIERS = {"Kelp & Co": "registered", "Lamp Works": "registered"}


@dataclass(frozen=True)
class Invoice:
    number: str
    supplier: str
    cents: int


@dataclass(frozen=True)
class Finding:
    invoice: Invoice
    check: str
    passed: bool


async def call(what: str, seconds: float = 0.2) -> None:
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(seconds)


@executor(id="receive")
async def receive(invoice: Invoice, ctx: WorkflowContext[Invoice]) -> None:
    await ctx.send_message(invoice)


@executor(id="supplier")
async def check_supplier(invoice: Invoice, ctx: WorkflowContext[Finding]) -> None:
    await ctx.step("look up", call, f"{invoice.number} supplier")
    await ctx.send_message(Finding(invoice, "supplier", invoice.supplier in SUPPLIERS))


@executor(id="limit")
async def check_limit(invoice: Invoice, ctx: WorkflowContext[Finding]) -> None:
    await ctx.step("look up", call, f"{invoice.number} limit")
    await ctx.send_message(Finding(invoice, "limit", invoice.cents <= 100_000))


@executor(id="fraud")
async def check_fraud(invoice: Invoice, ctx: WorkflowContext[Finding]) -> None:
    await ctx.step("ask", call, f"{invoice.number} fraud", 0.5)  # the slowest of the three
    await ctx.send_message(Finding(invoice, "fraud", invoice.cents != 99_999))


@executor(id="pay")
async def pay(findings: list[Finding], ctx: WorkflowContext[None, str]) -> None:
    invoice, failed = findings[0].invoice, [finding.check for finding in findings if not finding.passed]
    if failed:
        await ctx.yield_output(f"{invoice.number}: refused because of {' and '.join(failed)}")
        return
    await ctx.step("transfer", call, f"{invoice.number} paid")
    await ctx.yield_output(f"{invoice.number}: paid {invoice.cents / 100:.2f}")


CHECKS = [check_supplier, check_limit, check_fraud]
storage = SQLiteCheckpointStorage(FOLDER / "runs.db")
pipeline = (
    WorkflowBuilder(name="invoices", start_executor=receive, checkpoint_storage=storage)
    .add_fan_out_edges(receive, CHECKS)
    .add_fan_in_edges(CHECKS, pay)
    .build()
)
INVOICES = [Invoice("i-1", "Kelp & Co", 4_200), Invoice("i-2", "Nobody", 900), Invoice("i-3", "Lamp Works", 180_000)]


async def main() -> None:
    for result in await asyncio.gather(*(pipeline.run(invoice, run_id=invoice.number) for invoice in INVOICES)):
        print(result.get_outputs()[0])


if __name__ == "__main__":
    asyncio.run(main())
