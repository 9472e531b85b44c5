"""What mypy finds in tests/typing, pyright finds too: each `type: ignore` hides an error, and nothing else is one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFIGURATION = Path(__file__).with_name("pyrightconfig.json")


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="pyright runs on node, which is not on the PATH")
def test_pyright_agrees_with_mypy() -> None:
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(CONFIGURATION),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == len(list(CONFIGURATION.parent.glob("*.py")))
