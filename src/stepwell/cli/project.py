"""What the project says: `[tool.stepwell]` of the nearest pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from stepwell.cli.failures import USAGE, CommandFailed


def said_in_project(name: str) -> tuple[str, Path] | None:
    """The text of that name, and the folder of the file that says it; None if nothing does."""
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        project = parent / "pyproject.toml"
        if project.is_file():
            said = _said(project, name)
            return None if said is None else (said, parent)
    return None


def _said(project: Path, name: str) -> str | None:
    import tomllib

    try:
        said: object = tomllib.loads(project.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{project} is no TOML: {error}", "correct it", USAGE) from None
    for part in ("tool", "stepwell", name):  # somebody else's tables may be anything
        said = said.get(part) if isinstance(said, dict) else None
    if said is not None and not isinstance(said, str):
        raise CommandFailed(f"{name} in [tool.stepwell] of {project} is not a text", code=USAGE)
    return said
