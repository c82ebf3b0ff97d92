"""Checks the includes of src/ against src/ROOMS. usage: check_rooms.py [src]

A file includes only its own room and the rooms its line of ROOMS allows; LibTorch only in rooms
marked t, c10d only under comm/, spdlog and fmt only in .cpp files of loggers, other libraries only
in .cpp files. A line of ROOMS allows nothing that no file of the room includes, and names no room
that has no files. No two headers of ours have the same name. Prints file:line: what is wrong; exit
status 1 when anything is.
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
ROOM_LINE = re.compile(r"^( *)([a-z_]+)\s*(t?)\s*:([^:]*)(?::([^:]*))?$")
LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")
C10D = "torch/csrc/distributed/"
LIBRARIES = ("yaml-cpp/", "nlohmann/", "rapidjson/", "CLI/", "pcre2", "utf8proc", "xxhash", "curl/",
             "arrow/", "parquet/", "google/protobuf/", "tensorboard/")
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".inc")


class Room:
    """A line of ROOMS. Rooms inside others are named outer/inner."""

    def __init__(self, name, uses, torch, line):
        self.name, self.uses, self.torch, self.line = name, uses, torch, line
        self.used = set()  # of `uses`, what some file includes

    def outer(self):
        return self.name.rpartition("/")[0]


def read_line(path, number, match, outer, rooms):
    """The room of a line, and what is wrong with it."""
    problems = []
    short, torch = match.group(2), bool(match.group(3))
    name = f"{outer}/{short}" if outer else short
    neighbours = (match.group(5) or "").split()
    uses = match.group(4).split() + [f"{outer}/{word}" for word in neighbours]
    for used in uses:
        # Only rooms above may be used: so there can be no cycle.
        if used not in rooms:
            problems.append(f"{path}:{number}: {name} uses {used}, which is not a room above it")
        elif rooms[used].torch and not torch:
            problems.append(f"{path}:{number}: {name} is without t but uses {used}, which has it")
        elif outer and "/" not in used and used not in rooms[outer].uses:
            problems.append(f"{path}:{number}: {name} uses {used}, which {outer} may not")
    if name in rooms:
        problems.append(f"{path}:{number}: {name} is listed twice")
    return Room(name, set(uses), torch, number), problems


def read_rooms(path):
    """{name: Room}, and what is wrong with the file itself."""
    rooms, problems, outer = {}, [], ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = ROOM_LINE.match(line)
        if not match:
            if line.strip() and not line.startswith("#"):
                problems.append(f"{path}:{number}: not a room's line: {line}")
            continue
        if not match.group(1):
            outer = ""
        room, found = read_line(path, number, match, outer, rooms)
        problems += found
        rooms[room.name] = room
        if not match.group(1):
            outer = room.name
    return rooms, problems


def room_of(path, rooms):
    """The name of the innermost room of a path relative to src, or None."""
    parts = path.split("/")[:-1]
    for count in (2, 1):
        name = "/".join(parts[:count])
        if len(parts) >= count and name in rooms:
            return name
    return None


def problem_with_room(include, room, rooms):
    """What is wrong with an include of ours in a file of `room`, or None; notes what is used."""
    other = room_of(include, rooms)
    if other is None:
        return f'"{include}" does not start with a room; use <> for other libraries'
    if other == room.name:
        return None
    for name in (other, other.rpartition("/")[0]):  # a room stands for those inside it
        if name in room.uses:
            room.used.add(name)
            return None
    return f'{room.name} may not include "{include}": src/ROOMS does not let it use {other}'


def problem_with(include, is_quoted, room, is_header, rooms):
    """What is wrong with one include of a file in `room`, or None."""
    if is_quoted:
        return problem_with_room(include, room, rooms)
    if include == "torch/torch.h":
        return "<torch/torch.h> costs half a minute a file; include what is used"
    if include.startswith(C10D) and room.name.split("/")[0] != "comm":
        return f"<{include}>: c10d is seen only under comm/"
    if include.startswith(LIBTORCH) and not room.torch:
        return f"<{include}>: src/ROOMS does not mark {room.name} with t (may include torch)"
    if include.startswith(("spdlog/", "fmt/")) and (room.name != "loggers" or is_header):
        return f"<{include}>: spdlog and fmt are seen only in .cpp files of loggers"
    if include.startswith(LIBRARIES) and is_header:
        return f"<{include}>: libraries are included in .cpp files only"
    return None


def check_file(path, source, rooms, seen):
    """The problems of one source file; counts its room as seen."""
    relative = path.relative_to(source).as_posix()
    name = room_of(relative, rooms)
    if name is None:
        return [f"{path}:1: {path.relative_to(source).parts[0]} is not in src/ROOMS"]
    has_inner = any(room.outer() == name for room in rooms.values())
    if has_inner:
        return [f"{path}:1: {name} has rooms inside; the file belongs into one of them"]
    seen.add(name)
    problems = []
    is_header = path.suffix in (".h", ".cuh")
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            problem = problem_with(match.group(2), match.group(1) == '"', rooms[name], is_header,
                                   rooms)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return problems


def check_edges(path, rooms, seen):
    """Lines of ROOMS that name what no file uses, and rooms without files."""
    problems = []
    for room in rooms.values():
        inner = [other for other in rooms.values() if other.outer() == room.name]
        for other in inner:
            room.used |= {name for name in other.used if "/" not in name}
        if not inner and room.name not in seen:
            problems.append(f"{path}:{room.line}: {room.name} has no files")
            continue
        for unused in sorted(room.uses - room.used):
            problems.append(f"{path}:{room.line}: no file of {room.name} uses {unused}")
    return problems


def check_header_names(source):
    """Headers whose names are the same; headers that stand for a library's have the library's."""
    places = collections.defaultdict(list)
    for path in sorted(source.rglob("*.h")):
        if "gloo_fwd" not in path.parts:
            places[path.name].append(path)
    return [f"{paths[1]}:1: {paths[0]} has the same name"
            for paths in places.values() if len(paths) > 1]


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    rooms, problems = read_rooms(source / "ROOMS")
    seen = set()
    for path in sorted(source.rglob("*")):
        if path.suffix in SOURCES:
            problems += check_file(path, source, rooms, seen)
    if not problems:
        problems = check_edges(source / "ROOMS", rooms, seen) + check_header_names(source)
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
