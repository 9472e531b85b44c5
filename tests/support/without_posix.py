"""A plugin that runs tests as on a system without POSIX.

    python -m pytest -n 0 -p tests.support.without_posix --basetemp=/tmp/here -k "not file" tests/kernel

What only POSIX has is removed from the interpreter before Stepwell is loaded, and what works otherwise on Windows
works so here. The tools around the tests are loaded before: asyncio, pytest and the libraries have their own ways.
"""

import importlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MODULES = ("crypt", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("fork", "forkpty", "register_at_fork", "wait", "wait3", "wait4", "waitid", "WNOHANG", "WIFSIGNALED"),
        *("killpg", "setsid", "getsid", "getpgid", "getpgrp", "setpgid", "posix_spawn", "posix_spawnp", "nice"),
        *("getuid", "geteuid", "getgid", "getegid", "getgroups", "setuid", "setgid", "chown", "fchown", "lchown"),
        *("fchmod", "mkfifo", "mknod", "pread", "pwrite", "preadv", "pwritev", "readv", "writev", "sendfile"),
        *("fdatasync", "sync", "posix_fallocate", "posix_fadvise", "statvfs", "fstatvfs", "chroot", "openpty"),
        *("uname", "getloadavg", "sysconf", "confstr", "pathconf", "sched_getaffinity", "sched_yield", "getxattr"),
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_DIRECT", "O_TMPFILE"),
        *("pidfd_open", "memfd_create", "eventfd", "copy_file_range", "fwalk"),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGCONT"),
        *("alarm", "setitimer", "pthread_kill", "pthread_sigmask", "sigwait", "siginterrupt", "pause"),
    ),
    time: ("clock_gettime", "clock_settime", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "CLOCK_REALTIME", "tzset"),
}
TOOLS = ("asyncio", "logging.handlers", "multiprocessing", "random", "sqlite3", "subprocess", "numpy", "pydantic")
KERNEL = "/proc"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    for name in TOOLS:  # they look for POSIX when they are loaded
        importlib.import_module(name)
    assert "stepwell" not in sys.modules, "Stepwell was loaded while POSIX was there"
    remove_posix()


def remove_posix() -> None:
    """Make this interpreter one without POSIX, as far as programs can see."""
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails from now on
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # it removes folders by their paths
    if hasattr(os, "process_cpu_count"):  # since Python 3.13
        setattr(os, "process_cpu_count", os.cpu_count)  # noqa: B010 - type checkers look at 3.11
    os.kill = _kill
    os.open = _unless_a_folder(os.open)
    os.stat = _unless_of_the_kernel(os.stat)
    sys.addaudithook(_refuse_files_of_the_kernel)


def _kill(pid: int, number: int) -> None:
    raise AssertionError(f"os.kill({pid}, {number}) ends or interrupts that process on Windows")


def _unless_a_folder(real: Callable[..., int]) -> Callable[..., int]:
    def call(path: Any, *args: Any, **kwargs: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **kwargs)

    return call


def _unless_of_the_kernel(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    def call(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if _is_of_the_kernel(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, *args, **kwargs)

    return call


def _refuse_files_of_the_kernel(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _is_of_the_kernel(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def _is_of_the_kernel(path: object) -> bool:
    return isinstance(path, str | Path) and str(path).startswith(KERNEL)
