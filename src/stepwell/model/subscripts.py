"""Classes that can be subscripted in annotations: `AgentResponse[Report]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    ValueT = TypeVar("ValueT", default=Any)

    class Subscriptable(Generic[ValueT]):
        """A class with a type parameter for type checkers; at run time the parameter means nothing."""

else:
    from types import GenericAlias
    from typing import TypeVar

    ValueT = TypeVar("ValueT")

    # Not `typing.Generic`: an instance of a frozen class with slots cannot note which parameter made it.
    class Subscriptable:
        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)
