"""Unpacks what the C++ build needs of the pinned wheels into one directory.

usage: unpack_wheels.py [--cuda] DESTINATION WHEEL...

Without --cuda the CUDA libraries of the torch wheel stay out (they are half of it); its Python part
always does.
"""

import argparse
import os
import sys
import zipfile

CPU_LIBRARIES = {"libc10.so", "libgomp.so.1", "libtorch.so", "libtorch_cpu.so"}
PYTHON_LIBRARIES = {"libtorch_python.so", "libshm.so"}
ARROW_LIBRARIES = ("libarrow.so.", "libparquet.so.")


def is_wanted(path, cuda):
    """Whether a member of a wheel belongs into the LibTorch directory."""
    parts = path.split("/")
    if path.endswith("/"):
        return False
    if parts[0].endswith(".dist-info"):
        return "licenses" in parts or parts[-1] in (
            "METADATA", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt", "License.txt")
    if parts[0] == "pyarrow":
        is_header = parts[1] == "include" and parts[2] in ("arrow", "parquet")
        return is_header or (len(parts) == 2 and parts[1].startswith(ARROW_LIBRARIES))
    if parts[0] == "nvidia":
        return not path.endswith(".py")
    if parts[:2] == ["torch", "include"]:
        return True
    if parts[:2] == ["torch", "lib"] and len(parts) == 3:
        if cuda:
            return ".so" in parts[2] and parts[2] not in PYTHON_LIBRARIES
        return parts[2] in CPU_LIBRARIES
    return False


def unpack(wheel, destination, cuda):
    """Extracts the wanted members of one wheel, keeping their permissions; returns their number."""
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not is_wanted(member.filename, cuda):
                continue
            path = archive.extract(member, destination)
            mode = (member.external_attr >> 16) & 0o777
            os.chmod(path, mode | 0o644)
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("destination")
    parser.add_argument("wheels", nargs="+")
    options = parser.parse_args()
    for wheel in options.wheels:
        if unpack(wheel, options.destination, options.cuda) == 0:
            sys.exit(f"unpack_wheels.py: nothing wanted in {wheel}")


if __name__ == "__main__":
    main()
