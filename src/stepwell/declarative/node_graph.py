"""The graph of a definition: routes by node, entry nodes, and the routes that close loops. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal

from stepwell.declarative.definition import Definition, Route


class NodeGraph:
    """The graph of a definition: routes by node, entries, loops.

    Computed once and shared by all runs.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.routes = tuple(definition.routes())
        self.ids = tuple(node.id for node in definition.nodes)

    @cached_property
    def fallbacks(self) -> frozenset[str]:
        """The nodes that only run as a fallback for others."""
        used = {node.fallback for node in self.definition.nodes if node.fallback is not None}
        return frozenset(id for id in used if not any(route.target == id for route in self.routes))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The nodes a run starts with.

        Those that no other node leads to; of a cycle that nothing outside leads to, the node that
        was added first.
        """
        entries: list[str] = []
        reached: set[str] = set()
        for id in self.ids:
            if id in reached or id in self.fallbacks:
                continue
            ahead = self._reach(id, self._routes_out)
            # Everything that leads to the node is also reached from it: nothing outside leads in.
            if self._reach(id, self._routes_in) <= ahead:
                entries.append(id)
                reached |= ahead
        return tuple(id for id in self.ids if id in entries)

    @cached_property
    def _routes_out(self) -> Mapping[str, list[Route]]:
        return {id: [route for route in self.routes if route.source == id] for id in self.ids}

    @cached_property
    def _routes_in(self) -> Mapping[str, list[Route]]:
        return {id: [route for route in self.routes if route.target == id] for id in self.ids}

    def _reach(self, id: str, routes: Mapping[str, list[Route]]) -> set[str]:
        """Return the node and everything that is connected with it by these routes."""
        reached, pending = {id}, [id]
        while pending:
            for route in routes[pending.pop()]:
                for end in (route.source, route.target):
                    if end not in reached:
                        reached.add(end)
                        pending.append(end)
        return reached

    @cached_property
    def loop_keys(self) -> frozenset[str]:
        """The keys of the routes that close a loop, in a depth-first search from the entries."""
        # Which route of a cycle counts as the one that leads back depends on where the search
        # starts, so it starts where runs start. Nodes that no entry reaches (fallbacks) come last.
        keys: set[str] = set()
        marks: dict[str, Literal["open", "closed"]] = {}
        for id in (*self.entries, *self.ids):
            if id not in marks:
                self._find_loops(id, marks, keys)
        return frozenset(keys)

    def _find_loops(self, root: str, marks: dict[str, Literal["open", "closed"]], keys: set[str]) -> None:
        # An explicit stack: a chain of 500 nodes must not depend on the recursion limit.
        stack: list[tuple[str, Iterator[Route]]] = [(root, iter(self.out_of(root)))]
        marks[root] = "open"
        while stack:
            id, routes = stack[-1]
            route = next(routes, None)
            if route is None:
                marks[id] = "closed"
                stack.pop()
            # An open node is on the path from the root to here, so this route closes a loop.
            elif marks.get(route.target) == "open":
                keys.add(route.key)
            elif route.target not in marks:
                marks[route.target] = "open"
                stack.append((route.target, iter(self.out_of(route.target))))

    def out_of(self, id: str) -> list[Route]:
        """Return the routes from a node, in the order of the edges."""
        return self._routes_out[id]

    def into(self, id: str) -> list[Route]:
        """Return the routes to a node, in the order of the edges."""
        return self._routes_in[id]

    def downstream(self, id: str) -> set[str]:
        """Return the node and everything that forward routes lead to from it."""
        reached, pending = {id}, [id]
        while pending:
            for route in self.out_of(pending.pop()):
                if route.key not in self.loop_keys and route.target not in reached:
                    reached.add(route.target)
                    pending.append(route.target)
        return reached
