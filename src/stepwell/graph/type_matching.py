"""Matching of values and annotations: does a value match, can an edge carry it, which handler is closest?

Whatever cannot be known (a forward reference, an unbound type variable, a form of a newer Python)
counts as Any: a match may be too generous, but no annotation raises an error here.
"""

from collections import OrderedDict, abc, defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import getattr_static
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    Never,
    NewType,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

# The generic types whose arguments are understood. For any other generic class the class alone counts.
_COLLECTIONS: tuple[type, ...] = (
    *(list, set, frozenset, deque),
    *(abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet),
    *(abc.Iterable, abc.Collection, abc.Container, abc.Reversible),
)
_MAPPINGS: tuple[type, ...] = (dict, abc.Mapping, abc.MutableMapping, OrderedDict, defaultdict)
_WITH_ELEMENTS: tuple[type, ...] = (tuple, type, *_COLLECTIONS, *_MAPPINGS)
# iterating over anything else might exhaust it
_SAFE_TO_WALK = (list, tuple, set, frozenset, deque)


def is_instance_of(value: object, annotation: object) -> bool:
    """Return whether a value matches an annotation. Looks into containers, but consumes no iterator."""
    # nearly every message: keep this first
    if type(annotation) is type:
        return isinstance(value, annotation)
    try:
        return _matches(value, annotation)
    except RecursionError:  # a value that contains itself and a recursive alias: no contradiction found
        return True


def is_type_compatible(source: object, target: object) -> bool:
    """Return False only if no value of the type `source` can be taken as `target`."""
    if source is Any or target is Any:
        return True
    try:
        return _fits(source, target, every=False)
    except RecursionError:  # two recursive aliases: no contradiction found
        return True


def flatten(annotation: object) -> tuple[object, ...]:
    """Return the members of a union, seen through Annotated, NewType and aliases.

    Never has no members; anything else that is not a union is its only member.
    """
    if annotation is None:
        return (NoneType,)
    if annotation is Never or annotation is NoReturn:
        return ()
    if isinstance(annotation, NewType):
        return flatten(annotation.__supertype__)
    origin, args = _parts(annotation)
    if origin is Union or origin is UnionType:
        return tuple(member for arg in args for member in flatten(arg))
    if origin is Annotated and args:
        return flatten(args[0])
    # by name, because before Python 3.12 the class comes from typing_extensions, which may be missing
    if type(origin).__name__ == "TypeAliasType":
        return flatten(_alias_value(origin, args))
    return (annotation,)


def most_specific(candidates: Sequence[object]) -> int:
    """Return the index of the closest of several annotations that match one value; the first of equals."""
    # Narrower beats wider. Where neither is narrower (two unrelated bases of one class), the deeper
    # one in the class hierarchy is closer to the value.
    closest = [i for i, own in enumerate(candidates) if not any(_is_narrower(other, own) for other in candidates)]
    return max(closest or range(len(candidates)), key=lambda i: _depth(candidates[i]))


