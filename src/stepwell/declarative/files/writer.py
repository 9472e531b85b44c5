"""A definition as data, JSON or YAML. What cannot be written is named, all of it, and then nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not
from stepwell.declarative.conditions.operators import KINDS
from stepwell.declarative.definition import Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import FORMS, Texts, defaults
from stepwell.declarative.files.reader import from_data
from stepwell.declarative.files.source_lines import TOO_DEEP, Problems, scalar
from stepwell.errors import DefinitionError

_REFUSED: Any = object()


def to_data(definition: Definition) -> dict[str, Any]:
    """The definition as plain lists and mappings; what is as it would be anyway is left out.

    Raises DefinitionError, with everything that cannot be written, or that could not be read again.
    """
    problems: list[str] = []
    try:
        data = _record(definition, "", problems)
        from_data(data)
    except RecursionError:
        problems.append(TOO_DEEP)
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems)
    return data


def unexported(definition: Definition) -> tuple[str, ...]:
    """What only this program has, and no file can: callables and what is live in a configuration, one sentence each."""
    problems: list[str] = []
    _record(definition, "", problems)
    return tuple(problems)


def to_json(definition: Definition) -> str:
    """The definition as JSON. Raises DefinitionError like `to_data`."""
    return _fitting(json_text.written(to_data(definition)), json_text.LONGEST)


def to_yaml(definition: Definition) -> str:
    """The definition as YAML, for which the package PyYAML is needed. Raises DefinitionError like `to_data`."""
    return _fitting(yaml_text.written(to_data(definition)), yaml_text.LONGEST)


def _fitting(text: str, longest: int) -> str:
    if len(text) > longest:
        raise DefinitionError(
            f"the definition has {len(text)} characters as a text; at most {longest} can be read again"
        )
    return text


def _record(record: Any, path: str, problems: list[str]) -> dict[str, Any]:
    usual = defaults(type(record))
    data: dict[str, Any] = {}
    for part in FORMS[type(record)]:
        value = getattr(record, part.attribute)
        if part.attribute in usual and _exactly(value, usual[part.attribute]):
            continue
        written = _value(value, f"{path}.{part.name}".removeprefix("."), problems)
        if isinstance(part.shape, Texts) and part.shape.alone and isinstance(written, list) and len(written) == 1:
            written = written[0]
        if written is not _REFUSED:
            data[part.name] = written
    return data


def _exactly(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _value(value: Any, path: str, problems: list[str]) -> Any:
    if type(value) in FORMS:
        return _record(value, path, problems)
    if isinstance(value, Condition):
        return _condition(value, path, problems)
    if isinstance(value, list | tuple):
        return [written for written in _items(value, path, problems) if written is not _REFUSED]
    if isinstance(value, Mapping):
        inner = {str(key): _value(item, f"{path}.{key}", problems) for key, item in value.items()}
        problems += [f"`{path}` has the key {key!r}, which is not a text" for key in value if not isinstance(key, str)]
        return {key: item for key, item in inner.items() if item is not _REFUSED}
    found = Problems()
    plain = scalar(value, None, found)
    problems += [f"`{path}` cannot be written: {problem.text}" for problem in found]
    if found:
        return _REFUSED
    return str(plain.value) if isinstance(value, str) else plain.value  # an enum is written as its text


def _items(values: list[Any] | tuple[Any, ...], path: str, problems: list[str]) -> Iterator[Any]:
    for number, value in enumerate(values):
        yield _value(value, f"{path}[{number}]", problems)


def _condition(condition: Condition, path: str, problems: list[str]) -> Any:
    match condition:
        case FieldCondition(kind=kind, field=field, value=value):
            data = {"kind": kind, "field": field}
            return data if KINDS[kind].takes == "nothing" else {**data, "value": _value(value, path, problems)}
        case AllOf(conditions=inner) | AnyOf(conditions=inner):
            written = list(_items(inner, f"{path}.conditions", problems))
            kind = "all_of" if isinstance(condition, AllOf) else "any_of"
            return _REFUSED if _REFUSED in written else {"kind": kind, "conditions": written}
        case Not(condition=negated):
            said = _condition(negated, f"{path}.condition", problems)
            return _REFUSED if said is _REFUSED else {"kind": "not", "condition": said}
    problems.append(
        f"`{path}` cannot be written: the condition `{condition.describe()}` is a function of this program; "
        f"say it with conditions such as greater(...) and all_of(...)"
    )
    return _REFUSED
