#!/usr/bin/env python3
"""Makes the documentation site out of the project's own pages: `site.py COMMAND OUT` (make docs does it).

Pages are the Markdown files where they lie; here they are copied, their links turned to where they end up, and joined by
pages made of the command's help, the settings, the C headers and the Python package. mkdocs then renders
them, strictly: a link that leads nowhere is an error.
"""

import ast
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import site_errors
import site_headers

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
TITLES = {"index.md": "tutti"}
# What is shown of each command beside its help.
SHOWN = {"perf": ["all_reduce", "-n", "2", "-b", "1K", "-e", "1M", "-f", "32", "--iters", "5"],
         "run": ["-n", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"],
         "explain": ["all_reduce", "-n", "4", "-b", "4096"], "topo": [], "doctor": [], "settings": [], "why": [], "version": [],
         "tune": ["--rounds", "1", "--repeats", "1", "-n", "2", "--sizes", "64,4K", "--collective", "all_reduce"],
         "sim": ["all_reduce", "--cluster", "examples/clusters/h200x4.yaml", "--bytes", "1M"],
         "trace": ["build/site/traces"], "completion": ["bash"], "manual": ["version"]}
NOT_PUBLIC = ("last_error", "check", "lib", "answer_of", "UniqueIdStruct")
NAVIGATION = [
    ("Start here", ["index.md", "START.md", "PACKAGES.md", "python.md"]),
    ("How it works", ["ARCHITECTURE.md", "ALGORITHMS.md", "PLANNER.md", "NETWORK.md", "TOPOLOGY.md", "SIMULATOR.md", "folders.md"]),
    ("Use", ["commands.md", "SETTINGS.md", "TUNING.md", "PROFILING.md", "TROUBLESHOOTING.md", "errors.md", "SECURITY.md", "COMPARISON.md"]),
    ("Reference", ["c.md", "python_reference.md", "GLOSSARY.md"]),
    ("Contribute", ["CONTRIBUTING.md", "TESTING.md"]),
]


def pages():
    """Where each page of the project ends up."""
    named = {"README.md": "index.md", "python/README.md": "python.md", "src/README.md": "folders.md",
             "SECURITY.md": "SECURITY.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".md", ".svg", ".png", ".html"):
            named[str(path.relative_to(ROOT))] = str(path.relative_to(ROOT / "docs"))
    return {ROOT / source: target for source, target in named.items() if (ROOT / source).exists()}


def turn_links(text, source, target, where):
    """Links as seen from `target`; what is no page is named by its path."""

    def turn(match):
        bang, label, link = match.groups()
        address, _, anchor = link.partition("#")
        if "://" in link or link.startswith(("#", "mailto:")):
            return match.group(0)
        path = (source.parent / address).resolve()
        if path in where:
            relative = os.path.relpath(where[path], os.path.dirname(target) or ".")
            return f"{bang}[{label}]({relative}{'#' + anchor if anchor else ''})"
        name = str(path.relative_to(ROOT))
        if bang:
            return label
        return f"`{name}`" if name.endswith(label.strip("`/")) else f"{label} (`{name}`)"

    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if index % 2 else LINK.sub(turn, part) for index, part in enumerate(parts))


def help_of(command, *names):
    result = subprocess.run([command, *names, "--help"], capture_output=True, text=True, check=True, env={
        **os.environ, "COLUMNS": "100", "NO_COLOR": "1"})
    return result.stdout.rstrip()


def commands_page(command):
    traces = ROOT / "build/site/traces"  # of the run of perf, for that of trace
    shutil.rmtree(traces, ignore_errors=True)
    traces.mkdir(parents=True)
    overview = help_of(command)
    names = re.findall(r"^  (\w+) {2,}", overview.partition("Subcommands:")[2], re.MULTILINE)
    text = f"# Commands\n\n```\n{overview}\n```\n"
    for name in names:
        text += f"\n## tutti {name}\n\n```\n{help_of(command, name)}\n```\n"
        if name in SHOWN:
            settings = {"TUTTI_TRACE_DIR": "build/site/traces"} if name == "perf" else {}
            result = subprocess.run([command, name, *SHOWN[name]], capture_output=True, text=True, check=False, cwd=ROOT,
                                    timeout=250, env={**os.environ, "NO_COLOR": "1", "TUTTI_DEVICE": "host", **settings})
            output = "\n".join(result.stdout.splitlines()[:40])
            line = shlex.join([*(f"{key}={value}" for key, value in settings.items()), "tutti", name, *SHOWN[name]])
            text += f"\nOn the machine that made this page (at most 40 lines):\n\n```\n$ {line}\n{output}\n```\n"
    return text


def c_page():
    text = "# C and C++\n\nFrom the headers as they are installed.\n"
    for name in ("nccl.h", "tutti/host.h", "tutti/inspect.h", "tutti/virtual.h"):
        text += f"\n## {name}\n\n{site_headers.reference((ROOT / 'include' / name).read_text(encoding='utf-8'))}\n"
    for name in ("tutti/tutti.hpp", "tutti/host.hpp", "tutti/error.hpp"):
        text += f"\n## {name}\n\n```cpp\n{(ROOT / 'include' / name).read_text(encoding='utf-8').rstrip()}\n```\n"
    return text


def signature(node):
    return f"{node.name}({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def described(node):
    """A docstring as paragraphs; its indented lines are code."""
    parts = ast.get_docstring(node).split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else site_headers.prose(part) for part in parts)