def describe(annotation: object) -> str:
    """Return an annotation as a person would write it: `list[Order]`, `int | None`."""
    if annotation is None or annotation is NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(describe, annotation))}]"
    origin, args = _parts(annotation)
    if origin is annotation or isinstance(annotation, type):
        name = getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", None)
        return str(name or repr(annotation).removeprefix("typing."))
    if origin is Union or origin is UnionType:
        return " | ".join(map(describe, args))
    if origin is Annotated:
        return describe(args[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if _is_bare(annotation):
        return describe(origin)
    return f"{describe(origin)}[{', '.join(map(describe, args)) or '()'}]"


def _members(annotation: object) -> tuple[object, ...]:
    """Return the annotation in normal form: members that are Any, a class, a generic, or a one-value Literal."""
    if isinstance(annotation, type):
        return (annotation,)
    return tuple(simple for member in flatten(annotation) for simple in _simplify(member))


def _simplify(member: object) -> tuple[object, ...]:
    if isinstance(member, TypeVar):
        choices = member.__constraints__ or (Any if member.__bound__ is None else member.__bound__,)
        return tuple(simple for choice in choices for simple in _members(choice))
    origin, args = _parts(member)
    if origin is Literal:
        literal: Any = Literal
        return tuple(literal[value] for value in args)
    if not isinstance(origin, type):
        return (Any,)
    return (origin,) if _is_bare(member) else (member,)


def _parts(annotation: object) -> tuple[Any, tuple[Any, ...]]:
    origin = get_origin(annotation)
    return (annotation if origin is None else origin), get_args(annotation)


def _is_bare(annotation: object) -> bool:
    """Return True for `list` and `typing.List`, but not for `tuple[()]`, which has arguments, if empty ones."""
    return get_origin(annotation) is None or not hasattr(annotation, "__args__")


def _is_open(member: object) -> bool:
    return member is Any or member is object


def _alias_value(alias: Any, args: tuple[object, ...]) -> object:
    try:
        value = alias.__value__
        parameters = getattr(value, "__parameters__", ())
        if not args or not parameters:
            return value
        arguments = dict(zip(alias.__type_params__, args, strict=True))
        return value[tuple(arguments[parameter] for parameter in parameters)]
    except (NameError, AttributeError, TypeError, ValueError, KeyError):  # it names something that does not exist yet
        return Any


def _tuple_shape(member: object) -> tuple[tuple[object, ...], bool]:
    """Return the item types of a tuple annotation, and whether its only one repeats."""
    args = get_args(member)
    if _is_bare(member) or any(get_origin(a) is Unpack or getattr(a, "__unpacked__", False) is True for a in args):
        return (Any,), True
    if len(args) == 2 and args[1] is Ellipsis:
        return args[:1], True
    return args, False


def _matches(value: object, annotation: object) -> bool:
    return any(_matches_member(value, member) for member in _members(annotation))


def _matches_member(value: object, member: object) -> bool:
    if _is_open(member):
        return True
    origin, args = _parts(member)
    if origin is Literal:
        # the type too, because True == 1
        return type(value) is type(args[0]) and bool(value == args[0])
    if _is_typed_dict(origin):
        return isinstance(value, dict) and _matches_typed_dict(value, origin)
    return _is_a(value, origin) and (_is_bare(member) or _contents_match(value, member))


def _contents_match(value: Any, member: object) -> bool:
    origin, args = _parts(member)
    if origin is tuple:
        return _matches_tuple(value, member)
    if origin is type and args:
        return _fits(value, args[0], every=True)
    if origin in _MAPPINGS and len(args) == 2:
        return all(_matches(key, args[0]) and _matches(item, args[1]) for key, item in value.items())
    if origin in _COLLECTIONS and args and isinstance(value, _SAFE_TO_WALK):
        return all(_matches(item, args[0]) for item in value)
    return True


def _matches_tuple(value: tuple[object, ...], member: object) -> bool:
    items, repeats = _tuple_shape(member)
    if repeats:
        return all(_matches(item, items[0]) for item in value)
    return len(value) == len(items) and all(map(_matches, value, items))


def _matches_typed_dict(value: Mapping[Any, object], typed_dict: Any) -> bool:
    hints = _typed_dict_hints(typed_dict)
    return typed_dict.__required_keys__ <= value.keys() and all(
        _matches(value[key], hint) for key, hint in hints.items() if key in value
    )


def _is_a(value: object, cls: Any) -> bool:
    try:
        return isinstance(value, cls)
    except TypeError:  # a Protocol that is not runtime_checkable, or a class with an odd __instancecheck__
        missing = object()
        members = _protocol_members(cls)
        return cls in type(value).__mro__ or all(getattr_static(value, m, missing) is not missing for m in members)


def _is_narrower(annotation: object, other: object) -> bool:
    try:
        return _fits(annotation, other, every=True) and not _fits(other, annotation, every=True)
    except RecursionError:
        return False


def _fits(source: object, target: object, *, every: bool) -> bool:
    """Return whether some value of the source type, or with `every` each of them, is one of the target type."""
    if source is target:
        return True
    sources, targets = _members(source), _members(target)
    fitting = (any(_member_fits(s, t, every=every) for t in targets) for s in sources)
    return all(fitting) if every else not sources or any(fitting)


def _member_fits(source: object, target: object, *, every: bool) -> bool:
    if _is_open(target) or source == target:
        return True
    if _is_open(source):
        return not every
    source_origin, source_args = _parts(source)
    target_origin, target_args = _parts(target)
    if source_origin is Literal:
        return is_instance_of(source_args[0], target)
    if target_origin is Literal:
        return not every and is_instance_of(target_args[0], source)
    if _is_typed_dict(target_origin):
        return _fits_typed_dict(source_origin, target_origin, every=every)
    return _is_subclass(source_origin, target_origin) and (
        _is_bare(target) or _arguments_fit(source, target, every=every)
    )


def _arguments_fit(source: object, target: object, *, every: bool) -> bool:
    """Compare type arguments, given that the source's class is the target's or a subclass of it."""
    source_origin, source_args = _parts(source)
    target_origin, target_args = _parts(target)
    if source_origin in _WITH_ELEMENTS:
        if target_origin is tuple:
            return _tuples_fit(source, target, every=every)
        if target_origin in _MAPPINGS:
            return _each_fits(source_args or (Any, Any), target_args, every=every)
        if target_origin in _WITH_ELEMENTS:
            elements = _tuple_shape(source)[0] if source_origin is tuple else source_args[:1] or (Any,)
            return all(_each_fits((element,), target_args, every=every) for element in elements)
    if source_origin is not target_origin:
        # how a subclass fills in the parameters of its base cannot be seen here
        return True
    if not source_args:
        return not every
    # Without `every`, the other direction counts as well: the parameter may be contravariant
    return _each_fits(source_args, target_args, every=every) or (
        not every and _each_fits(target_args, source_args, every=every)
    )


def _each_fits(sources: tuple[object, ...], targets: tuple[object, ...], *, every: bool) -> bool:
    return len(sources) == len(targets) and all(
        _fits(source, target, every=every) for source, target in zip(sources, targets, strict=True)
    )


def _tuples_fit(source: object, target: object, *, every: bool) -> bool:
    sources, source_repeats = _tuple_shape(source)
    targets, target_repeats = _tuple_shape(target)
    if target_repeats:
        return all(_fits(item, targets[0], every=every) for item in sources)
    if source_repeats:
        return not every and all(_fits(sources[0], item, every=every) for item in targets)
    return _each_fits(sources, targets, every=every)


def _fits_typed_dict(source: Any, target: Any, *, every: bool) -> bool:
    if not _is_typed_dict(source):
        return not every and _is_subclass(source, dict)
    ours, theirs = _typed_dict_hints(source), _typed_dict_hints(target)
    certain = source.__required_keys__ if every else ours.keys()
    return bool(target.__required_keys__ <= certain) and all(
        _fits(ours[key], hint, every=every) for key, hint in theirs.items() if key in ours
    )


def _is_subclass(source: Any, target: Any) -> bool:
    # a Protocol with data members, or one that is not runtime_checkable
    with suppress(TypeError):
        if issubclass(source, target):
            return True
    return _is_protocol(target) and all(_may_have(source, name, target) for name in _protocol_members(target))


def _may_have(cls: Any, name: str, protocol: Any) -> bool:
    # not hasattr: every class has a `__call__` itself, whether or not its instances do
    if any(name in _own_names(base) for base in cls.__mro__):
        return True
    is_data = not callable(getattr_static(protocol, name, None))
    # an attribute without a declaration may still be set by `__init__`, if instances have a `__dict__`
    return is_data and not _is_protocol(cls) and bool(cls.__dictoffset__)


def _depth(annotation: object) -> int:
    """Return how far below `object` the widest member of the annotation is; a Protocol does not count."""
    parts = map(_parts, _members(annotation))
    classes = (type(args[0]) if origin is Literal else origin for origin, args in parts)
    return min(
        (sum(b not in (Any, Generic) and not _is_protocol(b) for b in cls.__mro__) for cls in classes), default=0
    )


def _is_typed_dict(cls: Any) -> bool:
    """Recognise a TypedDict by its attributes, so that those of typing_extensions count too."""
    return isinstance(cls, type) and dict in cls.__mro__ and hasattr(cls, "__required_keys__")


def _typed_dict_hints(typed_dict: Any) -> Mapping[str, object]:
    try:
        return get_type_hints(typed_dict)
    except (NameError, TypeError, AttributeError):  # a forward reference that cannot be resolved here
        return dict.fromkeys(typed_dict.__required_keys__ | typed_dict.__optional_keys__, Any)


# A protocol with a single member shows, by everything else it has, what Python itself adds to one.
@runtime_checkable
class _Blank(Protocol):
    blank: int


_PROTOCOL_MACHINERY = frozenset(vars(_Blank)) | {
    *("__parameters__", "__orig_bases__", "__hash__", "__slots__"),
    *("__protocol_attrs__", "__non_callable_proto_members__"),
}


def _is_protocol(cls: Any) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _protocol_members(protocol: Any) -> set[str]:
    bases = (base for base in protocol.__mro__ if _is_protocol(base) and base.__name__ != "Protocol")
    names = {name for base in bases for name in _own_names(base)}
    return {name for name in names - _PROTOCOL_MACHINERY if not name.startswith("_abc_")}


def _own_names(cls: Any) -> set[str]:
    # since Python 3.14 annotations are evaluated only now
    with suppress(NameError):
        return {*vars(cls), *getattr(cls, "__annotations__", ())}
    return set(vars(cls))
