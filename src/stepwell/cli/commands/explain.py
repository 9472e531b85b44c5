"""`stepwell explain`: say what an error means."""

from __future__ import annotations

import difflib
from dataclasses import asdict

import click

from stepwell.cli.explanations import Explanation, read_explanations
from stepwell.cli.failures import NOT_FOUND, CommandFailed
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.views.output import print_document, print_lines
from stepwell.error_ids import ErrorId


@click.command("explain")
@click.argument("error", metavar="[ID]", required=False)
@json_option
@common_options
def command(error: str | None, json: bool) -> None:
    """Explain an error: what happened, why, and what to do.

    ID is the one at the end of a message, such as SW201, or the name of an error class. Without an
    ID, all of them are listed. Neither a store nor a network is needed.
    """
    explanations = read_explanations()
    if error is None:
        if json:
            print_document(errors=[{"id": item.id, "name": item.name} for item in explanations.values()])
        else:
            print_lines(f"{item.id}  {item.name}" for item in explanations.values())
        return
    explanation = _find(error, explanations)
    if json:
        print_document(**asdict(explanation))
    else:
        title = f"{explanation.id} {explanation.name}"
        print_lines([title, "", explanation.happened, "", f"Why: {explanation.why}", "", f"Do: {explanation.do}"])


def _find(error: str, explanations: dict[str, Explanation]) -> Explanation:
    by_word = {word.lower(): item for item in explanations.values() for word in (item.id, item.name)}
    if error.lower() in by_word:
        return by_word[error.lower()]
    similar = [by_word[word] for word in difflib.get_close_matches(error.lower(), by_word, n=3)]
    meant = " or ".join(dict.fromkeys(f"{item.id} ({item.name})" for item in similar))
    hint = f"did you mean {meant}?" if similar else "stepwell explain lists all ids"
    raise CommandFailed(ErrorId.UNKNOWN_ID, f"there is no error {error!r}", hint, NOT_FOUND)
