"""What the project says: `[tool.stepwell]` of the nearest pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from stepwell.cli.failures import USAGE, CommandFailed


def find_project_setting(name: str) -> tuple[str, Path] | None:
    """The text of that name, and the folder of the file that says it; None if nothing does."""
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        project = parent / "pyproject.toml"
        if project.is_file():
            setting = _read_setting(project, name)
            return None if setting is None else (setting, parent)
    return None


def _read_setting(project: Path, name: str) -> str | None:
    import tomllib  # lazy: few working directories have a pyproject.toml above them

    try:
        value: object = tomllib.loads(project.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{project} is no TOML: {error}", "correct it", USAGE) from None
    for part in ("tool", "stepwell", name):  # somebody else's tables may be anything
        value = value.get(part) if isinstance(value, dict) else None
    if value is not None and not isinstance(value, str):
        raise CommandFailed(f"{name} in [tool.stepwell] of {project} is not a text", code=USAGE)
    return value
