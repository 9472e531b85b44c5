"""Settings of the project: `[tool.stepwell]` in the nearest pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from stepwell.cli.failures import USAGE, CommandFailed


def find_project_setting(name: str) -> tuple[str, Path] | None:
    """Return a setting and the directory of the file it stands in; None if it is not set.

    Only the nearest pyproject.toml counts, in the working directory or above, even if it lacks the
    setting.
    """
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        project = parent / "pyproject.toml"
        if project.is_file():
            setting = _read_setting(project, name)
            return None if setting is None else (setting, parent)
    return None


def _read_setting(project: Path, name: str) -> str | None:
    import tomllib  # lazy: 1 ms, and few stores are used inside a project

    try:
        value: object = tomllib.loads(project.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{project} is not valid TOML: {error}", "fix the file", USAGE) from None
    for part in ("tool", "stepwell", name):  # other tools own this file, too: `tool` may be anything
        value = value.get(part) if isinstance(value, dict) else None
    if value is not None and not isinstance(value, str):
        raise CommandFailed(f"{name} in [tool.stepwell] of {project} is not a string", code=USAGE)
    return value
