"""The Pythons that Stepwell is tested on: where they are on this machine, and an environment for each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
PATIENCE = 20  # seconds for an interpreter to say its version
ASK = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"  # some systems leave the first out


class NotFound(Exception):
    """An interpreter is not on this machine, or does not answer. The message says where it was looked for."""


@dataclass
class Machine:
    """Looks for interpreters in three places, in this order: the variable PYTHONS, the PATH, pyenv.

    Each is run and asked for its version: a program may be there and not answer, as the shims of pyenv do for versions
    that are not switched on. One that cannot make environments is of no use either.
    """

    environ: Mapping[str, str]
    _versions: dict[Path, str | None] = field(default_factory=dict)

    def find(self, version: str) -> Path:
        """Return an interpreter of that version. Raises NotFound."""
        for program in self._candidates(version):
            if self._version_of(program) == version:
                return program
        raise NotFound(self._message(version))

    def find_all(self, versions: tuple[str, ...] = VERSIONS) -> dict[str, Path]:
        """Return an interpreter for every version. Raises NotFound if one is missing."""
        self._refuse_silent_ones()
        return {version: self.find(version) for version in versions}

    def find_others(self, than: str) -> dict[str, Path]:
        """Return an interpreter for every version but one, as far as they are on this machine."""
        self._refuse_silent_ones()
        found = {}
        for version in VERSIONS:
            if version != than and any(self._version_of(program) == version for program in self._candidates(version)):
                found[version] = self.find(version)
        return found

    def _named(self) -> list[Path]:
        return [Path(name).expanduser() for name in self.environ.get("PYTHONS", "").split()]

    def _candidates(self, version: str) -> Iterator[Path]:
        yield from self._named()
        yield from self._on_path(version)
        yield from self._of_pyenv(version)

    def _on_path(self, version: str) -> list[Path]:
        folders = [Path(folder) for folder in self.environ.get("PATH", "").split(os.pathsep) if folder]
        return [path for folder in folders if os.access(path := folder / f"python{version}", os.X_OK)]

    def _of_pyenv(self, version: str) -> list[Path]:
        return sorted(self._pyenv().glob(f"versions/{version}.*/bin/python"), reverse=True)

    def _pyenv(self) -> Path:
        return Path(self.environ.get("PYENV_ROOT") or Path(self.environ.get("HOME", "~")).expanduser() / ".pyenv")

    def _version_of(self, program: Path) -> str | None:
        if program not in self._versions:
            self._versions[program] = version_of(program)
        return self._versions[program]

    def _refuse_silent_ones(self) -> None:
        """What was named on purpose must work."""
        for program in self._named():
            if self._version_of(program) is None:
                raise NotFound(f"{program}, named in PYTHONS, does not answer, or lacks venv: correct PYTHONS")

    def _message(self, version: str) -> str:
        named = ", ".join(f"{path} ({self._version_of(path)})" for path in self._named()) or "not set"
        silent = [path for path in self._on_path(version) if self._version_of(path) != version]
        on_path = ", ".join(f"{path} does not answer, or lacks venv" for path in silent) or "none"
        return (
            f"Python {version} was not found. Looked at:\n"
            f"  the interpreters named in the variable PYTHONS: {named}\n"
            f"  python{version} on the PATH: {on_path}\n"
            f"  {self._pyenv()}/versions/{version}.*/bin/python: none that answers\n"
            f'Install it, or name it: make matrix PYTHONS="/path/to/python{version} ..."'
        )


def version_of(program: Path) -> str | None:
    """Return the version that an interpreter says it is, such as 3.12; None if it is of no use."""
    try:
        answer = subprocess.run([program, "-c", ASK], capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def set_up(version: str, program: Path) -> Path:
    """Make the environment `.venv-VERSION`, unless it is up to date, and return its interpreter.

    It is set up by the rule of the Makefile that makes `.venv`: from the same lock, by hashes.
    """
    venv = ROOT / f".venv-{version}"
    python = venv / "bin" / "python"
    if version_of(python) != version:  # there is none, or the interpreter that it was made with is gone
        subprocess.run([program, "-m", "venv", "--clear", venv], check=True)
    arguments = [f"VENV={venv.name}", f"PYTHON={program}", f"{venv.name}/.ready"]
    subprocess.run(["make", "--no-print-directory", *arguments], cwd=ROOT, env=_for_make(), check=True)
    return python


def _for_make() -> dict[str, str]:
    """The environment, without what a `make` above would pass on to this one.

    Tests keep compiled modules in a folder of their own: pip need not compile what nobody loads from there.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return {**kept, "PIP_COMPILE": "0"}
