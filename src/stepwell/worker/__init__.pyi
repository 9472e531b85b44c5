"""What type checkers see of `stepwell.worker`. `__init__.py` lists the same names for Python."""

from stepwell.worker.dispatch.polling import Polling
from stepwell.worker.dispatch.procrastinate import Procrastinate
from stepwell.worker.dispatch.protocol import HintReceiver, WorkerDispatcher
from stepwell.worker.worker import Worker

__all__ = [
    "HintReceiver",
    "Polling",
    "Procrastinate",
    "Worker",
    "WorkerDispatcher",
]
