"""The page for people from .NET names what their programs name, and nothing of ours that does not exist."""

from __future__ import annotations

import re

import pytest

import stepwell
from stepwell import declarative, workflows
from stepwell.declarative.builder import From
from tests.surfaces.test_docs import DOCS

PAGE = (DOCS / "coming-from-dotnet.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "|---" not in line]
THEIRS, OURS = " ".join(row[0] for row in ROWS), " ".join(row[1] for row in ROWS)

AGENT_FRAMEWORK = """
    CheckpointManager CheckpointInfo Checkpointed<StreamingRun> InProcessExecution StreamAsync WatchStreamAsync
    SuperStepCompletedEvent CompletionInfo Checkpoint RestoreCheckpointAsync ResumeStreamAsync WorkflowCompletedEvent
    ReflectingExecutor IMessageHandler HandleAsync IWorkflowContext OnCheckpointingAsync OnCheckpointRestoredAsync
    QueueStateUpdateAsync ReadStateAsync CancellationToken"""
HPD = """
    AgentWorkflow.Create WithName WithCheckpointing WithJsonWorkflowStore WithInMemoryWorkflowStore AddAgent
    WithOutputKey WithInputKey From To BuildAsync MultiAgentCheckpointRetention.LatestOnly FullHistory
    AgentWorkflowInstance WorkflowStartedEvent WorkflowAgentStartedEvent WorkflowAgentCompletedEvent
    WorkflowAgentSkippedEvent WorkflowEdgeTraversedEvent WorkflowLayerStartedEvent WorkflowLayerCompletedEvent
    WorkflowCompletedEvent WorkflowDiagnosticEvent"""


@pytest.mark.parametrize("name", [*AGENT_FRAMEWORK.split(), *HPD.split()])
def test_every_name_of_their_examples_is_mapped(name: str) -> None:
    assert name in THEIRS


def test_every_name_of_ours_exists() -> None:
    owners = [
        stepwell.Executor,
        stepwell.WorkflowContext,
        stepwell.Workflow,
        workflows.RunHandle,
        workflows.WorkflowRunResult,
        declarative.AgentWorkflow,
        declarative.AgentWorkflowInstance,
        stepwell,
        workflows,
        declarative,
    ]
    called = set(re.findall(r"\b([a-z_]+)\(", OURS)) - {"handle"}
    classes = set(re.findall(r"\b((?:[A-Z][a-z]+)+(?:[A-Z][A-Za-z]+)*)\b`", OURS))
    events = set(re.findall(r"\bWorkflow\w+Event\b", THEIRS)) - {"WorkflowCompletedEvent"}
    methods = {"send_message", "yield_output", "set_state", "get_state", "on_checkpoint_save", "on_checkpoint_restore"}
    for name in called | classes | events | methods | {"resume", "to_json", "to_yaml", "to_mermaid", "checkpoints"}:
        assert any(hasattr(owner, name) for owner in owners) or hasattr(From, name), name
