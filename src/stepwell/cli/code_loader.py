"""Import the workflow that `MODULE:WORKFLOW` names on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from inspect import isawaitable
from operator import attrgetter
from typing import Any

import stepwell
from stepwell.cli.definition_file import EXTENSIONS, builder_of_file
from stepwell.cli.failures import INCOMPATIBLE, USAGE, CommandFailed
from stepwell.cli.type_names import Runnable, Workflow
from stepwell.error_ids import ErrorId

_WHERE = "modules are searched in the working directory and on Python's path"
_WANTED = "name a workflow, a builder, or a function without arguments that returns one"
_DEBUG = "--debug shows the traceback"


@dataclass(frozen=True)
class Code:
    """The imported object that `MODULE:WORKFLOW` names; it may still have to be called or built."""

    name: str
    target: Any
    options: tuple[str, ...] = ()  # of the command line, without which the name does not suffice

    async def build_workflow(self) -> Workflow:
        """Build the workflow that the engine runs. Raises CommandFailed."""
        return get_workflow(await self.build())

    async def build(self) -> Runnable:
        """Call a function, build a builder. Raises CommandFailed."""
        # stdout is for our data: what the user's code prints while it is loaded goes to stderr.
        with redirect_stdout(sys.stderr):
            runnable = await self._build(self.target)
        get_workflow(runnable)._name_code(self.name, *self.options)
        return runnable

    async def _build(self, target: Any) -> Runnable:
        # A builder is not called, even if it is callable; a class always is, even if it has a
        # method `build`.
        if callable(target) and (isinstance(target, type) or not hasattr(target, "build")):
            target = await self._call(target)
        if not isinstance(target, stepwell.Workflow) and callable(build := getattr(target, "build", None)):
            target = await self._call(build)
        if isinstance(target, stepwell.Workflow):
            return target
        from stepwell.declarative.instance import AgentWorkflowInstance  # lazy: 200 ms, most workflows are not one

        if isinstance(target, AgentWorkflowInstance):
            return target
        problem = f"{self.name} is not a workflow, but an instance of {type(target).__name__}"
        raise CommandFailed(ErrorId.NOT_A_WORKFLOW, problem, _WANTED, INCOMPATIBLE)

    async def _call(self, function: Callable[[], Any]) -> Any:
        try:
            result = function()
            return await result if isawaitable(result) else result
        except (Exception, SystemExit) as error:
            problem = f"calling {self.name} raised {type(error).__name__}: {error}"
            raise CommandFailed(ErrorId.CODE_FAILED, problem, _DEBUG, INCOMPATIBLE) from error


def get_workflow(runnable: Runnable) -> Workflow:
    """Return the workflow that the engine runs."""
    return runnable if isinstance(runnable, stepwell.Workflow) else runnable.workflow


def load_code(name: str, agents: str | None = None) -> Code:
    """Import what `MODULE:WORKFLOW` names, which runs its code. Raises CommandFailed.

    `name` may also be a definition file; then `agents` names its agents, as `MODULE:AGENTS`. Do not
    call this inside an event loop: the module may run one of its own when it is imported.
    """
    if name.endswith(EXTENSIONS):
        if agents is None:
            hint = "--agents MODULE:AGENTS, for example: --agents shop.agents:agents"
            raise CommandFailed(ErrorId.WRONG_USAGE, f"{name} names its agents, but does not contain them", hint, USAGE)
        return Code(name, builder_of_file(name, load_code(agents).target), ("--agents", agents))
    if agents is not None:
        problem = f"--agents is for a definition file ({', '.join(EXTENSIONS)}), and {name!r} is not one"
        raise CommandFailed(ErrorId.WRONG_USAGE, problem, code=USAGE)
    module, divider, path = name.partition(":")
    if not divider or not module or not path:
        raise CommandFailed(
            ErrorId.NO_CODE, f"{name!r} is not of the form MODULE:WORKFLOW", "for example: shop.orders:workflow", USAGE
        )
    if "/" in module or module.startswith(".") or module.endswith(".py"):
        hint = "write the module as in an import, without directory and .py, for example: shop.orders:workflow"
        raise CommandFailed(ErrorId.NO_CODE, f"{module!r} is a file name, not a module name", hint, USAGE)
    with redirect_stdout(sys.stderr):
        imported = _import(module)
        try:
            return Code(name, attrgetter(path)(imported))
        except AttributeError:
            raise CommandFailed(ErrorId.NO_CODE, f"module {module!r} has no {path!r}", _WANTED, INCOMPATIBLE) from None


def _import(module: str) -> Any:
    # As `python -m` does. The script `stepwell` is started with its own directory on the path
    # instead.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        # The module itself and its parent packages are what the user misspelt; anything else is a
        # dependency of theirs.
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            problem = f"module {module!r} needs {missing.name!r}, which is not installed"
            raise CommandFailed(ErrorId.CODE_FAILED, problem, _DEBUG, INCOMPATIBLE) from missing
        raise CommandFailed(ErrorId.NO_CODE, f"there is no module {module!r}", _WHERE, INCOMPATIBLE) from None
    # SystemExit: a script without a `__main__` guard may call `sys.exit()` when it is imported.
    except (Exception, SystemExit) as error:
        problem = f"importing {module!r} raised {type(error).__name__}: {error}"
        raise CommandFailed(ErrorId.CODE_FAILED, problem, _DEBUG, INCOMPATIBLE) from error
