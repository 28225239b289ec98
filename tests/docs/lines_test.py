#!/usr/bin/env python3
"""Runs the command lines of the pages that have no `$` (scripts/docs_commands.py finds them and runs those that have one).

    lines_test.py BUILD [--python PYTHON] [--torch PYTHON] [--slow] [--match TEXT]

Each runs as a reader would type it, in the source tree with what the test laid beside it, and must exit with 0; lines.toml says
of which lines more is to be said. What they write lies over the tree (an overlay in a mount namespace of the test) and is gone
with it, so `make install` and `make format` are the real ones; hosts are network namespaces, to which doubles of ssh and srun
lead. No line installs packages: one that wants to is left out, and so is one whose programs are missing; the end lists them.
Pages of docs/results and docs/decisions are left out: they say what was run when, on which machine.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(HERE.parent / "multihost")]

import bed  # noqa: E402
import docs_commands  # noqa: E402

SECONDS, SECONDS_SLOW = 400, 3600
KEYS = {"text", "with", "around", "environment", "hosts", "codes", "says", "slow", "needs", "by", "finds", "why"}
SKELETON = ('<system version="1"><cpu numaid="0" affinity="0000000f" arch="x86_64" vendor="GenuineIntel"><pci busid="0001:00:00.0" '
            'class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"/></cpu></system>')
PROFILE = '<profile version="1" name="one H100" sm="90"><gpu busid="0001:00:00.0"/></profile>'
# A process with a rank, which the lines can ask about.
JOB = ["tutti", "perf", "all_reduce", "-b", "1K", "-e", "1K", "--iters", "1000000000"]
AS_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def read_table(lines):
    """The entries by their text, and what is wrong with them."""
    entries = tomllib.loads((HERE / "lines.toml").read_text(encoding="utf-8"))["line"]
    wrong = [f"lines.toml: no page has the line {each['text']}" for each in entries if each["text"] not in lines]
    wrong += [f"lines.toml: {each['text']}: {key}?" for each in entries for key in each.keys() - KEYS]
    for each in entries:
        if "by" in each and each["finds"] not in (ROOT / each["by"]).read_text(encoding="utf-8"):
            wrong.append(f"{each['by']} has no {each['finds']!r}, which should run {each['text']}")
    twice = [text for text, count in collections.Counter(each["text"] for each in entries).items() if count > 1]
    return {each["text"]: each for each in entries}, wrong + [f"lines.toml: twice: {each}" for each in twice]


def enter():
    """Goes on in namespaces of its own; ends with SKIPPED where they are not to be had."""
    if os.environ.get("LINES_INSIDE"):
        bed.run("ip", "link", "set", "lo", "up")
        return
    for flags in (["--mount", "--net"], ["--user", "--map-root-user", "--mount", "--net"]):
        if subprocess.run(["unshare", *flags, "ip", "link", "add", "wires", "type", "bridge"], capture_output=True).returncode == 0:
            os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], {**os.environ, "LINES_INSIDE": "1"})
    print("skipped: this system lets us make no mount and network namespace (needs root or user namespaces, and ip)")
    sys.exit(bed.SKIPPED)


def lay_over(scratch):
    """What is written to the source tree from now on is written to `scratch`."""
    for place, extra in ((scratch, ""), (scratch, ",userxattr"), ("tmpfs", "")):
        if place == "tmpfs":  # the scratch folder lies on an overlay itself, as in a container
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", scratch], capture_output=True, check=False)
        for name in ("upper", "work"):
            (scratch / name).mkdir(exist_ok=True)
        options = f"lowerdir={ROOT},upperdir={scratch / 'upper'},workdir={scratch / 'work'}{extra}"
        if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, ROOT], capture_output=True).returncode == 0:
            os.chdir(ROOT)  # the folder that lies on top now
            return
    print("skipped: this system lets us mount no overlay")
    sys.exit(bed.SKIPPED)


class Place:
    """What lines find: programs, files, hosts, a job."""

    def __init__(self, options, scratch):
        self.build, self.scratch, self.hosts, self.job = options.build, scratch, None, None
        self.wanted = scratch / "wanted"
        home, programs = scratch / "home", scratch / "programs"
        for folder in (home, programs, ROOT / "bundles"):
            folder.mkdir()
        (home / "job.secret").write_text("a secret that the ranks of this test share")
        (home / "job.secret").chmod(0o600)
        # Without what a make around the tests was told: a line's own make would take that for its own.
        foreign = ("NCCL_", "TUTTI_", "MULTIHOST_", "MAKE", "MFLAGS", "CTEST_ARGS", "CTEST_FLAGS")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.environment |= {
            "PATH": f"{programs}:{HERE / 'doubles'}:{self.build / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "NO_COLOR": "1",
            "PYTHONPATH": str(self.build / "python"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "TUTTI_DEVICE": "host",
            "TUTTI_TORCH_CACHE": str(self.build / "torch-cache"), "TUTTI_BUNDLE_DIR": str(ROOT / "bundles"),
            "CCACHE_DIR": os.environ.get("CCACHE_DIR") or os.path.expanduser("~/.cache/ccache"), "TEST_WANTED": str(self.wanted),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_plm_rsh_agent": str(HERE / "doubles/ssh"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*"}
        self.lay_programs(options, programs)
        self.lay_files()

    @staticmethod
    def lay_programs(options, folder):
        python = options.torch or options.python
        called = {"python": f'{python} "$@"'} if python else {}
        if options.torch:
            version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout
            # What is not redirected, torch 1.13 forgets with Python 3.11.
            redirected = f"--tee 1 --redirects 1 --log_dir {folder.parent}" if version.startswith("1.") else ""
            called["torchrun"] = f'{python} -m torch.distributed.run {redirected} "$@"'
        for name, command in called.items():
            (folder / name).write_text(f"#!/bin/sh\nexec {command}\n")
            (folder / name).chmod(0o755)

    def lay_files(self):
        for name, source in (("app", self.build / "bin/example_one_thread"), ("training_step", self.build / "bin/example_training_step"),
                             ("app.c", ROOT / "examples/one_thread.c"), ("script.py", ROOT / "examples/train.py"),
                             ("train.py", ROOT / "examples/train_torch.py"), ("dgx.xml", ROOT / "tests/golden/topologies/dgx_h100.xml"),
                             ("machine.xml", ROOT / "tests/golden/topologies/dgx1v.xml"),
                             ("cluster.yaml", ROOT / "examples/clusters/h200x4.yaml"),
                             ("measured.csv", ROOT / "docs/results/2026-11-24-gpu-measured.csv")):
            (ROOT / name).symlink_to(source)
        (ROOT / "skeleton.xml").write_text(SKELETON)
        (ROOT / "node.xml").write_text(PROFILE)

    def variables(self, entry):
        """For `with`, `environment` and the shell: where hosts and the job are, which are made when they are first asked for."""
        told = {}
        if "$JOB" in str(entry):
            self.start_job()
            told["JOB"] = str(self.job.pid)
        if entry.get("hosts"):
            if self.hosts is None:
                self.hosts = bed.Hosts(2)
                bed.run("ip", "addr", "add", "10.77.0.200/24", "dev", "wires")
                names = "127.0.0.1 localhost\n" + "".join(f"{host.address} host{host.number}\n" for host in self.hosts.all)
                (self.scratch / "hosts").write_text(names + f"10.77.0.200 {os.uname().nodename}\n")
                bed.run("mount", "--bind", self.scratch / "hosts", "/etc/hosts")
            told |= {"HOST0": self.hosts[0].address, "TEST_HOSTS": " ".join(str(host.holder.pid) for host in self.hosts.all)}
        return told

    def start_job(self):
        self.job = subprocess.Popen(JOB, env={**self.environment, **AS_RANK}, stdout=subprocess.DEVNULL)
        for _ in range(100):  # until it has a communicator
            time.sleep(0.1)
            told = subprocess.run(["tutti", "why", str(self.job.pid)], env=self.environment, capture_output=True, text=True)
            if "in 1 communicator" in told.stdout:
                return

    def end_job(self):
        if self.job is not None:
            self.job.kill()
            self.job.wait()
            self.job = None

    def end(self):
        self.end_job()
        if self.hosts is not None:
            self.hosts.end()


def run(line, entry, place):
    """What is wrong with a line; None: it was left out, as it wants packages."""
    told = place.variables(entry)
    command = line
    for text, instead in entry.get("with", {}).items():
        if text not in command:
            return f"the line has no {text!r} to stand something for"
        command = command.replace(text, instead)
    command = entry.get("around", "{}").replace("{}", command)
    environment = {**place.environment, **told}
    environment |= {key: value.replace("$HOST0", told.get("HOST0", "")).replace("$HOME", environment["HOME"])
                    for key, value in entry.get("environment", {}).items()}
    place.wanted.unlink(missing_ok=True)
    seconds = SECONDS_SLOW if entry.get("slow") else SECONDS
    child = subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        output = child.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output = f"{child.communicate()[0]}not done within {seconds} s"
    place.end_job()
    if place.wanted.exists():
        return None
    if child.returncode not in entry.get("codes", [0]):
        return f"{command}\nexit code {child.returncode}\n{output[-2000:]}"
    if not re.search(entry.get("says", ""), output):
        return f"{command}\nsays nothing like {entry['says']}\n{output[-2000:]}"
    return ""


def reason_against(line, entry, options):
    """Why a line does not run here, now; empty when it does."""
    if "why" in entry:
        return "exceptions: " + entry["why"]
    if "by" in entry:
        return "run by others: " + entry["by"]
    if entry.get("slow") and not options.slow:
        return "with --slow"
    missing = [each for each in entry.get("needs", []) if shutil.which(each) is None]
    if re.search(r"\btorch(run)?\b", line) and not options.torch:
        missing.append("torch")
    if line.startswith("python ") and not options.python:
        missing.append("Python with NumPy")
    if missing:
        return "left out, as there is no " + ", ".join(missing)
    builds = re.match(r"make (demo|test|docs|package|install|soak|bench)|python3 tests/abi|cmake|ctest", line)
    if builds and options.build != ROOT / "build/release":
        return "left out: only for the build in build/release, which they build anew"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--python", help="an interpreter with NumPy")
    parser.add_argument("--torch", help="an interpreter with torch and NumPy")
    parser.add_argument("--slow", action="store_true", help="also lines that take more than some minutes")
    parser.add_argument("--match", default="", help="only lines that have this text")
    options = parser.parse_args()
    enter()
    lines = docs_commands.lines()
    entries, wrong = read_table(lines)
    for each in wrong:
        print(each)
    groups, failed, ran = collections.defaultdict(list), len(wrong), 0
    with tempfile.TemporaryDirectory(prefix="tutti-lines-", ignore_cleanup_errors=True) as folder:
        scratch = pathlib.Path(folder)
        lay_over(scratch)
        place = Place(options, scratch)
        try:
            for line in (each for each in lines if options.match in each):
                entry = entries.get(line, {})
                reason = reason_against(line, entry, options)
                started = time.monotonic()
                complaint = run(line, entry, place) if not reason else ""
                if complaint is None:
                    reason = "left out, as packages are missing"
                if reason:
                    groups[reason].append(line)
                    continue
                ran += 1
                print(f"{'failed' if complaint else 'ok':6} {time.monotonic() - started:6.1f} s  {line}", flush=True)
                if complaint:
                    failed += 1
                    print(f"of {', '.join(sorted(set(lines[line])))}: {complaint}", flush=True)
        finally:
            place.end()
            os.chdir("/")
            subprocess.run(["umount", "--lazy", ROOT], capture_output=True, check=False)
    for reason, left in sorted(groups.items()):
        print(f"{reason}:", *left, sep="\n    ")
    print(f"docs: {len(lines)} lines; {ran} run, {sum(map(len, groups.values()))} not, {failed} complaints")
    sys.exit(1 if failed or not ran else 0)


if __name__ == "__main__":
    main()
