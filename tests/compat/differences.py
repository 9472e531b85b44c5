"""What the door does differently on purpose. The page `docs/coming-from-agent-framework.md` has these rows."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """One intended difference; `programs` are those of the kit that show it."""

    theirs: str
    here: str
    why: str
    programs: tuple[str, ...] = ()


DIFFERENCES = (
    Difference(
        "An edge condition is evaluated when the message is delivered.",
        "It is evaluated when the superstep that sent the message is committed; an error in it fails that superstep.",
        "Who receives a message is stored with it, so that no crash can reroute it.",
        ("condition_that_raises", "selection_of_a_stranger"),
    ),
)
DIFFERENT = {program: difference for difference in DIFFERENCES for program in difference.programs}
