#!/usr/bin/env python3
"""The page of the library's errors: every text that the sources can make, with cause and cure from site_errors.toml.

    site_errors.py       says which text has no cause and cure, and which of those has no text; exits with 1 if there are any
"""

import ast
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"invalidArgument": "ncclInvalidArgument", "invalidUsage": "ncclInvalidUsage", "systemError": "ncclSystemError",
         "remoteError": "ncclRemoteError", "internalError": "ncclInternalError"}
CALL = re.compile(r"\b(" + "|".join(KINDS) + r')\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


def texts():
    """(kind, file below src/, text); {} stands for what is seen there and then."""
    found = set()
    for path in sorted((ROOT / "src").rglob("*.cc")):
        if path.stem.endswith(("_test", "_fuzz", "_testing")):
            continue
        for kind, literals in CALL.findall(path.read_text(encoding="utf-8")):
            text = "".join(ast.literal_eval(each) for each in re.findall(r'"(?:[^"\\]|\\.)*"', literals))
            found.add((kind, str(path.relative_to(ROOT / "src")), text))
    return sorted(found)


def explained():
    """Each text with its entry of the table or None, and the entries that no text has."""
    entries = tomllib.loads((ROOT / "scripts/site_errors.toml").read_text(encoding="utf-8"))["error"]
    told, used = [], set()
    for kind, file, text in texts():
        number = next((i for i, each in enumerate(entries) if re.search(each["of"], f"{file}: {text}")), None)
        used.add(number)
        told.append((kind, file, text, None if number is None else entries[number]))
    return told, [each["of"] for i, each in enumerate(entries) if i not in used]


def cell(text):
    return text.replace("|", "&#124;").replace("<", "&lt;")


def page():
    told, _ = explained()
    text = ("# Errors\n\nEvery text that the library can give, by its code and its cause, from its sources; `{}` stands for a value "
            "seen. A text that is one word is the system call that failed, and the system's own text follows it. [What the codes "
            "mean](TROUBLESHOOTING.md#a-call-fails); `ncclGetLastError` has the text.\n")
    for kind, name in KINDS.items():
        text += f"\n## {name}\n"
        groups = {}
        for each_kind, file, each, entry in told:
            if each_kind == kind and entry:
                groups.setdefault((entry["cause"], entry["cure"]), []).append((each, file))
        for (cause, cure), members in groups.items():
            text += f"\n**Cause:** {cell(cause)}. **Cure:** {cell(cure)}\n\n| text | from |\n| --- | --- |\n"
            text += "".join(f"| {cell(each)} | `src/{file}` |\n" for each, file in members)
    return text


def main():
    told, unused = explained()
    bare = [f"{file}: {text}" for _, file, text, entry in told if entry is None]
    for each in bare:
        print(f"no cause and cure: {each}")
    for each in unused:
        print(f"no text is like: {each}")
    print(f"errors: {len(told)} texts, {len(bare) + len(unused)} findings")
    sys.exit(1 if bare or unused or not told else 0)


if __name__ == "__main__":
    main()
