"""What type checkers see of `stepwell.storage`. `__init__.py` lists the same names for Python."""

from stepwell.storage.checkpoint import WorkflowCheckpoint, WorkflowMessage
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.run_list import RunInfo
from stepwell.storage.worker_registry import WorkerInfo

__all__ = [
    "CheckpointStorage",
    "PendingRequest",
    "RunInfo",
    "Seal",
    "WorkerInfo",
    "WorkflowCheckpoint",
    "WorkflowMessage",
]
