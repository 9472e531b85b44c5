"""A workflow that does what its message says, act by act: outputs, state, questions, and errands for runs inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler, response_handler


@dataclass(frozen=True)
class Work:
    """What is to be done: `yield`, `append`, `write`, `ask`, or work for a run inside."""

    acts: tuple[str | Work, ...]


@dataclass(frozen=True)
class Question:
    rest: Work


@dataclass(frozen=True)
class Answer:
    yes: bool


class Clerk(Executor):
    """Does one act for each message, and sends itself what is left."""

    @handler
    async def work(self, work: Work, ctx: WorkflowContext[Work, str]) -> None:
        act, rest = work.acts[0], Work(work.acts[1:])
        match act:
            case Work():
                await ctx.send_message(act, target_id="sub")
            case "yield":
                await ctx.yield_output(f"{len(rest.acts)} to go")
            case "append":
                ctx.append_state("log", len(rest.acts))
            case "write":
                text = ctx.get_state("text", "")
                ctx.set_state("text", text[:700] + f"<{len(rest.acts)}>" * 90 + text[700:])
            case "ask":
                await ctx.request_info(Question(rest), Answer)
                return
        if rest.acts:
            await ctx.send_message(rest, target_id="clerk")

    @response_handler
    async def answered(self, question: Question, answer: Answer, ctx: WorkflowContext[Work, str]) -> None:
        await ctx.yield_output(f"{answer.yes} with {len(question.rest.acts)} to go")
        if question.rest.acts:
            await ctx.send_message(question.rest, target_id="clerk")


class Herald(Executor):
    """Yields what the runs inside yield."""

    @handler
    async def tell(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"inside: {text}")


def office(floors: int, storage: Any = None) -> Workflow:
    """A clerk with so many floors of clerks below."""
    name = f"office {floors}"
    builder = WorkflowBuilder(name=name, start_executor=Clerk("clerk"), checkpoint_storage=storage, max_iterations=999)
    builder.add_edge("clerk", "clerk")
    if floors:
        sub = WorkflowExecutor(office(floors - 1), "sub")
        builder.add_edge("clerk", sub).add_edge(sub, Herald("herald"))
    return builder.build()


simple = st.sampled_from(["ask", "append", "yield", "write", "ask"])


def works(floors: int, most: int) -> st.SearchStrategy[Work]:
    act = simple if not floors else simple | works(floors - 1, most)
    return st.lists(act, min_size=1, max_size=most).map(lambda acts: Work(tuple(acts)))
