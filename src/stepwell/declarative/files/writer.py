"""Write a definition as data, JSON or YAML.

Everything that cannot be written is reported at once; then nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import FIELDS, ONE_OR_MORE, get_defaults
from stepwell.declarative.files.reader import from_data
from stepwell.declarative.files.source_lines import MAX_PROBLEM_LENGTH, TOO_DEEP, find_flaw
from stepwell.errors import DefinitionError

# Stands for a value that cannot be written; its problem has been added. None is a valid value.
_UNWRITABLE: Any = object()


def to_data(definition: Definition) -> dict[str, Any]:
    """Write a definition as plain lists and mappings, without values that equal their defaults.

    Raises DefinitionError with everything that cannot be written or could not be read again.
    """
    problems: list[str] = []
    try:
        data = _write_record(definition, "", problems)
        # What is written must be readable, so the result is read once.
        from_data(data)
    except RecursionError:
        problems.append(TOO_DEEP)
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems)
    return data


def to_json(definition: Definition) -> str:
    """Write a definition as JSON. Raises DefinitionError like `to_data`."""
    return _check_length(json_text.write(to_data(definition)), json_text.MAX_LENGTH)


def to_yaml(definition: Definition) -> str:
    """Write a definition as YAML; needs the package PyYAML.

    Raises DefinitionError like `to_data`.
    """
    return _check_length(yaml_text.write(to_data(definition)), yaml_text.MAX_LENGTH)


def _check_length(text: str, limit: int) -> str:
    if len(text) > limit:
        raise DefinitionError(f"the definition has {len(text)} characters; at most {limit} can be read again")
    return text


def _write_record(record: Any, path: str, problems: list[str]) -> dict[str, Any]:
    defaults = get_defaults(type(record))
    data: dict[str, Any] = {}
    for spec in FIELDS[type(record)]:
        value = getattr(record, spec.attribute)
        if spec.attribute in defaults and _is_exactly(value, defaults[spec.attribute]):
            continue
        written = _write_value(value, f"{path}.{spec.name}".removeprefix("."), problems)
        if spec.shape is ONE_OR_MORE and isinstance(written, list) and len(written) == 1:
            written = written[0]
        if written is not _UNWRITABLE:
            data[spec.name] = written
    return data


def _is_exactly(value: Any, other: Any) -> bool:
    # With the type: 1, 1.0 and True are equal, but must not be read back as each other.
    return type(value) is type(other) and bool(value == other)


def _write_value(value: Any, path: str, problems: list[str]) -> Any:
    if type(value) in FIELDS:
        return _write_record(value, path, problems)
    if isinstance(value, Condition):
        return _write_condition(value, path, problems)
    if isinstance(value, list | tuple):
        return [written for written in _write_items(value, path, problems) if written is not _UNWRITABLE]
    if isinstance(value, Mapping):
        inner = {str(key): _write_value(item, f"{path}.{key}", problems) for key, item in value.items()}
        problems += [
            f"`{path}` has the key {key!r}, which is not a string" for key in value if not isinstance(key, str)
        ]
        return {key: item for key, item in inner.items() if item is not _UNWRITABLE}
    if flaw := find_flaw(value):
        problems.append(f"`{path}` cannot be written: {flaw[:MAX_PROBLEM_LENGTH]}")
        return _UNWRITABLE
    # A string enum, such as Retention, is written as a plain string.
    return str(value) if isinstance(value, str) else value


def _write_items(values: list[Any] | tuple[Any, ...], path: str, problems: list[str]) -> Iterator[Any]:
    for number, value in enumerate(values):
        yield _write_value(value, f"{path}[{number}]", problems)


def _write_condition(condition: Condition, path: str, problems: list[str]) -> Any:
    match condition:
        case FieldCondition(kind=kind, field=field, value=value):
            data = {"kind": kind, "field": field}
            return (
                data if OPERATORS[kind].operand == "nothing" else {**data, "value": _write_value(value, path, problems)}
            )
        case AllOf(conditions=inner) | AnyOf(conditions=inner):
            written = list(_write_items(inner, f"{path}.conditions", problems))
            kind = "all_of" if isinstance(condition, AllOf) else "any_of"
            return _UNWRITABLE if _UNWRITABLE in written else {"kind": kind, "conditions": written}
        case Not(condition=negated):
            written = _write_condition(negated, f"{path}.condition", problems)
            return _UNWRITABLE if written is _UNWRITABLE else {"kind": "not", "condition": written}
    problems.append(
        f"`{path}` cannot be written: the condition `{condition.describe()}` is a function of this program; "
        f"use conditions such as greater(...) and all_of(...) instead"
    )
    return _UNWRITABLE