def python_class(node):
    """What is in a class: the fields of a dataclass, then its methods."""
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    lines = "\n".join(f"{each.target.id}: {ast.unparse(each.annotation)}" for each in fields)
    text = f"\n```python\n{lines}\n```\n" if fields else ""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and ast.get_docstring(each):
            text += f"\n```python\n{signature(each)}\n```\n\n{described(each)}\n"
    return text


def python_page():
    text = "# Python\n\nFrom the package's own descriptions; [how to begin](python.md).\n"
    for name in ("_communicator.py", "_answers.py", "__init__.py", "_library.py", "torch/__init__.py"):
        tree = ast.parse((ROOT / "python/tutti" / name).read_text(encoding="utf-8"))
        module = "tutti.torch" if name.startswith("torch") else "tutti"
        for node in tree.body:
            public = isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
            if not public or not ast.get_docstring(node) or node.name in NOT_PUBLIC:
                continue
            text += f"\n## {module}.{node.name}\n\n"
            if isinstance(node, ast.FunctionDef):
                text += f"```python\n{signature(node)}\n```\n\n"
            text += f"{described(node)}\n"
            if isinstance(node, ast.ClassDef):
                text += python_class(node)
    return text


def configuration(out):
    lines = ["site_name: tutti", f"docs_dir: {out / 'pages'}", f"site_dir: {out / 'html'}", "use_directory_urls: false",
             "theme:", "  name: material", "  font: false", "  features: [navigation.sections, navigation.top, search.highlight]",
             "  palette:", "    - {media: '(prefers-color-scheme: light)', scheme: default, primary: indigo}",
             "    - {media: '(prefers-color-scheme: dark)', scheme: slate, primary: indigo}",
             "markdown_extensions: [tables, fenced_code, toc, sane_lists]", "nav:"]
    for title, names in NAVIGATION:
        lines.append(f"  - {title}:")
        lines += [f"      - {name}" for name in names if (out / "pages" / name).exists()]
    for title, folder in (("Decisions", "decisions"), ("Results", "results")):
        lines.append(f"  - {title}:")
        lines += [f"      - {path.relative_to(out / 'pages')}" for path in sorted((out / "pages" / folder).glob("*.md"))
                  if path.stem != "0000-template"]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    command, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    where = pages()
    for source, target in where.items():
        place = out / "pages" / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            place.write_text(turn_links(source.read_text(encoding="utf-8"), source, target, where), encoding="utf-8")
        else:
            place.write_bytes(source.read_bytes())
    for name, text in (("commands.md", commands_page(command)), ("errors.md", site_errors.page()), ("c.md", c_page()),
                       ("python_reference.md", python_page())):
        (out / "pages" / name).write_text(text, encoding="utf-8")
    (out / "mkdocs.yml").write_text(configuration(out), encoding="utf-8")
    subprocess.run(["mkdocs", "build", "--quiet", "--strict", "--clean", "-f", str(out / "mkdocs.yml")], check=True)
    print(out / "html/index.html")


if __name__ == "__main__":
    main()
