"""A process that is recorded: changes files in every way that Python knows.

python -m power.scribbler <folder>
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def main(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "one").write_text("written, and then cut off")
    os.truncate(root / "a" / "one", 7)
    with open(root / "a" / "one", "ab") as file:
        file.write(b" and appended")
        file.flush()
        os.fsync(file.fileno())
    handle = os.open(root / "a" / "two", os.O_RDWR | os.O_CREAT)
    os.pwrite(handle, b"far out", 100)
    os.writev(handle, [b"in ", b"", b"pieces"])
    os.pwritev(handle, [b"more ", b"pieces"], 50)
    os.posix_fallocate(handle, 0, 300)
    os.ftruncate(handle, 200)
    os.fdatasync(handle)
    os.rename(root / "a" / "two", root / "a" / "moved")
    os.pwrite(handle, b"under its new name", 150)
    os.utime(handle, ns=(10**18, 10**18))
    os.close(handle)
    folder = os.open(root / "a", os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("c", dir_fd=folder)
    os.close(os.open("c/three", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=folder))
    os.rename("c/three", "b/three", src_dir_fd=folder, dst_dir_fd=folder)
    os.link("one", "c/linked", src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
    os.close(folder)
    above = os.open(root, os.O_RDONLY)
    os.fsync(above)
    os.close(above)
    os.chdir(root)
    Path("relative").write_text("to where we are")
    Path("relative").write_text("again")
    os.replace("relative", "a/b/three")
    os.remove(root / "a" / "one")
    shutil.copytree(root / "a" / "b", root.parent / "elsewhere")  # not below the folder
    shutil.rmtree(root / "a" / "b")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
