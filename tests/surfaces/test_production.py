"""The files on the page *In production* can be read by their programs, and their commands exist."""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Sequence

import yaml  # type: ignore[import-untyped]

from stepwell.cli.app import Program, stepwell
from tests.surfaces.test_docs import DOCS, blocks_of

BLOCKS = blocks_of(DOCS / "production.md")


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
    (deployment,) = [yaml.safe_load(block.body) for block in BLOCKS if block.language == "yaml"]
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 3)
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = options_of(container["args"])
    assert options["listen"] == ("0.0.0.0", 9100)
    assert options["grace"] == 20 < pod["terminationGracePeriodSeconds"]
    probes = {container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"/live", "/ready"}
