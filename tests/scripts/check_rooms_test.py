"""Tests of scripts/check_rooms.py: a small tree with one mistake each."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "check_rooms.py"
ROOMS = "core :\nloggers : core\ntensor t : core\ncomm t : core tensor\n"

WHOLE = {
    "core/text.h": "#include <string>\n",
    "tensor/dtype.h": '#include "core/text.h"\n',
    "comm/group.cpp": '#include "comm/group.h"\n#include "core/text.h"\n#include "tensor/dtype.h"\n'
                      "#include <torch/csrc/distributed/c10d/Store.hpp>\n",
    "loggers/console.cpp": '#include "core/text.h"\n#include <spdlog/spdlog.h>\n',
}


def check(files, rooms=ROOMS):
    """(exit status, lines printed with paths relative to src) for a tree of these files."""
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory)
        (source / "ROOMS").write_text(rooms)
        for name, text in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, source], capture_output=True, text=True)
        return done.returncode, done.stdout.replace(f"{source}/", "").splitlines()


class CheckRooms(unittest.TestCase):
    def assert_problem(self, files, expected, rooms=ROOMS):
        self.assertEqual(check(files, rooms), (1, [expected]))

    def test_allowed_includes_pass(self):
        self.assertEqual(check(WHOLE), (0, []))

    def test_edges_that_no_file_uses(self):
        self.assert_problem({**WHOLE, "tensor/dtype.h": ""}, "ROOMS:3: no file of tensor uses core")

    def test_a_room_without_files(self):
        self.assert_problem(WHOLE, "ROOMS:5: peft has no files", ROOMS + "peft : core\n")

    def test_headers_of_one_name(self):
        self.assert_problem({**WHOLE, "loggers/text.h": ""},
                            "loggers/text.h:1: core/text.h has the same name")

    def test_rooms_inside_rooms(self):
        rooms = "core :\nrun : core\n  read : core\n  check : : read\n"
        files = {"core/text.h": "", "run/read/recipe.h": '#include "core/text.h"\n',
                 "run/check/check.cpp": '#include "run/read/recipe.h"\n'}
        self.assertEqual(check(files, rooms), (0, []))
        self.assert_problem(
            {**files, "run/read/recipe.cpp": '#include "run/check/check.h"\n'},
            'run/read/recipe.cpp:1: run/read may not include "run/check/check.h": src/ROOMS does '
            "not let it use run/check", rooms)
        self.assert_problem(
            {**files, "run/main.cpp": ""},
            "run/main.cpp:1: run has rooms inside; the file belongs into one of them", rooms)

    def test_a_room_that_is_not_allowed(self):
        self.assert_problem(
            {"core/text.h": '\n#include "tensor/dtype.h"\n'},
            'core/text.h:2: core may not include "tensor/dtype.h": src/ROOMS does not let it use '
            "tensor")

    def test_c10d_outside_comm(self):
        self.assert_problem(
            {"tensor/x.cpp": "#include <torch/csrc/distributed/c10d/Store.hpp>\n"},
            "tensor/x.cpp:1: <torch/csrc/distributed/c10d/Store.hpp>: c10d is seen only under comm/")

    def test_torch_in_a_room_without_it(self):
        self.assert_problem(
            {"core/x.cpp": "#include <ATen/ATen.h>\n"},
            "core/x.cpp:1: <ATen/ATen.h>: src/ROOMS does not mark core with t (may include torch)")

    def test_spdlog_in_a_header(self):
        self.assert_problem(
            {"loggers/x.h": "#include <spdlog/spdlog.h>\n"},
            "loggers/x.h:1: <spdlog/spdlog.h>: spdlog and fmt are seen only in .cpp files of loggers")

    def test_a_cycle(self):
        self.assert_problem({}, "ROOMS:1: core uses loggers, which is not a room above it",
                            "core : loggers\nloggers : core\n")


if __name__ == "__main__":
    unittest.main()
