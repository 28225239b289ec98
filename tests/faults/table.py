"""Prints the times that the tests of faults took, against their bounds: table.py FILE."""

import sys


def read(path):
    """The slowest of each name; and the tests that were tried again, with the reasons."""
    rows, again = {}, []
    with open(path) as table:
        for line in table:
            name, *fields = line.rstrip("\n").split("\t")
            if name == "tried again":
                again.append(": ".join(fields))
                continue
            row = tuple(map(float, fields))
            rows[name] = max(rows.get(name, row), row, key=lambda each: each[0] / each[1])
    return rows, again


def main():
    try:
        rows, again = read(sys.argv[1])
    except FileNotFoundError:
        return
    for each in again:
        print(f"tried again with a longer T: {each}")
    if not rows:
        return
    width = max(len(name) for name in rows)
    print(f"\n{'seconds from the fault to the last error':<{width}}  {'took':>7}  {'bound':>7}  {'left':>5}")
    for name, (seconds, bound) in sorted(rows.items()):
        print(f"{name:<{width}}  {seconds:7.3f}  {bound:7.3f}  {100 * (1 - seconds / bound):4.0f}%")
    late = sum(seconds > bound for seconds, bound in rows.values())
    print(f"{len(rows)} faults, {late} over their bound; {len(again)} tries failed, and others followed")


if __name__ == "__main__":
    main()
