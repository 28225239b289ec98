"""Prints what the tests of faults took, against their bounds, and which tests were skipped: table.py FILE [JUNIT [--whole]].

FILE is what harness.py and times.cc wrote. JUNIT is ctest's report: from it come the times of those tests that README.md
names here and that live elsewhere, and the skipped tests. With --whole, of a run of all tests, a name that no test has is an error.
"""

import collections
import os
import re
import sys
import xml.etree.ElementTree

BOUND = 120.0  # seconds, of a whole test, or program of tests, that lives elsewhere and has none in README.md: against hanging
# The tests of Python, by the names that README.md gives them.
FILES = {name: f"{name}_test.py" for name in ("death", "ranks", "delay", "calls", "limits", "files", "exit", "why", "bundle")}
FILES |= {name: f"../multihost/{name}_test.py" for name in ("multihost", "interface", "wire", "relay", "addresses", "fabrics", "phases")}
NAMES_SHOWN = 4  # of the tests that were skipped for one reason


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
    """(file, names) of what the cell says between semicolons, without its notes; no file where the tests are not Python's."""
    for part in re.split(r"; ", re.sub(r"\((?!≤).*?\)|\[.*?\]", "", cell)):
        head = re.match(r"(\w+): (.*)", part)
        yield (head[1], head[2]) if head and head[1] in FILES else (None, part)


def patterns(cell):
    """(name, bound) of tests of ctest, or the ends of such, where `…` and `*` stand for anything. `Name (≤ 5 s)` has a bound of its own."""
    named = [found for file, names in parts(cell) if not file for found in re.findall(r"([\w*]+(?:\.[\w*…]+)+)(?: \(≤ ([\d.]+) s\))?", names)]
    return [(name, float(bound or BOUND)) for name, bound in named]


def elsewhere(page, times, skipped=()):
    """Rows as read() makes them, of the slowest test of each name; and the names that no test has. Those of skipped tests are neither."""
    rows, unknown = {}, []
    for number, cell in cells(page):
        for pattern, bound in patterns(cell):
            wanted = re.compile(r"(?:.*[./])?" + re.escape(pattern).replace(r"\*", ".*").replace("…", ".*") + r"(?:/.*)?")
            name = f"row {number}: {pattern}"
            found = [test for test in times if wanted.fullmatch(test)]
            if not found and not any(map(wanted.fullmatch, skipped)):
                unknown.append(name)
            elif not all(test.startswith("faults.") for test in found):  # those keep their own rows
                rows[name] = (max(map(times.get, found)), bound)
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
    """Names of the matrix that no method has: `file: method, method…` and `file: Class.method`. And those without a file."""
    missing = []
    for number, cell in cells(page):
        for file, names in parts(cell):
            if not file:
                missing += [f"row {number}: {name} of no file" for name in re.findall(r"(?<![\w.])[a-z]+(?:_[a-z]+){2,}…?", names)]
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


def ctest_results(path):
    """The times of the tests that ran; and, of those that did not, (name, reason)."""
    times, skipped = {}, []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") in ("run", "fail"):
            times[case.get("name")] = float(case.get("time"))
        else:
            skipped.append((case.get("name"), reason(case)))
    return times, skipped


def reason(case):
    """What a program of GoogleTest, or of ours that ends with 77, says before it is skipped."""
    said = case.findtext("system-out", "")
    found = re.search(r": Skipped\n(.+)|^skipped:? *(.+)", said, re.MULTILINE)
    return (found[1] or found[2]).strip() if found else said.strip().split("\n")[-1] or "no reason given"


def skips(skipped):
    """The tests that did not run, by reason."""
    names = collections.defaultdict(list)
    for name, why in skipped:
        names[why].append(name)
    lines = [f"{len(skipped)} tests were skipped" + (":" if skipped else "")]
    for why, tests in sorted(names.items(), key=lambda each: -len(each[1])):
        more = f" and {len(tests) - NAMES_SHOWN} more" if len(tests) > NAMES_SHOWN else ""
        lines.append(f"  {len(tests):4}  {why}: {', '.join(tests[:NAMES_SHOWN])}{more}")
    return "\n".join(lines) + "\n"


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
    rows, notes, unknown, skipped = {}, [], [], []
    if os.path.exists(sys.argv[1]):
        with open(sys.argv[1]) as lines:
            rows, notes = read(lines)
    has_report = len(sys.argv) > 2 and os.path.exists(sys.argv[2])
    if has_report:
        times, skipped = ctest_results(sys.argv[2])
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")) as page:
            others, unknown = elsewhere(page.read(), times, [name for name, _ in skipped])
        rows |= others
    is_whole = "--whole" in sys.argv[3:]
    if rows or notes or (is_whole and unknown):
        print(text(rows, notes, unknown if is_whole else []), end="")
    if has_report:
        print(skips(skipped), end="")
    sys.exit(1 if is_whole and unknown else 0)


if __name__ == "__main__":
    main()
