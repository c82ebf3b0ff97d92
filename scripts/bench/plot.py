#!/usr/bin/env python3
"""Draws what scripts/bench/scale.py measured over length: tokens a second and memory, ours beside the peer's.

Usage: scripts/bench/plot.py SCALE.json OUT.svg      (by a Python with matplotlib)
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: E402

SIDES = [("", "automodel", "#2563a8", "o", "-"), ("peer_", "transformers", "#b4541a", "s", "--")]
PANELS = [("tokens_per_second", "tokens a second"), ("peak_mb", "memory, MB")]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        measured = json.load(file)
    rows = measured["length"]
    lengths = [row["length"] for row in rows]
    plt.rcParams["svg.fonttype"] = "none"  # text stays text
    plt.rcParams["svg.hashsalt"] = "automodel"  # the same numbers make the same file
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (key, title) in zip(axes, PANELS):
        for prefix, name, color, marker, line in SIDES:
            axis.plot(lengths, [row[prefix + key] for row in rows], label=name, color=color, marker=marker,
                      linestyle=line)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(lengths, [str(length) for length in lengths])
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("tokens of a sequence")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(sys.argv[2], metadata={"Date": None, "Title": measured["machine"]})


if __name__ == "__main__":
    main()
