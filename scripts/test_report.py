"""Counts the test cases of a ctest run.

usage: test_report.py RESULTS SKIP_LIMIT

RESULTS holds ctest.xml (ctest --output-junit) and one GoogleTest XML file per test executable. Prints
the failures and the skips with their reasons, and as the last line "N passed, N failed, N skipped".
A test executable that ended without writing its results counts as one failure. Exit status 1 when
anything failed, when no test ran, or when more tests were skipped than SKIP_LIMIT allows.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def read_cases(path):
    """(name, outcome, reason) of every test case in a GoogleTest XML file that was to run."""
    cases = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun":
            continue  # filtered out or disabled
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skip = case.find("failure"), case.find("skipped")
        if failure is not None:
            cases.append((name, "failed", failure.get("message", "")))
        elif skip is not None or case.get("result") == "skipped":
            reason = skip.get("message", "") if skip is not None else ""
            cases.append((name, "skipped", reason.strip().split("\n")[-1]))
        else:
            cases.append((name, "passed", ""))
    return cases


def main():
    results, skip_limit = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    cases = []
    for executable in ElementTree.parse(results / "ctest.xml").getroot().iter("testcase"):
        name = executable.get("name")
        own = []
        own_results = results / f"{name}.xml"
        if own_results.exists():
            try:
                own = read_cases(own_results)
            except ElementTree.ParseError:
                own = []
        has_failed = executable.get("status") not in ("run", "disabled")
        if not own and not own_results.exists():  # not a GoogleTest executable, or it crashed
            outcome = "failed" if has_failed else "passed"
            own = [(name, outcome, "see its output above")]
        elif has_failed and not any(outcome == "failed" for _, outcome, _ in own):
            own.append((name, "failed", "ended without finishing its tests, see its output above"))
        cases += own

    def of(wanted):
        return [(name, reason) for name, outcome, reason in cases if outcome == wanted]

    passed, failed, skipped = of("passed"), of("failed"), of("skipped")
    for name, reason in skipped:
        print(f"skipped: {name}: {reason or 'no reason given'}")
    for name, reason in failed:
        print(f"failed: {name}: {reason.splitlines()[0] if reason else ''}")
    if len(skipped) > skip_limit:
        print(f"{len(skipped)} tests were skipped, scripts/skip_limit allows {skip_limit}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    if failed or not passed or len(skipped) > skip_limit:
        sys.exit(1)


if __name__ == "__main__":
    main()
