#!/usr/bin/env python3
"""Packs a folder as a wheel: https://packaging.python.org/en/latest/specifications/binary-distribution-format

usage: make_wheel.py FOLDER DESTINATION

FOLDER holds what is installed and NAME-VERSION.dist-info with METADATA and WHEEL. Its list of files with their hashes
(RECORD) is made here. Permissions are kept, times are not: the same files give the same wheel. Prints the wheel's path.
"""

import base64
import hashlib
import os
import pathlib
import sys
import zipfile

EPOCH = (1980, 1, 1, 0, 0, 0)


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write_member(archive, name, content, mode):
    member = zipfile.ZipInfo(name, EPOCH)
    member.external_attr = (0o100000 | mode) << 16
    archive.writestr(member, content, zipfile.ZIP_DEFLATED)


def make_wheel(folder, destination):
    (info,) = folder.glob("*.dist-info")
    tag = next(line[5:] for line in (info / "WHEEL").read_text().splitlines() if line.startswith("Tag: "))
    wheel = destination / f"{info.name[: -len('.dist-info')]}-{tag}.whl"
    record = ""
    # The description of the package goes last, where installers look for it.
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (info in path.parents, path))
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in files:
            name = path.relative_to(folder).as_posix()
            if "," in name:
                sys.exit(f"make_wheel.py: a comma in {name}")
            content = path.read_bytes()
            record += record_line(name, content)
            write_member(archive, name, content, 0o755 if os.access(path, os.X_OK) else 0o644)
        name = f"{info.name}/RECORD"
        write_member(archive, name, record + f"{name},,\n", 0o644)
    return wheel


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(make_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
