"""The files on the page *In production* can be read by their programs, and their commands exist."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from stepwell.cli.app import Program, stepwell
from tests.support.command_line import postgres_address, ran
from tests.support.postgres_server import dsn, fresh_schema
from tests.surfaces.test_docs import DOCS, blocks_of

BLOCKS = blocks_of(DOCS / "production.md")
KUBERNETES = DOCS / "kubernetes.md"


def options_of(command: Sequence[str]) -> dict[str, object]:
    """What the command line makes of a command."""
    program, name, *arguments = command
    assert program.rpartition("/")[2] == "stepwell"
    assert isinstance(stepwell, Program)
    found = stepwell.get_command(None, name)  # type: ignore[arg-type]
    assert found is not None
    return found.make_context(name, list(arguments)).params


def test_the_unit_of_systemd_starts_a_worker_and_waits_for_its_grace() -> None:
    (unit,) = [block for block in BLOCKS if block.language == "ini"]
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.body)
    service = parser["Service"]
    options = options_of(shlex.split(service["ExecStart"]))
    assert (options["workflows"], options["slots"], options["name"]) == (("shop:workflow",), 50, "shop-%i")
    assert options["grace"] == 20
    assert int(service["TimeoutStopSec"]) > 20
    assert service["Restart"] == "always"


def test_the_deployment_of_kubernetes_starts_workers_and_waits_for_their_grace() -> None:
    deployment, job = [yaml.safe_load(block.body) for block in blocks_of(KUBERNETES) if block.language == "yaml"]
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 3)
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = options_of(container["args"])
    assert options["listen"] == ("0.0.0.0", 9100)
    assert options["grace"] == 20 < pod["terminationGracePeriodSeconds"]
    probes = {container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"/live", "/ready"}
    assert job["kind"] == "Job"
    pod = job["spec"]["template"]["spec"]
    assert options_of(pod["initContainers"][0]["args"])
    assert options_of(pod["containers"][0]["args"])["workflow"] == "shop:workflow"


# -------------------------------------------------------------------- the commands, executed


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The folder and the environment of the service: `shop.py` of the page, and a store with one run."""
    (module,) = [block.body for block in BLOCKS if "DATABASE_URL" in block.body]
    (tmp_path / "shop.py").write_text(module)
    with fresh_schema() as schema:
        env = {**os.environ, "STEPWELL_STORE": postgres_address(schema), "DATABASE_URL": dsn()}
        options = {"env": env, "cwd": tmp_path}
        subprocess.run([*STEPWELL, "migrate"], check=True, capture_output=True, **options)  # type: ignore[call-overload]
        order = [*STEPWELL, "submit", "shop:workflow", "--input", "a teapot", "--run-id", "order-1"]
        subprocess.run(order, check=True, capture_output=True, **options)  # type: ignore[call-overload]
        yield {**env, "FOLDER": str(tmp_path)}


STEPWELL = [sys.executable, "-m", "stepwell.cli"]


@contextmanager
def started(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The command of a file, with the program of this environment; it leaves in good order when it is asked to."""
    assert command[0].rpartition("/")[2] == "stepwell"
    process = subprocess.Popen(
        [*STEPWELL, *command[1:]], env=env, cwd=env["FOLDER"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.communicate()


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_driven(env: Mapping[str, str]) -> bool:
    return "order-1" in ran("list", "--status", "completed", "--store", env["STEPWELL_STORE"]).stdout


@pytest.mark.process
def test_the_command_of_systemd_drives_the_shop(shop: dict[str, str]) -> None:
    (unit,) = [block.body for block in BLOCKS if block.language == "ini"]
    (command,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
    with started(shlex.split(command.replace("%i", "1")), shop):
        until(lambda: is_driven(shop))
        assert "shop-1" in ran("workers", "--store", shop["STEPWELL_STORE"]).stdout


@pytest.mark.process
def test_the_command_of_kubernetes_drives_the_shop_and_its_probes_are_answered(shop: dict[str, str]) -> None:
    deployment, _ = [yaml.safe_load(block.body) for block in blocks_of(KUBERNETES) if block.language == "yaml"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = [text.replace("$(POD_NAME)", "shop-worker-x").replace("9100", str(port)) for text in container["args"]]

    def answers(path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.URLError:
            return False

    with started(given, shop):
        for probe in ("livenessProbe", "readinessProbe"):
            until(lambda probe=probe: answers(container[probe]["httpGet"]["path"]))  # type: ignore[misc]
        until(lambda: is_driven(shop))
