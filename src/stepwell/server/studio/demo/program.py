"""The workflows of the demo: refunds, a team, agents by name, and a durable function.

It is loaded under the name `stepwell_demo`: classes whose values are stored must not belong to Stepwell.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from stepwell import (
    AgentExecutor,
    Executor,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
    step,
    workflow,
)
from stepwell.agents import AgentExecutorResponse, Calls, Message, ScriptedAgent, Usage
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance
from stepwell.functional import DurableFunction
from stepwell.orchestrations import GroupChatBuilder
from stepwell.storage.built_in_storage import BuiltInStorage

PACE = 0.15  # seconds that a part of the work takes


@dataclass
class Ticket:
    """What a customer wrote."""

    order: str
    customer: str
    amount: float
    text: str
    evidence: list[str] = field(default_factory=list)


@dataclass
class Fact:
    source: str
    text: str


@dataclass
class Proposal:
    """What a person is asked to decide."""

    question: str
    customer: str
    amount: float
    reason: str


@dataclass
class RefundDecision:
    """The decision of a person about a refund."""

    decision: Literal["approve", "reject", "send back"]
    amount: float
    voucher: bool = False
    note: str = ""


@dataclass
class Refund:
    order: str
    amount: float
    voucher: bool


class IntakeDesk(Executor):
    """Keeps the ticket in the state of the run, and sends it to everybody who knows something about it."""

    @handler
    async def accept(self, ticket: Ticket, ctx: WorkflowContext[Ticket]) -> None:
        await asyncio.sleep(PACE)
        ctx.set_state("ticket", ticket)
        ctx.set_tag("customer", ticket.customer)
        await ctx.send_message(ticket)


@executor(id="find_order")
async def find_order(ticket: Ticket, ctx: WorkflowContext[Fact]) -> None:
    text = await ctx.step("order system", _look_up, f"{ticket.order}: paid {ticket.amount:.2f}, delivered 6 days ago")
    await ctx.send_message(Fact("orders", text))


@executor(id="find_customer")
async def find_customer(ticket: Ticket, ctx: WorkflowContext[Fact]) -> None:
    text = await ctx.step("customer register", _look_up, f"{ticket.customer}: 14 orders, no earlier refund")
    await ctx.send_message(Fact("customers", text))


@executor(id="check_fraud")
async def check_fraud(ticket: Ticket, ctx: WorkflowContext[Fact]) -> None:
    await asyncio.sleep(4 * PACE)
    if not ticket.evidence:
        raise LookupError(f"the fraud service does not know order {ticket.order}: it has no evidence")
    await ctx.send_message(Fact("fraud", "score 0.07"))


async def _look_up(answer: str) -> str:
    await asyncio.sleep(PACE)
    return answer


class Desk(Executor):
    """Collects the facts, and has a refund drafted."""

    @handler
    async def collect(self, facts: list[Fact], ctx: WorkflowContext[str]) -> None:
        ctx.set_state("facts", facts)
        await ctx.send_message("Draft a refund. " + "; ".join(f"{fact.source}: {fact.text}" for fact in facts))


class ApprovalDesk(Executor):
    """Asks a person; a draft that is sent back is written again."""

    @handler
    async def ask(self, draft: AgentExecutorResponse, ctx: WorkflowContext[str]) -> None:
        ticket: Ticket = ctx.get_state("ticket")
        question = f"Refund {ticket.amount:.2f} to {ticket.customer}?"
        proposal = Proposal(question, ticket.customer, ticket.amount, draft.agent_response.text)
        await ctx.request_info(proposal, RefundDecision)

    @response_handler
    async def decide(
        self, original_request: Proposal, response: RefundDecision, ctx: WorkflowContext[Refund | str]
    ) -> None:
        ctx.set_state("decision", response)
        ticket: Ticket = ctx.get_state("ticket")
        if response.decision == "send back":
            await ctx.send_message(f"Draft it again: {response.note or 'it needs a better reason'}", target_id="draft")
        elif response.decision == "approve":
            await ctx.send_message(Refund(ticket.order, response.amount, response.voucher), target_id="pay")
        else:
            reason = f": {response.note}" if response.note else ""
            await ctx.send_message(f"No refund for {ticket.order}{reason}", target_id="notify")


@executor(id="pay")
async def pay(refund: Refund, ctx: WorkflowContext[str]) -> None:
    text = await ctx.step("bank transfer", _look_up, f"{refund.amount:.2f} for {refund.order} is on its way")
    await ctx.send_message(text + (", with a voucher" if refund.voucher else ""))


@executor(id="notify")
async def notify(text: str, ctx: WorkflowContext[None, str]) -> None:
    await asyncio.sleep(PACE)
    await ctx.yield_output(text)


def _draft(messages: list[Message]) -> str | Calls:
    if messages[-1].role != "tool":
        return Calls(("search_policy", {"words": "damaged on arrival"}), text="Let me look at the rules.")
    return f"The rules allow it ({messages[-1].text}). I suggest a full refund."


def _price(usage: Usage) -> float:
    return usage.input_tokens * 3e-6 + usage.output_tokens * 15e-6


def build_refunds(storage: BuiltInStorage) -> Workflow:
    """Return the workflow."""
    intake, desk, approval = IntakeDesk("intake"), Desk("desk"), ApprovalDesk("approval")
    tools = {"search_policy": lambda words: f"section 4.2, {words}: full refund within 30 days"}
    writer = ScriptedAgent("writer", _draft, tools=tools, tokens_per_word=3)
    draft = AgentExecutor(writer, id="draft", price=_price)
    experts: list[Executor] = [find_order, find_customer, check_fraud]
    return (
        WorkflowBuilder(name="refunds", start_executor=intake, checkpoint_storage=storage)
        .add_fan_out_edges(intake, experts)
        .add_fan_in_edges(experts, desk)
        .add_edge(desk, draft)
        .add_edge(draft, approval)
        .add_edge(approval, draft)
        .add_edge(approval, pay)
        .add_edge(approval, notify)
        .add_edge(pay, notify)
        .build()
    )


@dataclass
class Reminder:
    invoice: str
    amount: float


@step
async def send_letter(invoice: str, tone: str) -> str:
    """Send a letter about an invoice that is not paid."""
    return f"a {tone} letter about {invoice}"


@workflow(name="reminders")
async def remind(reminder: Reminder, ctx: RunContext) -> str:
    """Remind a customer, twice."""
    await send_letter(reminder.invoice, "friendly")
    await ctx.sleep(timedelta(days=14))
    return await send_letter(reminder.invoice, "firm")


def build_reminders(storage: BuiltInStorage) -> DurableFunction[Reminder, str]:
    """Return a durable function that sleeps for two weeks."""
    return remind.build(checkpoint_storage=storage)


@executor(id="collect")
async def collect(reminder: Reminder, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"{reminder.invoice};{reminder.amount:.2f}")


@executor(id="upload")
async def upload(line: str, ctx: WorkflowContext[None, str]) -> None:
    await asyncio.sleep(PACE)
    await ctx.yield_output(f"uploaded: {line}")


def build_export(storage: BuiltInStorage) -> Workflow:
    """Return a workflow that the worker of the demo does not have."""
    builder = WorkflowBuilder(name="nightly-export", start_executor=collect, checkpoint_storage=storage)
    return builder.add_edge(collect, upload).build()


def _chair(messages: list[Message]) -> str:
    speakers = [message.author_name for message in messages]
    following = next((name for name in ("engineer", "buyer") if name not in speakers), None)
    if following is None:
        return json.dumps({"terminate": True, "reason": "all is said", "final_message": "The switch is ordered."})
    return json.dumps({"terminate": False, "reason": f"{following} knows", "next_speaker": following})


def _buy(messages: list[Message]) -> str | Calls:
    if messages[-1].role == "tool":
        return f"Done: {messages[-1].text}."
    return Calls(("order", {"part": "a switch, 250 V", "count": 40, "supplier": "the usual one"}), text="I order it.")


def build_team(storage: BuiltInStorage) -> Workflow:
    """Return a group chat in which a tool waits for approval."""
    engineer = ScriptedAgent(
        "engineer", lambda messages: "The lamp needs a switch that stands 250 volts.", description="knows the lamp"
    )
    buyer = ScriptedAgent(
        "buyer",
        _buy,
        tools={"order": lambda part, count, supplier: f"ordered {count} of {part}"},
        approve=["order"],
        description="orders parts",
        tokens_per_word=4,
    )
    return GroupChatBuilder(
        name="workshop",
        participants=[engineer, buyer],
        orchestrator_agent=ScriptedAgent("chair", _chair),
        max_rounds=10,
        checkpoint_storage=storage,
    ).build()


def build_articles(storage: BuiltInStorage) -> AgentWorkflowInstance:
    """Return a workflow of named agents with a condition and a loop."""
    writer = ScriptedAgent("writer", lambda messages: f"All about {messages[-1].text}.")
    critic = ScriptedAgent("critic", lambda messages: json.dumps({"score": 8, "comment": "clear and short"}))
    printer = ScriptedAgent("printer", lambda messages: f"printed: {messages[-1].text}")
    return (
        AgentWorkflow.create()
        .with_name("articles")
        .with_checkpointing()
        .with_workflow_store(storage)
        .add_agent("draft", writer, output_key="draft")
        .add_agent("review", critic, input_key="draft", output="structured")
        .add_agent("print", printer, input_key="draft")
        .from_("draft")
        .to("review")
        .from_("review")
        .to("print")
        .build()
    )
