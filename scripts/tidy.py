#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not: layering, seams, globals, sizes, bans.

The rules are data in layers.toml. Prints one line a finding, `file:line: [rule] reason`, and exits 1 when there is any;
2 when it is used wrongly. Python 3.11, no packages.
"""

import argparse
import bisect
import dataclasses
import fnmatch
import pathlib
import re
import sys
import tomllib

SUFFIXES = {".h", ".hpp", ".cuh", ".c", ".cc", ".cu"}
HEADERS = {".h", ".hpp", ".cuh"}
FOLDERS = ["src", "include", "tools", "tests", "bench", "examples", "sim"]
TEST_NAME = re.compile(r"_(test|bench|fuzz)\.(cc|cu)$|_testing\.(h|cc)$")


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    reason: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.reason}"


# ---- reading C++ ----------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])*
      | /\*.*?\*/
      | (?:u8|[uUL])?R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
    """,
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


def blank(text):
    """The same length and lines, nothing else."""
    return re.sub(r"[^\n]", " ", text)


class Source:
    """A file in three views of equal length: as it is, without comments and strings, and without directives too."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.comments = []  # (offset, text)

        def drop(match):
            token = match.group(0)
            if token.startswith(("//", "/*")):
                self.comments.append((match.start(), token))
                return blank(token)
            return token[0] + blank(token[1:-1]) + token[-1]  # a string keeps its quotes

        self.code = TOKEN.sub(drop, text)
        self.body = DIRECTIVE.sub(lambda match: blank(match.group(0)), self.code)
        self.starts = [0] + [match.end() for match in re.finditer("\n", text)]

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)

    @property
    def is_test(self):
        return bool(TEST_NAME.search(self.path)) or self.path.startswith("tests/")

    def includes(self):
        """(line, name, quoted) of each #include; read from the text because a quoted name is a string."""
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', self.text, re.MULTILINE):
            if self.code[match.start() : match.end()].lstrip().startswith("#"):
                yield self.line(match.start()), match.group(2), match.group(1) == '"'


@dataclasses.dataclass
class Scope:
    """A brace pair. kind: namespace, type, function, block (inside a function) or value (an initialiser)."""

    kind: str
    head: str  # the text between the previous statement and the brace
    head_offset: int
    start: int  # of the brace
    end: int = -1
    parent: "Scope | None" = None


@dataclasses.dataclass
class Statement:
    """Text that ends in a semicolon outside functions and initialisers, or anywhere inside a function."""

    text: str
    offset: int
    scope: Scope


TYPE_HEAD = re.compile(r"^(?:template\s*<.*>\s*)?(?:typedef\s+)?(?:enum\s+(?:class\s+|struct\s+)?|class\b|struct\b|union\b)", re.DOTALL)
ACCESS = re.compile(r"^\s*(?:(?:public|private|protected|default|case[^;]*?)\s*:(?!:)\s*)+")
INITIALISERS = re.compile(r"\)[^()=;]*(?:\([^()]*\))?[^()=;]*(?<!:):(?!:)")


def scope_kind(head, parent):
    if parent.kind in ("function", "block"):
        return "value" if is_value(head) else "block"
    if parent.kind == "value":
        return "value"
    if re.match(r"^(inline\s+)?namespace\b", head) or re.match(r'^extern\s*"\s*"$', head):
        return "namespace"
    if TYPE_HEAD.match(head) and not is_function_head(head):
        return "type"
    if "(" not in head or is_value(head):
        return "value"
    if INITIALISERS.search(head) and re.search(r"[\w>]$", head):
        return "value"  # a member's initialiser: `Foo() : member_{1}`
    return "function"


def is_value(head):
    """`x = {`, `return {`, `f(a, {`: what the brace begins is a value."""
    if re.search(r"(=|\breturn|,|\()\s*$", head):
        return True
    plain = strip_pairs(strip_pairs(strip_pairs(head, "{}"), "()"), "<>")
    return bool(re.search(r"(?<![=!<>+\-*/|&^%])=(?!=)", plain)) and "operator" not in head


def is_function_head(head):
    """`struct Foo bar(int) {`: a function that returns a struct; a type's head holds no parentheses but alignas'."""
    plain = re.sub(r"\b(alignas|__attribute__|decltype)\s*\((?:[^()]|\([^()]*\))*\)", "", head)
    plain = re.sub(r"^template\s*<.*?>\s*(requires\b.*?\)\s*)?(?=class|struct|union)", "", plain, flags=re.DOTALL)
    return "(" in plain


