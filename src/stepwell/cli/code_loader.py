"""`MODULE:WORKFLOW`: the code that is meant, imported, and what it gives made into a workflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import stepwell
from stepwell.cli.failures import NOT_THIS_CODE, USAGE, CommandFailed

if TYPE_CHECKING:
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.workflows.workflow import Workflow

_WHERE = "it is looked for in the working directory and where Python looks"
_WANTED = "name a workflow, a builder, or a function without arguments that gives one"
_DEBUG = "--debug shows where it happened"


@dataclass(frozen=True)
class Code:
    """What was named, imported and not yet asked for a workflow."""

    name: str
    target: Any

    async def build_workflow(self) -> Workflow:
        """The workflow itself; of one said by the names of its agents, the one that it is built as."""
        return get_workflow(await self.build())

    async def build(self) -> Workflow | AgentWorkflowInstance:
        """What a function gives, awaited if need be, and what a builder builds. Raises CommandFailed."""
        target = self.target
        with redirect_stdout(sys.stderr):  # what it prints is no data of ours
            if _is_function(target):
                target = await self._call(target)
            if not isinstance(target, stepwell.Workflow) and callable(build := getattr(target, "build", None)):
                target = await self._call(build)
        if isinstance(target, stepwell.Workflow):
            return target
        from stepwell.declarative.instance import AgentWorkflowInstance  # lazy: 90 ms, and few workflows are of it

        if isinstance(target, AgentWorkflowInstance):
            return target
        problem = f"{self.name} is no workflow but of class {type(target).__name__}"
        raise CommandFailed(problem, _WANTED, NOT_THIS_CODE)

    async def _call(self, function: Callable[[], Any]) -> Any:
        try:
            result = function()
            return await result if isawaitable(result) else result
        except (Exception, SystemExit) as error:
            problem = f"calling {self.name} raised {type(error).__name__}: {error}"
            raise CommandFailed(problem, _DEBUG, NOT_THIS_CODE) from error


def get_workflow(runnable: Workflow | AgentWorkflowInstance) -> Workflow:
    """What the engine runs."""
    return runnable if isinstance(runnable, stepwell.Workflow) else runnable.workflow


def load_code(name: str) -> Code:
    """What `MODULE:WORKFLOW` names. Importing the module runs its code. Raises CommandFailed.

    Not to be called inside an event loop: a module may begin one of its own when it is imported.
    """
    module, divider, path = name.partition(":")
    if not divider or not module or not path:
        raise CommandFailed(f"{name!r} is not of the form MODULE:WORKFLOW", "for example: shop.orders:workflow", USAGE)
    if "/" in module or module.startswith(".") or module.endswith(".py"):
        hint = "a module is named as in an import, without its folder and .py, for example: shop.orders:workflow"
        raise CommandFailed(f"{module!r} is the name of a file, not of a module", hint, USAGE)
    with redirect_stdout(sys.stderr):
        return Code(name, _get_attribute(_import(module), module, path))


def _is_function(target: Any) -> bool:
    """Whether it is to be called for the workflow: a builder and a workflow are not, whatever else they can do."""
    return callable(target) and (isinstance(target, type) or not hasattr(target, "build"))


def _import(module: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            problem = f"module {module!r} needs {missing.name!r}, which is not installed"
            raise CommandFailed(problem, _DEBUG, NOT_THIS_CODE) from missing
        raise CommandFailed(f"there is no module {module!r}", _WHERE, NOT_THIS_CODE) from None
    except (Exception, SystemExit) as error:  # a script may end where it is not called as one
        problem = f"importing {module!r} raised {type(error).__name__}: {error}"
        raise CommandFailed(problem, _DEBUG, NOT_THIS_CODE) from error


def _get_attribute(target: Any, module: str, path: str) -> Any:
    for part in path.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise CommandFailed(f"module {module!r} has no {path!r}", _WANTED, NOT_THIS_CODE) from None
    return target
