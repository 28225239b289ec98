"""Prints the times that the tests of faults took, against their bounds: table.py FILE."""

import sys


def read(path):
    """The slowest of each name."""
    rows = {}
    with open(path) as table:
        for line in table:
            name, seconds, bound = line.rstrip("\n").split("\t")
            row = (float(seconds), float(bound))
            rows[name] = max(rows.get(name, row), row, key=lambda each: each[0] / each[1])
    return rows


def main():
    try:
        rows = read(sys.argv[1])
    except FileNotFoundError:
        return
    if not rows:
        return
    width = max(len(name) for name in rows)
    print(f"\n{'seconds from the fault to the last error':<{width}}  {'took':>7}  {'bound':>7}  {'left':>5}")
    for name, (seconds, bound) in sorted(rows.items()):
        print(f"{name:<{width}}  {seconds:7.3f}  {bound:7.3f}  {100 * (1 - seconds / bound):4.0f}%")
    late = sum(seconds > bound for seconds, bound in rows.values())
    print(f"{len(rows)} faults, {late} over their bound")


if __name__ == "__main__":
    main()