def parse(source):
    """The scopes and statements of a file. Heuristic, but braces and semicolons are exact."""
    body = source.body
    top = Scope("namespace", "", 0, -1, len(body))
    scopes, statements = [], []
    current, head_start, round_depth = top, 0, 0
    for match in re.finditer(r"[{};()]", body):
        mark, at = match.group(0), match.start()
        if mark == "(":
            round_depth += 1
        elif mark == ")":
            round_depth = max(0, round_depth - 1)
        elif mark == "{":
            head, offset = clean_head(body, head_start, at)
            kind = scope_kind(head, current)
            if round_depth and current.kind not in ("function", "block", "value"):
                kind = "value"  # a default argument
            current = Scope(kind, head, offset, at, parent=current)
            current.outer = (head_start, round_depth)
            scopes.append(current)
            head_start, round_depth = at + 1, 0
        elif mark == "}" and current.parent is not None:
            current.end = at
            outer_start, round_depth = current.outer
            # After an initialiser the statement goes on; after anything else a new one begins.
            head_start = outer_start if current.kind == "value" else at + 1
            current = current.parent
        elif mark == ";" and round_depth == 0:
            text, offset = clean_head(body, head_start, at)
            if text:
                statements.append(Statement(text, offset, current))
            head_start = at + 1
    return scopes, statements


def clean_head(body, start, end):
    text = body[start:end]
    lead = ACCESS.match(text)
    if lead:
        start += lead.end()
        text = text[lead.end() :]
    return text.strip(), start + len(text) - len(text.lstrip())


def without_initialisers(text):
    """Cuts `= ...` and `{...}` off a declaration."""
    depth = 0
    for index, mark in enumerate(text):
        if mark in "<([":
            depth += 1
        elif mark in ">)]":
            depth = max(0, depth - 1)
        elif depth == 0 and (mark == "{" or mark == "="):
            return text[:index].strip()
    return text.strip()


# ---- the rules ------------------------------------------------------------------------------------------------------


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def is_under(path, folders):
    return any(path.startswith(folder + "/") for folder in folders)


