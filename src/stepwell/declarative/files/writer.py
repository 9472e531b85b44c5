"""A definition as data, JSON or YAML. What cannot be written is named, all of it, and then nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import FORMS, Texts, defaults
from stepwell.declarative.files.reader import from_data
from stepwell.declarative.files.source_lines import TOO_DEEP, Problems, mark_scalar
from stepwell.errors import DefinitionError

_REFUSED: Any = object()


def to_data(definition: Definition) -> dict[str, Any]:
    """The definition as plain lists and mappings; what is as it would be anyway is left out.

    Raises DefinitionError, with everything that cannot be written, or that could not be read again.
    """
    problems: list[str] = []
    try:
        data = _write_record(definition, "", problems)
        from_data(data)
    except RecursionError:
        problems.append(TOO_DEEP)
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems)
    return data


def find_unexportable(definition: Definition) -> tuple[str, ...]:
    """What only this program has, and no file can: callables and what is live in a configuration, one sentence each."""
    problems: list[str] = []
    _write_record(definition, "", problems)
    return tuple(problems)


def to_json(definition: Definition) -> str:
    """The definition as JSON. Raises DefinitionError like `to_data`."""
    return _check_length(json_text.write(to_data(definition)), json_text.LONGEST)


def to_yaml(definition: Definition) -> str:
    """The definition as YAML, for which the package PyYAML is needed. Raises DefinitionError like `to_data`."""
    return _check_length(yaml_text.write(to_data(definition)), yaml_text.LONGEST)


def _check_length(text: str, longest: int) -> str:
    if len(text) > longest:
        raise DefinitionError(
            f"the definition has {len(text)} characters as a text; at most {longest} can be read again"
        )
    return text


def _write_record(record: Any, path: str, problems: list[str]) -> dict[str, Any]:
    usual = defaults(type(record))
    data: dict[str, Any] = {}
    for part in FORMS[type(record)]:
        value = getattr(record, part.attribute)
        if part.attribute in usual and _is_exactly(value, usual[part.attribute]):
            continue
        written = _write_value(value, f"{path}.{part.name}".removeprefix("."), problems)
        if isinstance(part.shape, Texts) and part.shape.alone and isinstance(written, list) and len(written) == 1:
            written = written[0]
        if written is not _REFUSED:
            data[part.name] = written
    return data


def _is_exactly(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def _write_value(value: Any, path: str, problems: list[str]) -> Any:
    if type(value) in FORMS:
        return _write_record(value, path, problems)
    if isinstance(value, Condition):
        return _write_condition(value, path, problems)
    if isinstance(value, list | tuple):
        return [written for written in _write_items(value, path, problems) if written is not _REFUSED]
    if isinstance(value, Mapping):
        inner = {str(key): _write_value(item, f"{path}.{key}", problems) for key, item in value.items()}
        problems += [f"`{path}` has the key {key!r}, which is not a text" for key in value if not isinstance(key, str)]
        return {key: item for key, item in inner.items() if item is not _REFUSED}
    refused = Problems()
    plain = mark_scalar(value, None, refused)
    problems += [f"`{path}` cannot be written: {problem.text}" for problem in refused]
    if refused:
        return _REFUSED
    return str(plain.value) if isinstance(value, str) else plain.value  # an enum is written as its text


def _write_items(values: list[Any] | tuple[Any, ...], path: str, problems: list[str]) -> Iterator[Any]:
    for number, value in enumerate(values):
        yield _write_value(value, f"{path}[{number}]", problems)


def _write_condition(condition: Condition, path: str, problems: list[str]) -> Any:
    match condition:
        case FieldCondition(kind=kind, field=field, value=value):
            data = {"kind": kind, "field": field}
            return (
                data if OPERATORS[kind].takes == "nothing" else {**data, "value": _write_value(value, path, problems)}
            )
        case AllOf(conditions=inner) | AnyOf(conditions=inner):
            written = list(_write_items(inner, f"{path}.conditions", problems))
            kind = "all_of" if isinstance(condition, AllOf) else "any_of"
            return _REFUSED if _REFUSED in written else {"kind": kind, "conditions": written}
        case Not(condition=negated):
            written = _write_condition(negated, f"{path}.condition", problems)
            return _REFUSED if written is _REFUSED else {"kind": "not", "condition": written}
    problems.append(
        f"`{path}` cannot be written: the condition `{condition.describe()}` is a function of this program; "
        f"say it with conditions such as greater(...) and all_of(...)"
    )
    return _REFUSED
