"""What `import holdfast` brings with it: nothing optional, and not a word."""

import subprocess
import sys

OPTIONAL = ("opentelemetry", "pydantic", "psycopg", "click", "rich")
SAY_WHAT_IS_LOADED = "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"


def printed(program: str) -> str:
    """What a program prints, on either stream, in a process of its own."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def packages_after(statement: str) -> set[str]:
    """Packages that are not of the standard library, and loaded once the statement has run."""
    loaded = set(printed(statement + SAY_WHAT_IS_LOADED).split())
    # How Python was built is in a module that is named after the machine.
    return {name for name in loaded - sys.stdlib_module_names if not name.startswith("_sysconfigdata_")}


def test_the_import_loads_nothing_optional() -> None:
    assert packages_after("import holdfast").isdisjoint(OPTIONAL)


def test_the_import_loads_no_package_but_msgspec_and_what_that_loads() -> None:
    assert packages_after("import holdfast") - packages_after("import msgspec") == {"holdfast"}


def test_looking_for_someone_who_watches_a_run_loads_nothing() -> None:
    look = "from holdfast.runtime.telemetry import observer\nassert observer('orders', 'run-1', None, False) is None"
    assert packages_after(look) == packages_after("import holdfast")


def test_the_import_prints_nothing() -> None:
    assert printed("import holdfast") == ""


def test_what_the_library_logs_is_not_printed_unless_the_program_asks_for_it() -> None:
    log = "import holdfast, logging\n{asked}\nlogging.getLogger('holdfast.runtime').warning('a lease was lost')"
    assert printed(log.format(asked="")) == ""
    assert printed(log.format(asked="logging.basicConfig(format='%(message)s')")) == "a lease was lost\n"


def test_the_import_leaves_the_programs_own_logging_alone() -> None:
    assert printed("import holdfast, logging\nprint(logging.getLogger().handlers, logging.raiseExceptions)") == (
        "[] True\n"
    )
