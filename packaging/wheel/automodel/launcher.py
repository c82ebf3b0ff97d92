"""Starts the native program with the LibTorch of the torch package that is installed."""

import importlib.metadata
import os
import sys

TORCH = "2.11.0"
LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libgomp.so.1")


def fail(text):
    print(f"automodel: {text}", file=sys.stderr)
    sys.exit(4)


def torch_libraries():
    """The folder of torch's libraries, of the version that the program is built with."""
    wanted = f"this build needs torch {TORCH}; install it with: {sys.executable} -m pip install torch=={TORCH}"
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        fail(f"no torch beside it, and {wanted}")
    if torch.version.split("+")[0] != TORCH:
        fail(f"torch {torch.version} is installed in {torch.locate_file('')}, but {wanted}")
    folder = os.path.abspath(torch.locate_file("torch/lib"))
    for name in LIBRARIES:
        if not os.path.exists(os.path.join(folder, name)):
            fail(f"torch {torch.version} has no {name} in {folder}, it is another build than PyPI's; {wanted}")
    return folder


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "automodel")
    others = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = torch_libraries() + (":" + others if others else "")
    os.execv(program, ["automodel", *sys.argv[1:]])
