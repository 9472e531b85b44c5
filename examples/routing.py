"""The kinds of edge: conditional, switch, multi-selection, fan-out and fan-in."""

import asyncio

from stepwell import Case, Default, WorkflowBuilder, WorkflowContext, WorkflowViz, executor


@executor
async def inbox(letter: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(letter)


@executor
async def archive(letter: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"archived {letter!r}")


@executor
async def sorter(letter: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(letter)


@executor
async def complaints(letter: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(letter)


@executor
async def general(letter: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"general office has {letter!r}")


@executor
async def billing(letter: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message("billing: checked")


@executor
async def shipping(letter: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message("shipping: checked")


@executor
async def answer(reports: list[str], ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"answered, because {reports}")


def is_not_spam(letter: str) -> bool:
    return "prize" not in letter


async def is_complaint(letter: str) -> bool:  # a condition may be async
    return "broken" in letter or "bill" in letter


def who_copies(letter: str, targets: list[str]) -> list[str]:
    return [target for target in targets if target == "archive" or is_not_spam(letter)]


async def main() -> None:
    workflow = (
        WorkflowBuilder(name="post", start_executor=inbox)
        .add_multi_selection_edge_group(inbox, [archive, sorter], who_copies)
        .add_switch_case_edge_group(sorter, [Case(is_complaint, complaints), Default(general)])
        .add_fan_out_edges(complaints, [billing, shipping])
        .add_fan_in_edges([billing, shipping], answer)
        .build()
    )
    print(WorkflowViz(workflow).to_text())
    for letter in ("a broken cup", "a question", "you won a prize"):
        result = await workflow.run(letter)
        print(f"{letter!r}: {'; '.join(result.get_outputs())}")

    guarded = WorkflowBuilder(start_executor=inbox).add_edge(inbox, archive, condition=is_not_spam).build()
    result = await guarded.run("you won a prize")
    print(f"a condition that is false emits a warning: {[e.data for e in result if e.type == 'warning']}")


if __name__ == "__main__":
    asyncio.run(main())
