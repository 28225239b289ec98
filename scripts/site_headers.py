"""The C headers as a page: what `site.py` makes of their comments and declarations, a heading a declaration.

In the headers a comment that begins a line belongs to the declarations below it, up to an empty line or the next such
comment; a comment of dashes begins a section. Twins with the prefix pnccl are left out.
"""

import re

# A comment at the beginning of a line, or the lines up to the next one or an empty line.
PIECE = re.compile(r"^/\*(?P<comment>.*?)\*/[ ]*$|(?P<code>^(?!/\*)[^\n]+(?:\n(?!/\*)[^\n]+)*)|\n", re.MULTILINE | re.DOTALL)
NOT_SHOWN = re.compile(r"^(#\s*(if|ifdef|ifndef|else|endif|pragma|include)\b.*|extern \"C\" \{|\}|#define TUTTI_\w+_(H_|API).*"
                       r"|#define (TUTTI_)?NCCL_H_\w*.*)$")
API = re.compile(r"\bTUTTI_\w+_API ")
NAMES = (r"\b(nccl\w+)\s*\(", r"^\}\s*(\w+);", r"^typedef [^\n{]*?\b(\w+);", r"^typedef enum \{[^}]*\} (\w+);", r"^#define (\w+)")


def words(comment):
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().split("\n")]
    return "\n".join(lines).strip()


def prose(text):
    return re.sub(r"([*_`<>\[\]])", r"\\\1", text)


def introduction(text):
    """A header's first comment: paragraphs, and terms, which stand two spaces in with their text from column 13 on."""
    out = []
    for line in text.split("\n"):
        if re.match(r"^  \S", line):
            if out and not out[-1].startswith("- "):
                out.append("")
            out.append(f"- **{prose(line[2:13].strip())}** {prose(line[13:].strip())}")
        elif out and out[-1].startswith("- ") and line.startswith("    "):
            out[-1] += " " + prose(line.strip())
        else:
            out.append(prose(line))
    return "\n".join(out)


def shown(code):
    """The declarations, without the preprocessor's and without twins."""
    lines = [API.sub("", line) for line in code.split("\n") if not NOT_SHOWN.match(line)]
    statements = re.split(r"(?<=;)\n", "\n".join(lines))
    return "\n".join(each for each in statements if not re.search(r"^\w[\w\s]*\*? ?\bpnccl\w+\(", each)).strip()


def name_of(code):
    for pattern in NAMES:
        if found := re.search(pattern, code, re.MULTILINE):
            return found.group(1)
    return None


def reference(text):
    """Markdown of one header, without a title of its own."""
    out = []
    comment = ""
    for piece in PIECE.finditer(text):
        if piece["comment"] is not None:
            comment = words(piece["comment"])
            if comment.startswith("NOLINT"):
                comment = ""
            elif section := re.fullmatch(r"-{4} (.*?) -+", comment):
                out.append(f"### {section[1]}")
                comment = ""
            elif not out:  # what the header is
                out.append(introduction(comment))
                comment = ""
        elif piece["code"]:
            code = shown(piece["code"])
            name = name_of(code)
            out += [f"#### {name}" if name else "", prose(comment), f"```c\n{code}\n```" if code else ""]
            comment = ""
    return "\n\n".join(each for each in out if each)
