"""The executors of one run, and how their state is saved and restored."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.errors import RunError
from stepwell.graph.executor import Executor, keeps_state, persistent_names
from stepwell.model.payload import Pack, Payload


class RunExecutors:
    """The executor instances of one run."""

    def __init__(
        self,
        run_id: str,
        executors: Mapping[str, Executor],
        pack: Pack,
        *,
        are_live: bool = False,
        may_be_restored: bool = True,
    ) -> None:
        self._run_id, self.instances, self._pack = run_id, executors, pack
        # The instances have the state in which the run was left: it need not be restored.
        self.are_live = are_live
        # The last payload of each executor: of a large state, only what changed is packed again.
        self._saved: dict[str, Payload] = {}
        self._needed = frozenset(executors if may_be_restored else _find_retried(executors))
        # Those that are saved after each message: they have state, and somebody may restore it.
        self.stateful = frozenset(id for id in self._needed if keeps_state(executors[id]))

    async def save_all(self) -> dict[str, Payload]:
        # An executor without state has an entry all the same: it says that the executor was there.
        nothing = self._pack({}, "$.executors")
        needed = [id for id in self.instances if id in self._needed]
        return {id: await self.save(id) if id in self.stateful else nothing for id in needed}

    async def save(self, id: str) -> Payload:
        """Return the state of an executor that has one, as a payload."""
        executor = self.instances[id]
        state = await self._read_state(executor)
        if not isinstance(state, dict):
            raise RunError(
                f"on_checkpoint_save of {id!r} must return a dict, not {type(state).__name__}", run_id=self._run_id
            )
        names = persistent_names(type(executor))
        if duplicates := [name for name in names if name in state]:
            raise RunError(
                f"on_checkpoint_save of {id!r} returns {duplicates[0]!r}, which is also a persistent attribute; "
                f"leave it out, persistent attributes save themselves",
                run_id=self._run_id,
            )
        complete = {**state, **{name: getattr(executor, name) for name in names}}
        saved = self._saved[id] = self._pack(complete, f"$.executors.{id}", self._saved.get(id))
        return saved

    async def _read_state(self, executor: Executor) -> Any:
        try:
            state: Any = executor.on_checkpoint_save()
            return await state if inspect.isawaitable(state) else state
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise RunError(
                f"on_checkpoint_save of {executor.id!r} failed in run {self._run_id!r}: {what}", run_id=self._run_id
            ) from error

    async def restore_all(self, states: Mapping[str, Payload]) -> None:
        for id, payload in states.items():
            await self.restore(id, payload)

    async def restore(self, id: str, payload: Payload) -> None:
        executor = self.instances[id]
        state = payload.open()
        for name in persistent_names(type(executor)):
            if name in state:
                setattr(executor, name, state.pop(name))
            else:
                # Declared after the checkpoint was written: it starts with its default.
                vars(executor).pop(name, None)
        try:
            done: Any = executor.on_checkpoint_restore(state)
            if inspect.isawaitable(done):
                await done
        except Exception as error:
            raise RunError(
                f"executor {id!r} could not restore its state in run {self._run_id!r}: {type(error).__name__}: {error}",
                run_id=self._run_id,
            ) from error


def _find_retried(executors: Mapping[str, Executor]) -> Iterable[str]:
    """Yield the executors that a run without storage may have to restore, before it repeats an attempt."""
    for id, executor in executors.items():
        table = executor._handler_table
        if any(executor._limits_for(spec).retry is not None for spec in table.every_spec()):
            yield id
