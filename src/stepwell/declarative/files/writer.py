"""Write a definition as data, JSON or YAML.

Everything that cannot be written is reported at once; then nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.declarative.conditions.condition import Condition, ConditionGroup, FieldCondition
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import FIELDS, ONE_OR_MORE, get_defaults
from stepwell.declarative.files.reader import GROUPS, from_data
from stepwell.declarative.files.source_lines import MAX_PROBLEM_LENGTH, TOO_DEEP, UNREADABLE, find_flaw
from stepwell.errors import DefinitionError


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
        # With the type: 1, 1.0 and True are equal, but must not be read back as each other.
        default = defaults.get(spec.attribute, UNREADABLE)
        if type(value) is type(default) and value == default:
            continue
        written = _write_value(value, f"{path}.{spec.name}".removeprefix("."), problems)
        alone = spec.shape is ONE_OR_MORE and isinstance(written, list) and len(written) == 1
        data[spec.name] = written[0] if alone else written
    return data


def _write_value(value: Any, path: str, problems: list[str]) -> Any:
    """Return a value as data. What cannot be written is UNREADABLE in it, after adding a problem."""
    if type(value) in FIELDS:
        return _write_record(value, path, problems)
    match value:
        case FieldCondition(kind=kind, field=field, value=operand):
            if OPERATORS[kind].operand == "nothing":
                return {"kind": kind, "field": field}
            return {"kind": kind, "field": field, "value": _write_value(operand, path, problems)}
        case ConditionGroup(kind=kind, conditions=conditions):
            key = GROUPS[kind]
            inner = conditions if key == "conditions" else conditions[0]
            return {"kind": kind, key: _write_value(inner, f"{path}.{key}", problems)}
        case Condition():
            flaw = (
                f"the condition `{value.describe()}` is a function of this program; "
                f"use conditions such as greater(...) and all_of(...) instead"
            )
        case list() | tuple():
            return [_write_value(item, f"{path}[{number}]", problems) for number, item in enumerate(value)]
        case Mapping():
            data = {str(key): _write_value(item, f"{path}.{key}", problems) for key, item in value.items()}
            problems += [
                f"`{path}` has the key {key!r}, which is not a string" for key in value if not isinstance(key, str)
            ]
            return data
        case _:
            flaw = find_flaw(value)[:MAX_PROBLEM_LENGTH]
    if flaw:
        problems.append(f"`{path}` cannot be written: {flaw}")
        return UNREADABLE
    # A string enum, such as Retention, is written as a plain string.
    return str(value) if isinstance(value, str) else value
