"""The graph of a definition: routes by node, entry nodes, and the routes that close loops. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from stepwell.declarative.definition import Definition, Route

Routes = Mapping[str, list[Route]]  # by node


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
        entries, reached = list[str](), set[str]()
        for id in self.ids:
            if id in reached or id in self.fallbacks:
                continue
            ahead = self._reach(id, self._routes_out)
            # Everything that leads to the node is also reached from it: nothing outside leads in.
            if self._reach(id, self._routes_in) <= ahead:
                entries.append(id)
                reached |= ahead
        return tuple(entries)

    @cached_property
    def _routes_out(self) -> Routes:
        return {id: [route for route in self.routes if route.source == id] for id in self.ids}

    @cached_property
    def _routes_in(self) -> Routes:
        return {id: [route for route in self.routes if route.target == id] for id in self.ids}

    @cached_property
    def _forward_routes(self) -> Routes:
        return {
            id: [route for route in routes if route.key not in self.loop_keys]
            for id, routes in self._routes_out.items()
        }

    def _reach(self, id: str, routes: Routes) -> set[str]:
        """Return the node and everything that is connected with it by these routes."""
        reached, pending = {id}, [id]
        while pending:
            ends = {end for route in routes[pending.pop()] for end in (route.source, route.target)}
            pending += ends - reached
            reached |= ends
        return reached

    @cached_property
    def loop_keys(self) -> frozenset[str]:
        """The keys of the routes that close a loop, in a depth-first search from the entries."""
        # Which route of a cycle counts as the one that leads back depends on where the search
        # starts, so it starts where runs start. Nodes that no entry reaches (fallbacks) come last.
        keys, marks = set[str](), dict[str, Literal["open", "closed"]]()
        for root in (*self.entries, *self.ids):
            # An explicit stack: a chain of 500 nodes must not depend on the recursion limit.
            stack = [] if root in marks else [(root, iter(self.out_of(root)))]
            while stack:
                id, routes = stack[-1]
                marks[id] = "open"
                route = next(routes, None)
                if route is None:
                    marks[id] = "closed"
                    stack.pop()
                # An open node is on the path from the root to here, so this route closes a loop.
                elif marks.get(route.target) == "open":
                    keys.add(route.key)
                elif route.target not in marks:
                    stack.append((route.target, iter(self.out_of(route.target))))
        return frozenset(keys)

    def out_of(self, id: str) -> list[Route]:
        """Return the routes from a node, in the order of the edges."""
        return self._routes_out[id]

    def into(self, id: str) -> list[Route]:
        """Return the routes to a node, in the order of the edges."""
        return self._routes_in[id]

    def downstream(self, id: str) -> set[str]:
        """Return the node and everything that forward routes lead to from it."""
        return self._reach(id, self._forward_routes)
