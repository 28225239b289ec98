#!/usr/bin/env python3
"""Checks the links of the project's Markdown pages: files and headings exist. Links to the network are not followed.

Prints one line a finding, `file:line: link: reason`, and exits 1 when there is any. No packages.
"""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(```|~~~)")


def anchor_of(heading):
    """As the common renderers make it: small letters, no punctuation, a hyphen for each blank."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link counts by its text
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", text.strip().lower()))


def lines_of(text):
    """(number, line) of what is neither a code block nor indented code after a blank line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def anchors_of(text):
    anchors = set()
    for _, line in lines_of(text):
        if match := re.match(r"#{1,6} +(.*?) *#*$", line):
            anchor = anchor_of(match.group(1))
            count = 1
            while anchor in anchors:  # a heading that comes again gets a number
                anchor = f"{anchor_of(match.group(1))}-{count}"
                count += 1
            anchors.add(anchor)
        anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return anchors


def findings_of(root, page, texts):
    for number, line in lines_of(texts[page]):
        plain = re.sub(r"`[^`]*`", lambda match: " " * len(match.group(0)), line)
        for match in LINK.finditer(plain):
            link = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if root not in (target, *target.parents):
                yield f"{page.relative_to(root)}:{number}: {link}: leaves the project"
            elif not target.exists():
                yield f"{page.relative_to(root)}:{number}: {link}: there is no such file"
            elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text(encoding="utf-8")):
                yield f"{page.relative_to(root)}:{number}: {link}: no heading makes that anchor"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=False).stdout.split()
    pages = [root / name for name in names] or [each for each in root.rglob("*.md") if "build" not in each.parts]
    texts = {page: page.read_text(encoding="utf-8") for page in pages if page.exists()}
    findings = [finding for page in sorted(texts) for finding in findings_of(root, page, texts)]
    print("\n".join([*findings, f"links: {len(texts)} pages, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
