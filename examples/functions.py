"""Functions as executors: async ones on the event loop, plain ones in a thread.

A function's return value, unless it is None, is sent to the next executors. A plain function calls
the methods of its context without `await`: they take effect immediately.
"""

import asyncio
import threading
import time
from dataclasses import dataclass

from stepwell import WorkflowBuilder, WorkflowContext, executor


@dataclass(frozen=True)
class Word:
    text: str
    letters: int


@executor
def split(text: str) -> list[str]:
    return text.split()


@executor
def measure(words: list[str]) -> list[Word]:
    time.sleep(0.05)  # blocks only its own thread
    return [Word(text, len(text)) for text in words]


@executor(id="longest")
async def pick_longest(words: list[Word], ctx: WorkflowContext[None, str]) -> None:
    best = max(words, key=lambda word: word.letters)
    await ctx.yield_output(f"longest: {best.text} ({best.letters})")


@executor
def where(words: list[Word], ctx: WorkflowContext[None, str]) -> None:
    in_thread = threading.current_thread() is not threading.main_thread()
    ctx.yield_output(f"a plain function runs in another thread: {in_thread}")


async def main() -> None:
    workflow = (
        WorkflowBuilder(name="words", start_executor=split)
        .add_chain([split, measure])
        .add_fan_out_edges(measure, [pick_longest, where])
        .build()
    )
    print(workflow)
    result = await workflow.run("a lighthouse keeper counts ships")
    for output in result.get_outputs():
        print(output)


if __name__ == "__main__":
    asyncio.run(main())