class Rules:
    def __init__(self, data):
        self.data = data
        self.findings = []
        self.notes = []
        self.types = {}  # qualified name: path

    def check(self, path, text):
        source = Source(path, text)
        scopes, statements = parse(source)
        in_src = path.startswith("src/")
        self.check_includes(source)
        if in_src:
            self.check_seams(source)
            self.check_platforms(source)
            if not source.is_test:
                self.check_globals(source, statements)
        self.check_functions(source, scopes)
        self.check_types(source, scopes)
        self.check_file(source)
        self.check_bans(source)
        self.check_comments(source)

    def report(self, source, line, rule, reason):
        self.findings.append(Finding(source.path, line, rule, reason))

    def check_includes(self, source):
        for line, name, quoted in source.includes():
            self.check_hardware(source, line, name)
            if source.path.startswith("src/"):
                self.check_layer(source, line, name if quoted else "")
                self.check_purity(source, line, name)
                for ban in self.data["bans"]["headers"]:
                    if name == ban["name"]:
                        self.report(source, line, "ban", f"<{name}> {ban['why']}")
            if quoted or "/" in name:
                self.check_inner(source, line, name)

    def check_layer(self, source, line, name):
        order = self.data["layers"]["order"]
        own = source.path.split("/")[1]
        if own not in order:
            self.report(source, line, "layer", f"folder {own} is not in the order of layers.toml")
            return
        other = name.split("/")[0]
        if "/" in name and other in order and order.index(other) > order.index(own):
            self.report(source, line, "layer", f"{own} stands before {other} and may not include {name}")

    def check_inner(self, source, line, name):
        """x/y/ is named only by x/registry.cc and inside x/y/; tests and benchmarks may look behind the interface."""
        parts = name.split("/")
        if not source.path.startswith(("src/", "tools/")) or len(parts) < 3 or parts[0] not in self.data["layers"]["order"]:
            return
        folder = "src/" + "/".join(parts[:2])
        if source.path == f"src/{parts[0]}/registry.cc" or is_under(source.path, [folder]):
            return
        self.report(source, line, "inner", f"only src/{parts[0]}/registry.cc and {folder}/ may include {name}")

    def check_purity(self, source, line, name):
        layers = self.data["layers"]
        own = source.path.split("/")[1]
        if is_under(source.path, layers["impure_folders"]):
            return
        if own in layers["pure"] and not source.is_test and matches(name, layers["impure_headers"]):
            self.report(source, line, "pure", f"{own} is pure: values in, values out; it may not include {name}")

    def check_hardware(self, source, line, name):
        hardware = self.data["hardware"]
        if not source.path.startswith(("src/", "tools/")) or is_under(source.path, hardware["folders"]):
            return
        if matches(name, hardware["headers"]):
            self.report(source, line, "hardware", f"{name} belongs in {', '.join(hardware['folders'])}")

    def check_seams(self, source):
        for seam in self.data["seams"]:
            if source.path in seam["files"] or (source.is_test and not seam["tests"]):
                continue
            for match in re.finditer("|".join(f"(?:{pattern})" for pattern in seam["patterns"]), source.body):
                word = match.group(0).strip()
                self.report(source, source.line(match.start()), seam["name"],
                            f"`{word}` only in {seam['files'][0]}; use {seam['instead']}")

    def check_platforms(self, source):
        bans = self.data["bans"]
        if matches(source.path, bans["platform_files"]):
            return
        macro = re.compile(r"\b(" + "|".join(bans["platform_macros"]) + r")\b")
        for match in re.finditer(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b([^\n]*)", source.code, re.MULTILINE):
            found = macro.search(match.group(1))
            if found:
                self.report(source, source.line(match.start()), "platform",
                            f"#if {found.group(1)} only in {', '.join(bans['platform_files'])}")

    def check_globals(self, source, statements):
        for statement in statements:
            name = mutable_variable(statement)
            if name is None:
                continue
            if any(fnmatch.fnmatch(source.path, entry["file"]) and fnmatch.fnmatch(name, entry["name"])
                   for entry in self.data["globals"]):
                continue
            self.report(source, source.line(statement.offset), "global",
                        f"`{name}` lives as long as the process or thread and may change; give it to an object")

    def check_functions(self, source, scopes):
        sizes = self.data["sizes"]
        for scope in scopes:
            if scope.kind != "function":
                continue
            first, last = source.line(scope.head_offset), source.line(scope.end if scope.end > 0 else scope.start)
            length = last - first + 1
            name, parameters = signature(scope.head)
            if length > sizes["function_lines"]:
                self.report(source, first, "size", f"{name} has {length} lines, {sizes['function_lines']} are allowed")
            free = any(re.search(pattern, name) for pattern in sizes["free_signatures"])
            if parameters > sizes["function_parameters"] and not free and not source.is_test:
                self.report(source, first, "size",
                            f"{name} has {parameters} parameters, {sizes['function_parameters']} are allowed: "
                            "pass an options struct")

    def check_types(self, source, scopes):
        """One definition: linkers merge what two types of one name have inline, and say nothing."""
        if source.is_test or not source.path.startswith(("src/", "tools/", "include/")):
            return
        for scope in scopes:
            name = qualified_name(scope)
            first = self.types.setdefault(name, source.path) if name else source.path
            if first != source.path:
                self.report(source, source.line(scope.head_offset), "name", f"{first} has a type {name}, too")

    def check_file(self, source):
        sizes = self.data["sizes"]
        count = source.text.count("\n")
        if count > sizes["file_lines"]:
            self.report(source, 1, "size", f"{count} lines, {sizes['file_lines']} are allowed")
        elif count > sizes["file_lines_noted"]:
            self.notes.append(f"{source.path}: {count} lines, {sizes['file_lines_noted']} are wanted")
        if pathlib.PurePath(source.path).suffix in HEADERS and "#pragma once" not in source.code:
            guarded = re.search(r"^\s*#ifndef (\w+)\s*\n\s*#define \1\b", source.code)
            if not (source.path.startswith("include/") and guarded):
                self.report(source, 1, "ban", "a header begins with #pragma once")

    def check_bans(self, source):
        for match in re.finditer(r"\bgoto\b|\busing\s+namespace\b", source.body):
            word = " ".join(match.group(0).split())
            why = "clean up in a destructor" if word == "goto" else "name what is used"
            self.report(source, source.line(match.start()), "ban", f"`{word}`: {why}")

    def check_comments(self, source):
        previous = -2  # the line of the last comment that reads like code
        for offset, comment in source.comments:
            line = source.line(offset)
            for match in re.finditer(r"\b(TODO|FIXME|XXX|HACK)\b", comment):
                if not re.match(self.data["bans"]["todo"], comment[match.start() :]):
                    self.report(source, source.line(offset + match.start()), "todo",
                                "write TODO(perf|portability|cleanup): what, or mend it")
            alone = source.text[source.starts[line - 1] : offset].strip() == ""
            if alone and CODE_COMMENT.match(comment):
                if previous == line - 1:
                    self.report(source, line, "comment", "reads like commented-out code; delete it")
                previous = line


# Prose may end in a semicolon too, so a line counts only when it also begins like a statement, and only with another one.
CODE_COMMENT = re.compile(
    r"//\s*(?:\}.*|(?:(?:return|delete|throw|auto|const|if|for|while)\b|#\w|[\w:.>-]+\(|[\w:<>&*]+\s+\w+\s*=|[\w.>-]+\s*[+-]?=\s)"
    r".*[;{])\s*$"
)
NOT_VARIABLE = re.compile(
    r"^(using|typedef|template|static_assert|class|struct|enum|union|friend|namespace|return|extern\s*\"|asm|concept|public"
    r"|private|protected|goto|case|delete|throw|co_return|break|continue|else|if|for|while|do|switch)\b"
)


def mutable_variable(statement):
    """The name of the variable that a statement defines with static or thread storage and that may change, or None."""
    text = re.sub(r"\[\[.*?\]\]", "", statement.text).strip()
    inside = statement.scope.kind in ("function", "block")
    if statement.scope.kind == "value" or NOT_VARIABLE.match(text):
        return None
    stored = re.search(r"\b(static|thread_local)\b", without_initialisers(text))
    if (inside or statement.scope.kind == "type") and not stored:
        return None
    if re.search(r"\bconstexpr\b", text) or text.startswith("extern"):
        return None
    return declared_name(without_initialisers(re.sub(r"\balignas\s*\([^()]*\)", "", text)))


def declared_name(declaration):
    """`static const Foo* bar` gives bar; a constant or a function gives None."""
    plain = strip_pairs(declaration, "<>")
    if "(" in plain and not re.search(r"\(\s*\*", plain):
        words = plain[: plain.index("(")].split()
        # `static Foo foo(1)` is a variable only if its name is no function's: inside functions there are none.
        return None if len(words) < 2 or not re.search(r"\(\s*[\d\"&]", plain) else words[-1].lstrip("*&")
    match = re.search(r"(\w+)\s*(\)\s*\([^()]*\)\s*)?(\[[^\]]*\]\s*)*$", plain)
    if not match or len(plain.split()) < 2 or "operator" in plain:
        return None
    before = plain[: match.start()]
    constant = re.search(r"\bconst\b", before) and (
        not re.search(r"[*]", before) or re.search(r"\*\s*const\b[^*]*$", before))
    return None if constant else match.group(1)


TYPE_NAME = re.compile(r"^(?:enum\s+(?:class|struct)|enum|class|struct|union)\s+(?:(?:\[\[.*?\]\]|alignas\s*\([^()]*\))\s*)*([\w:]+)")


def qualified_name(scope):
    """Of a type that other files' code may name, too; None of any other scope, and of templates."""
    match = TYPE_NAME.match(scope.head) if scope.kind == "type" else None
    names = [match.group(1)] if match else []
    while names and (scope := scope.parent).parent is not None:
        space = re.match(r"^(?:inline\s+)?namespace\s+([\w:]+)$", scope.head)
        if not space:
            return None  # no name, or another type's
        names.insert(0, space.group(1))
    return "::".join(names) or None


def strip_pairs(text, pair):
    """Removes what stands between brackets, and the brackets."""
    opening, closing = map(re.escape, pair)
    previous = None
    while previous != text:
        previous, text = text, re.sub(f"{opening}[^{opening}{closing}]*{closing}", " ", text)
    return text


def signature(head):
    """The name and the number of parameters of a function's head."""
    head = re.sub(r"\b(alignas|__attribute__|decltype|explicit|requires)\s*\((?:[^()]|\([^()]*\))*\)", " ", head)
    head = re.sub(r"\boperator\s*\(\s*\)", "operator_call", head)
    match = re.search(r"([\w:~]+|operator\s*\S+?)\s*\(", strip_pairs(head, "<>"))
    name = match.group(1).split("::")[-1] if match else "function"
    start = head.find("(")
    depth, commas, angles, content = 0, 0, 0, ""
    for mark in head[start:]:
        depth += (mark in "([{") - (mark in ")]}")
        angles += (mark == "<") - (mark == ">")
        if depth == 0:
            break
        if depth == 1 and mark == "," and angles <= 0:
            commas += 1
        content += mark
    return name, 0 if content[1:].strip() in ("", "void") else commas + 1


# ---- the command ----------------------------------------------------------------------------------------------------


def source_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--root", type=pathlib.Path, default=here.parent, help="the tree to check")
    parser.add_argument("--rules", type=pathlib.Path, default=here / "layers.toml", help="the rules, as layers.toml")
    options = parser.parse_args(arguments)
    rules = Rules(tomllib.loads(options.rules.read_text()))
    count = 0
    for path in source_files(options.root):
        rules.check(path.relative_to(options.root).as_posix(), path.read_text(encoding="utf-8"))
        count += 1
    for note in rules.notes:
        print(f"note: {note}")
    for finding in sorted(rules.findings, key=lambda found: (found.path, found.line, found.rule)):
        print(finding)
    print(f"tidy: {count} files, {len(rules.findings)} findings")
    return 1 if rules.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
