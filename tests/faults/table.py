"""Prints what the tests of faults took, against their bounds: table.py FILE [JUNIT].

FILE is what harness.py and times.cc wrote. JUNIT is ctest's report: from it come the times of those tests that README.md
names here and that live elsewhere.
"""

import os
import re
import sys
import xml.etree.ElementTree

BOUND = 120.0  # seconds, of a whole test, or program of tests, that lives elsewhere: against hanging
# The tests of Python, by the names that README.md gives them.
FILES = {name: f"{name}_test.py" for name in ("death", "ranks", "delay", "calls", "limits", "exit", "why", "bundle")}
FILES |= {name: f"../multihost/{name}_test.py" for name in ("multihost", "interface", "wire", "relay", "addresses", "fabrics")}


def read(lines):
    """The slowest of each name; and the tests that were tried again or skipped, with the reasons."""
    rows, notes = {}, []
    for line in lines:
        name, *fields = line.rstrip("\n").split("\t")
        if name in ("tried again", "skipped"):
            notes.append((name, ": ".join(fields)))
            continue
        row = tuple(map(float, fields))
        rows[name] = max(rows.get(name, row), row, key=lambda each: each[0] / each[1])
    return rows, notes


def cells(page):
    """(number, names) of each row of the matrix."""
    return re.findall(r"^\| (\d[\d, –]*) \| [^|]* \| (.*) \|$", page, re.MULTILINE)


def parts(cell):
    """(file, names) of what the cell says between semicolons; no file where the tests are not Python's."""
    for part in re.split(r"; ", re.sub(r"\(.*?\)|\[.*?\]", "", cell)):
        head = re.match(r"(\w+): (.*)", part)
        yield (head[1], head[2]) if head and head[1] in FILES else (None, part)


def patterns(cell):
    """Names of ctest, or the ends of such, where `…` and `*` stand for anything."""
    return [name for file, names in parts(cell) if not file for name in re.findall(r"[\w*]+(?:\.[\w*…]+)+", names)]


def elsewhere(page, times):
    """Rows as read() makes them, of the slowest test of each name; and the names that no test has."""
    rows, unknown = {}, []
    for number, cell in cells(page):
        for pattern in patterns(cell):
            wanted = re.compile(r"(?:.*[./])?" + re.escape(pattern).replace(r"\*", ".*").replace("…", ".*") + r"(?:/.*)?")
            name = f"row {number}: {pattern}"
            found = [test for test in times if wanted.fullmatch(test)]
            if not found:
                unknown.append(name)
            elif not all(test.startswith("faults.") for test in found):  # those keep their own rows
                rows[name] = (max(map(times.get, found)), BOUND)
    return rows, unknown


def has_method(text, group, method):
    """Of any class of this source, or of that one or one that it is made of."""
    if not group:
        return re.search(rf"def test_{method}\(", text) is not None
    own = re.search(rf"^class {group}\((.*?)\):\n(.*?)(?=^class |\Z)", text, re.DOTALL | re.MULTILINE)
    if own is None:
        return False
    return has_method(own[2], "", method) or any(has_method(text, base, method) for base in own[1].split(", "))


def missing_python_tests(page, folder):
    """Names of the matrix that no method has: `file: method, method…` and `file: Class.method`."""
    missing = []
    for number, cell in cells(page):
        for file, names in parts(cell):
            if not file:
                continue
            with open(os.path.join(folder, FILES[file])) as source:
                text = source.read()
            for name in re.split(r"[,.]? ", names):
                group, _, method = name.rpartition(".")
                method = re.escape(method).replace("…", r"\w*").replace(r"\*", r"\w*")
                if not method:
                    continue
                if not has_method(text, group, method):
                    missing.append(f"row {number}: {file}: {name}")
    return missing


def ctest_times(path):
    """Of the tests that ran and were not skipped."""
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    return {case.get("name"): float(case.get("time")) for case in cases if case.get("status") in ("run", "fail")}


def text(rows, notes, unknown):
    lines = [f"{why}: {what}" for why, what in notes]
    width = max(map(len, rows), default=0)
    lines.append(f"\n{'seconds from the fault to the last error':<{width}}  {'took':>7}  {'bound':>7}  {'left':>5}")
    for name, (seconds, bound) in sorted(rows.items()):
        left = " OVER" if seconds > bound else f"{100 * (1 - seconds / bound):4.0f}%"
        lines.append(f"{name:<{width}}  {seconds:7.3f}  {bound:7.3f}  {left}")
    lines += [f"{name}: no such test ran" for name in unknown]
    late = sum(seconds > bound for seconds, bound in rows.values())
    again = sum(why == "tried again" for why, _ in notes)
    lines.append(f"{len(rows)} times, {late} over its bound; {again} tries failed, and others followed")
    return "\n".join(lines) + "\n"


def main():
    rows, notes, unknown = {}, [], []
    if os.path.exists(sys.argv[1]):
        with open(sys.argv[1]) as lines:
            rows, notes = read(lines)
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")) as page:
            others, unknown = elsewhere(page.read(), ctest_times(sys.argv[2]))
        rows |= others
    if rows or notes:
        print(text(rows, notes, unknown), end="")


if __name__ == "__main__":
    main()
