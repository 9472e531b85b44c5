"""Build a form from a JSON schema: a sequence of prompts, and the value that the answers add up to.
Pure.

A form is a generator: it yields prompts, is sent the lines that were typed, and returns the value.
It repeats a prompt until the text is accepted, so the value always matches the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from stepwell.admin.diffs.json_diff import Path
from stepwell.admin.schemas.json_schema import (
    KINDS,
    bounds_of,
    brief,
    choices_of,
    closed,
    fields_of,
    first_items,
    kinds_of,
    members_of,
    named,
    needed_in,
    part_at,
    resolved,
    wanted_text,
)
from stepwell.admin.schemas.validation import UnusableSchema, problems
from stepwell.cli.forms.value_parsers import PARSERS, InvalidInput, make_labels, parse_bool, parse_choice

DEEPEST = 32  # levels: a recursive schema would never end
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    path: Path  # of the value in the response
    wants: str  # what is expected, for people
    # What to enter: the value, the name of a field, whether to give the value, or which type it
    # has.
    asks: Literal["value", "name", "whether", "which"] = "value"
    choices: tuple[str, ...] = ()
    enter: str | None = None  # what an empty line means; None: it is not accepted
    about: str = ""
    problem: str = ""  # why the previous text was not accepted


Form = Generator[Prompt, str, T]


class Unfillable(ValueError):
    """No form can be built from the schema. The message says why."""


# Omit the field; end the list. Not None, which is a JSON value.
LEFT_OUT, END = object(), object()


@dataclass(frozen=True, slots=True)
class Enter:
    """What an empty line means: for people, and as a value."""

    text: str
    value: Any


def build_form(schema: Any) -> Form[Any]:
    """Build the form of a schema.

    Raises Unfillable if it nests too deeply, if it makes no sense, or if no answer can match it.
    """
    filler = _Filler(schema)
    try:
        problems(schema, None)
    except UnusableSchema as error:
        raise Unfillable(str(error)) from None
    while True:
        questions_before = filler.questions
        value = yield from filler.fill(schema, (), None)
        # Each field was checked by itself. This finds what only shows in the whole: dependent
        # fields, unions.
        flaws = problems(schema, value)
        if not flaws:
            return value
        # Without a prompt in this round, the next one would end the same way, forever.
        if filler.questions == questions_before:
            raise Unfillable(f"no input can match the schema: {flaws[0]}")
        filler.complaint = flaws[0]


def ask_yes_or_no(question: str, *, enter: bool) -> Form[bool]:
    """Build a form of one yes-or-no question."""
    default = Enter("yes" if enter else "no", enter)
    return bool((yield from _Filler({}).ask(Prompt((question,), "yes or no"), parse_bool, default)))


def ask_choice(question: str, labels: Sequence[str]) -> Form[int]:
    """Build a form that asks for one of several choices and returns its index."""
    return int((yield from _Filler({}).pick((question,), labels, range(len(labels)), None)))


class _Filler:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._definitions = {key: part_at(root, [key]) for key in ("$defs", "definitions") if part_at(root, [key])}
        self.questions = 0  # prompts so far
        self.complaint = ""  # a problem to show with the next prompt

    def fill(self, schema: Any, path: Path, enter: Enter | None) -> Form[Any]:
        """Ask for the value at a path. `enter` is what an empty line means there."""
        if len(path) > DEEPEST:
            raise Unfillable(f"the schema nests more than {DEEPEST} levels deep")
        schema = resolved(self._root, schema)
        members = members_of(self._root, schema)
        real = [member for member in members if kinds_of(member) != ["null"]]
        # `null` is not offered as a member of its own: Enter, or typing null, stands for it.
        nullable = len(real) < len(members)
        if not members:
            return (yield from self._fill_single(schema, path, enter, nullable=False))
        if not real:
            return None
        if nullable and enter is None:
            enter = Enter("nothing", None)
        if len(real) == 1:
            # `X | None`, by far the commonest union: ask for X directly. The title stands on the
            # union.
            return (yield from self._fill_single({**real[0], **_annotations(schema)}, path, enter, nullable=nullable))
        return (yield from self._ask_whether("one of several", lambda: self._member(real, path), path, enter, nullable))

    def _fill_single(self, schema: dict[str, Any], path: Path, enter: Enter | None, *, nullable: bool) -> Form[Any]:
        """Ask for the value of a schema that is not a union itself, but may have one inside."""
        # `inside` builds the form of the value: only if the person wants to give it, see
        # `_ask_whether`.
        inside: Callable[[], Form[Any]]
        choices, kind = choices_of(schema), _kind(schema)
        if members_of(self._root, schema):
            what, inside = "one of several", lambda: self.fill(schema, path, None)
        elif choices is not None and len(choices) > 1:
            # null gets a label of its own, unless it is one of the choices anyway.
            labels = make_labels([*choices, None] if nullable and None not in choices else choices)
            return (yield from self.pick(path, labels, [*choices, None], enter, _about(schema)))
        elif choices is not None or kind == "null":
            what, inside = named(schema), lambda: _constant(None if choices is None else choices[0])
            if enter is not None and enter.value is LEFT_OUT and not nullable:
                # A constant is never left out, even where it may be: it tells the members of a
                # union apart.
                enter = None
        elif kind == "object":
            what, inside = "fields", lambda: self._fields(schema, path)
        elif kind == "array":
            what, inside = "list", lambda: self._items(schema, path)
        else:
            return (yield from self._scalar(schema, kind, path, enter, nullable))
        return (yield from self._ask_whether(what, inside, path, enter, nullable))

    def _scalar(
        self, schema: Mapping[str, Any], kind: str, path: Path, enter: Enter | None, nullable: bool
    ) -> Form[Any]:
        def parse(text: str) -> Any:
            if nullable and text.strip() == "null":
                return None
            # First the type, then the limits: a message about limits would confuse somebody who
            # typed a word.
            value = PARSERS[kind](text)
            # What only makes sense in the whole schema is checked at the end.
            with suppress(UnusableSchema):
                if flaws := problems({**self._definitions, **schema}, value):
                    raise InvalidInput(flaws[0])
            return value

        return (yield from self.ask(Prompt(path, _describe_wanted(schema, kind), about=_about(schema)), parse, enter))

    def _ask_whether(
        self, what: str, inside: Callable[[], Form[Any]], path: Path, enter: Enter | None, nullable: bool
    ) -> Form[Any]:
        """Ask for a value with parts; if it is optional, first ask whether to give it."""
        # Required: there is nothing to decide.
        if enter is None:
            return (yield from inside())
        omitted = enter.value

        def parse(text: str) -> tuple[bool, Any]:
            if nullable and text.strip() == "null":
                return False, None
            return parse_bool(text), omitted

        choice = yield from self.ask(
            Prompt(path, f"{what}: give it? yes or no", "whether"), parse, Enter(enter.text, (False, omitted))
        )
        return (yield from inside()) if choice[0] else choice[1]

    def _member(self, members: list[dict[str, Any]], path: Path) -> Form[Any]:
        labels = _distinct([named(member) for member in members])
        at = yield from self.pick(path, labels, range(len(members)), None, asks="which")
        return (yield from self.fill(members[at], path, None))

    def _fields(self, schema: Mapping[str, Any], path: Path) -> Form[dict[str, Any]]:
        fields: dict[str, Any] = {}
        needed, declared = needed_in(schema), fields_of(schema)
        for name, inner in declared.items():
            value = yield from self.fill(
                inner, (*path, name), _enter_for_field(resolved(self._root, inner), name in needed)
            )
            if value is not LEFT_OUT:
                fields[name] = value
        # Free names are asked for only if the schema describes them, or describes nothing else.
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping) or (not declared and not closed(schema)):
            yield from self._ask_named_fields(fields, more, path)
        return fields

    def _ask_named_fields(self, fields: dict[str, Any], schema: Any, path: Path) -> Form[None]:
        """Ask for fields with free names, until an empty line."""

        def parse_name(text: str) -> str:
            name = str(PARSERS["string"](text))
            if name in fields:
                raise InvalidInput(f"{name!r} already exists")
            return name

        while True:
            name = yield from self.ask(Prompt(path, "the name of a field", "name"), parse_name, Enter("no more", END))
            if name is END:
                return
            fields[name] = yield from self.fill(schema, (*path, name), None)

    def _items(self, schema: Mapping[str, Any], path: Path) -> Form[list[Any]]:
        items: list[Any] = []
        first, rest = first_items(schema), schema.get("items", {})
        least, most = _size(schema, "minItems", 0), _size(schema, "maxItems", None)
        while most is None or len(items) < most:
            at, questions_before = len(items), self.questions
            # `items: false` ends a list after its prefix: a tuple.
            if at >= len(first) and rest is False:
                break
            enter = None if at < least else Enter("no more", END)
            item = yield from self.fill(first[at] if at < len(first) else rest, (*path, at), enter)
            if item is END:
                break
            if schema.get("uniqueItems") is True and problems({"uniqueItems": True}, [*items, item]):
                self.complaint = f"{brief(item)} is already in the list"
                # Constant items cannot differ: without this check the loop would never end.
                if self.questions == questions_before:
                    raise Unfillable("the items of the list must differ, and only one value is possible")
            else:
                items.append(item)
        return items

    def pick(
        self,
        path: Path,
        labels: Sequence[str],
        values: Sequence[Any],
        enter: Enter | None,
        about: str = "",
        asks: Literal["value", "which"] = "value",
    ) -> Form[Any]:
        prompt = Prompt(path, "one of these", asks, tuple(labels), about=about)
        return (yield from self.ask(prompt, lambda text: values[parse_choice(text, labels)], enter))

    def ask(self, prompt: Prompt, parse: Callable[[str], Any], enter: Enter | None) -> Form[Any]:
        """Ask one question until the text is accepted."""
        self.questions += 1
        prompt = replace(prompt, enter=None if enter is None else enter.text, problem=self.complaint)
        self.complaint = ""
        while True:
            text = yield prompt
            if not text.strip() and enter is not None:
                return enter.value
            try:
                if not text.strip():
                    raise InvalidInput('a value is required; for an empty string, type ""')
                return parse(text)
            except InvalidInput as error:
                prompt = replace(prompt, problem=str(error))


def _constant(value: Any) -> Form[Any]:
    """Return a value without asking."""
    return value
    yield  # never reached: makes this function a generator


def _enter_for_field(schema: Mapping[str, Any], needed: bool) -> Enter | None:
    if "default" not in schema:
        return None if needed else Enter("leave it out", LEFT_OUT)
    default = schema["default"]
    # A field that is not required is left out rather than filled in: the program may have another
    # default by now.
    return Enter(brief(default), default if needed else LEFT_OUT)


def _annotations(union: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in union.items() if key in ("title", "description", "default")}


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema that is not a union; empty if it accepts anything."""
    if kinds := kinds_of(schema):
        return kinds[0]
    # Many schemas leave out `type` where the other keywords imply it.
    if fields_of(schema):
        return "object"
    return "array" if "items" in schema or first_items(schema) else ""


def _describe_wanted(schema: Mapping[str, Any], kind: str) -> str:
    if kind == "string":
        return wanted_text(schema)
    if kind == "boolean":
        return "yes or no"
    limits = bounds_of(schema)
    return f"{KINDS.get(kind, 'JSON, or text')}{' ' if limits else ''}{limits}"


def _about(schema: Mapping[str, Any]) -> str:
    description = schema.get("description")
    return description if isinstance(description, str) else ""


def _size(schema: Mapping[str, Any], keyword: str, otherwise: Any) -> Any:
    size = schema.get(keyword)
    return size if isinstance(size, int) and not isinstance(size, bool) else otherwise


def _distinct(labels: list[str]) -> list[str]:
    # Unions of classes with the same name: a number tells them apart.
    return [label if labels.count(label) == 1 else f"{label} ({at})" for at, label in enumerate(labels, 1)]
