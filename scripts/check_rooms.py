"""Checks the includes of src/ against src/ROOMS. usage: check_rooms.py [src]

A file includes only its own room and the rooms its line of ROOMS allows; LibTorch only in rooms
marked t, c10d only under comm/, spdlog and fmt only in .cpp files of loggers, other libraries only
in .cpp files. Prints file:line: what is wrong; exit status 1 when anything is.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
ROOM_LINE = re.compile(r"^([a-z_]+)\s*(t?)\s*:(.*)$")
LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")
C10D = "torch/csrc/distributed/"
LIBRARIES = ("yaml-cpp/", "nlohmann/", "CLI/", "pcre2", "utf8proc", "xxhash", "curl/", "arrow/",
             "parquet/")


def read_rooms(path):
    """{room: (rooms it may use, has torch)}, and what is wrong with the file itself."""
    rooms, problems = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = ROOM_LINE.match(line)
        if not match:
            if line.strip() and not line.startswith("#"):
                problems.append(f"{path}:{number}: not a room's line: {line}")
            continue
        name, torch, uses = match.group(1), bool(match.group(2)), match.group(3).split()
        for used in uses:
            # Only rooms above may be used: so there can be no cycle.
            if used not in rooms:
                problems.append(f"{path}:{number}: {name} uses {used}, which is not a room above it")
            elif rooms[used][1] and not torch:
                problems.append(f"{path}:{number}: {name} is without t but uses {used}, which has it")
        if name in rooms:
            problems.append(f"{path}:{number}: {name} is listed twice")
        rooms[name] = (set(uses), torch)
    return rooms, problems


def problem_with(include, is_quoted, room, is_header, rooms):
    """What is wrong with one include of a file in `room`, or None."""
    uses, torch = rooms[room]
    if is_quoted:
        other = include.split("/")[0]
        if "/" not in include or other not in rooms:
            return f'"{include}" does not start with a room; use <> for other libraries'
        if other != room and other not in uses:
            return f'{room} may not include "{include}": src/ROOMS does not let it use {other}'
        return None
    if include == "torch/torch.h":
        return "<torch/torch.h> costs half a minute a file; include what is used"
    if include.startswith(C10D) and room != "comm":
        return f"<{include}>: c10d is seen only under comm/"
    if include.startswith(LIBTORCH) and not torch:
        return f"<{include}>: src/ROOMS does not mark {room} with t (may include torch)"
    if include.startswith(("spdlog/", "fmt/")) and (room != "loggers" or is_header):
        return f"<{include}>: spdlog and fmt are seen only in .cpp files of loggers"
    if include.startswith(LIBRARIES) and is_header:
        return f"<{include}>: libraries are included in .cpp files only"
    return None


def check_file(path, source, rooms):
    """The problems of one source file."""
    room = path.relative_to(source).parts[0]
    if room not in rooms:
        return [f"{path}:1: {room} is not in src/ROOMS"]
    problems = []
    is_header = path.suffix in (".h", ".cuh")
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            problem = problem_with(match.group(2), match.group(1) == '"', room, is_header, rooms)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return problems


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    rooms, problems = read_rooms(source / "ROOMS")
    for path in sorted(source.rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            problems += check_file(path, source, rooms)
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
