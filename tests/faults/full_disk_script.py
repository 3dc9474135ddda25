"""Measures into a folder on a disk that is too small, then makes room there and tries again.

    unshare --map-root-user --mount python full_disk_script.py MOUNT SIZE KEPT FILL_AFTER LOG AGAIN BENCH [OPTION …]

A tmpfs of SIZE is mounted at MOUNT, which no other process sees. ``BENCH OPTION …`` measures into MOUNT/run. When LOG holds
FILL_AFTER lines (0: never), the disk is filled up to its last two pages. Then the disk is made large, ``bench AGAIN`` is run on
the folder, and the folder is copied to KEPT. Prints how both commands ended, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LEFT_BYTES = 8_192


@dataclass(frozen=True)
class Commands:
    """``bench OPTION …``, and then ``bench AGAIN``."""

    bench: str
    again: str
    options: tuple[str, ...]


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=200)
    return {"status": process.returncode, "out": out, "err": err}


def _start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _fill(disk: Path) -> None:
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "ballast").write_bytes(bytes(max(0, free - _LEFT_BYTES)))


def main(disk: Path, size: str, kept: Path, fill: tuple[int, Path], commands: Commands) -> None:
    fill_after, log = fill
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
    folder = disk / "run"
    process = _start(commands.bench, *commands.options, "--run_dir", str(folder))
    while fill_after and process.poll() is None:
        if len(log.read_text().split()) >= fill_after:
            _fill(disk)
            break
        time.sleep(0.02)
    first = _ended(process)
    left = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
    second = _ended(_start(commands.bench, commands.again, str(folder)))
    if folder.is_dir():
        shutil.copytree(folder, kept)
    print(json.dumps({"first": first, "left": left, "second": second}))


if __name__ == "__main__":
    _, mount, disk_size, copy, lines, log_file, again, bench, *options = sys.argv
    main(Path(mount), disk_size, Path(copy), (int(lines), Path(log_file)), Commands(bench, again, tuple(options)))
