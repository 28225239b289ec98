"""What is installed and packed, as a user meets it: found, compiled against, run, moved, completed, listed.

Usage: package_test.py BUILD_FOLDER SOURCE_FOLDER CMAKE CPACK
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

BUILD = SOURCE = pathlib.Path()
CMAKE = CPACK = ""


def run(*command, env=None, code=0, **options):
    """Runs with none of the caller's settings, on CPU ranks; returns standard output."""
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("NCCL_", "TUTTI_", "LD_", "PKG_CONFIG", "CMAKE_"))}
    clean.update({"TUTTI_DEVICE": "host", **(env or {})})
    result = subprocess.run([str(each) for each in command], env=clean, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=300, check=False, **options)
    if result.returncode != code:
        raise AssertionError(f"{command} ended with {result.returncode}, not {code}:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Folder(unittest.TestCase):
    """Each test has an empty folder."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="tutti-package-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)


class InstalledTree(Folder):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="tutti-install-")
        cls.addClassCleanup(cls.holder.cleanup)
        first = pathlib.Path(cls.holder.name) / "first"
        run(CMAKE, "--install", BUILD, "--prefix", first)
        # What is tested was moved after it was installed.
        cls.home = pathlib.Path(cls.holder.name) / "elsewhere" / "home"
        cls.home.parent.mkdir()
        first.rename(cls.home)

    def test_has_the_layout_of_a_nccl_home(self):
        for name in ("include/nccl.h", "include/nccl_device.h", "include/tutti/tutti.hpp", "lib/libnccl.so",
                     "lib/libnccl.so.2", "lib/pkgconfig/nccl.pc", "lib/pkgconfig/tutti.pc", "bin/tutti",
                     "share/bash-completion/completions/tutti"):
            self.assertTrue((self.home / name).exists(), name)
        self.assertEqual(os.readlink(self.home / "lib/libnccl.so"), "libnccl.so.2")
        self.assertFalse((self.home / "usr").exists(), "the layout of the deb packages was installed, too")

    def test_the_moved_command_finds_its_library(self):
        output = run(self.home / "bin/tutti", "perf", "all_reduce", "-n", "2", "-b", "1K", "-e", "1K", "--iters", "1")
        self.assertIn("Out of bounds values : 0 OK", output)

    def test_what_goes_into_the_wheel_is_whole_and_stripped(self):
        run(CMAKE, "--install", BUILD, "--prefix", self.folder, "--component", "python", "--strip")
        for name in ("lib/libnccl.so.2", "bin/tutti"):
            self.assertNotIn(".debug_info", run("readelf", "-SW", self.folder / "tutti" / name), name)
        self.assertIn("2.28.9", run(self.folder / "tutti/bin/tutti", "version"))
        for name in ("__init__.py", "py.typed", "torch/csrc/lane.cc", "include/nccl.h"):
            self.assertTrue((self.folder / "tutti" / name).exists(), name)

    def compile_with_pkg_config(self, name):
        env = {"PKG_CONFIG_PATH": str(self.home / "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", name, env=env).split()
        program = self.folder / "program"
        run(os.environ.get("CC", "cc"), SOURCE / "examples/threads.c", "-o", program, *flags, "-pthread")
        libraries = run("pkg-config", "--variable=libdir", name, env=env).strip()
        run(program, "3", env={"LD_LIBRARY_PATH": libraries})

    @needs("pkg-config")
    def test_a_program_compiles_with_each_pkg_config_name(self):
        for name in ("nccl", "tutti"):
            with self.subTest(name=name):
                self.compile_with_pkg_config(name)

    @needs("pkg-config")
    def test_the_lines_of_the_pages_that_compile_and_start_a_program_run(self):
        shutil.copy(SOURCE / "examples/one_thread.c", self.folder / "app.c")
        (self.folder / "tutti").symlink_to(self.home)
        (self.folder / "examples").symlink_to(SOURCE / "examples")
        env = {"HOME": str(self.folder), "PKG_CONFIG_PATH": str(self.home / "lib/pkgconfig")}
        text = "".join((SOURCE / page).read_text(encoding="utf-8") for page in ("README.md", "docs/PACKAGES.md"))
        lines = re.findall(r"^    ((?:cc|cmake -S|LD_PRELOAD=\S+) .*)$", text, re.MULTILINE)
        self.assertGreaterEqual(len(lines), 4)
        for line in lines:
            with self.subTest(line=line):
                run("bash", "-ec", line, env=env, cwd=self.folder)
                program = "build/app/cpp_raii" if line.startswith("cmake") else "./app"
                run(program, env={"LD_LIBRARY_PATH": str(self.home / "lib")}, cwd=self.folder)

    def test_a_project_builds_with_each_cmake_package(self):
        for package in ("NCCL", "tutti"):
            with self.subTest(package=package):
                build = self.folder / package
                output = run(CMAKE, "-S", SOURCE / "examples/find_package", "-B", build, f"-DPACKAGE={package}",
                             f"-DCMAKE_PREFIX_PATH={self.home}")
                self.assertIn(f"in {self.home.resolve()}/include", output)
                run(CMAKE, "--build", build)
                run(build / "threads", "3")
                run(build / "cpp_raii", "2")

    def test_cmake_says_what_is_missing(self):
        broken = self.folder / "broken"
        shutil.copytree(self.home, broken, symlinks=True)
        (broken / "include/nccl.h").unlink()
        with self.assertRaisesRegex(AssertionError, "nccl.h is missing"):
            run(CMAKE, "-S", SOURCE / "examples/find_package", "-B", self.folder / "build", "-DPACKAGE=NCCL",
                f"-DNCCL_DIR={broken}/lib/cmake/NCCL")


class Pages(unittest.TestCase):
    """Manual pages and completions know what the command knows."""

    share = property(lambda self: BUILD / "share")

    def commands(self):
        text = run(BUILD / "bin/tutti", "--help").split("Subcommands:")[1]
        return re.findall(r"^  (\w+) ", text, re.MULTILINE)

    def test_each_subcommand_has_a_manual_page_with_its_options(self):
        for command in self.commands():
            path = next((self.share / "man/man1").glob(f"tutti-{command}.1*"))
            text = gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text()
            self.assertIn("\\-\\-help", text)
            for option in re.findall(r"^  (--[a-z-]+|-[a-zA-Z])\b", run(BUILD / "bin/tutti", command, "--help"),
                                     re.MULTILINE):
                self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", text, command)

    @needs("groff")
    def test_roff_finds_nothing_to_warn_of(self):
        for page in sorted((self.share / "man/man1").iterdir()):
            text = gzip.open(page).read() if page.suffix == ".gz" else page.read_bytes()
            result = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=text, capture_output=True, check=True)
            self.assertEqual(result.stderr, b"", page.name)

    def complete(self, *words):
        script = (f"source {self.share / 'tutti.bash'}; COMP_WORDS=({' '.join(words)}); "
                  f"COMP_CWORD={len(words) - 1}; _tutti; echo \"${{COMPREPLY[@]}}\"")
        return run("bash", "-c", script).split()

    @needs("bash")
    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(set(self.complete("tutti", "''")) - {"-h", "--help", "--version"}, set(self.commands()))
        self.assertEqual(self.complete("tutti", "perf", "all_r"), ["all_reduce"])
        self.assertEqual(self.complete("tutti", "perf", "all_reduce", "--minb"), ["--minbytes"])
        self.assertEqual(self.complete("tutti", "perf", "-o", "p"), ["prod"])
        self.assertEqual(self.complete("tutti", "completion", "f"), ["fish"])

    @needs("zsh")
    def test_zsh_can_read_its_completions(self):
        run("zsh", "-n", self.share / "_tutti")

    @needs("fish")
    def test_fish_completes_commands_and_values(self):
        def complete(line):
            script = f"source {self.share / 'tutti.fish'}; complete -C '{line}'"
            return [each.split("\t")[0] for each in run("fish", "--no-config", "-c", script).splitlines()]

        self.assertLessEqual(set(self.commands()), set(complete("tutti ")))
        self.assertEqual(complete("tutti perf -o pr"), ["prod"])


class Packages(Folder):
    def pack(self, kind):
        run(CPACK, "-G", kind, "-B", self.folder, "--config", BUILD / "CPackConfig.cmake",
            "-D", f"CPACK_OUTPUT_FILE_PREFIX={self.folder}", cwd=BUILD)
        return sorted(each for each in self.folder.iterdir() if each.is_file())

    def test_the_archive_runs_where_it_is_unpacked(self):
        (archive,) = self.pack("TGZ")
        with tarfile.open(archive) as file:
            file.extractall(self.folder / "unpacked")
        (home,) = (self.folder / "unpacked").iterdir()
        self.assertIn("2.28.9", run(home / "bin/tutti", "version"))
        self.assertTrue((home / "lib/libnccl.so.2").is_symlink())

    def check_debian_rules(self, deb, root):
        """What lintian would say, where it is not installed."""
        run("dpkg-deb", "-R", deb, root)
        name = run("dpkg-deb", "-f", deb, "Package").strip()
        for file in ("copyright", "changelog.gz"):
            self.assertTrue((root / "usr/share/doc" / name / file).exists(), file)
        for path in root.rglob("*"):
            self.assertFalse(path.stat(follow_symlinks=False).st_mode & 0o022 and not path.is_symlink(),
                             f"others may write {path}")
            if path.is_symlink():
                self.assertFalse(os.path.isabs(os.readlink(path)), f"{path} points to an absolute path")
            elif path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                self.assertNotIn(".debug_info", run("readelf", "-SW", path), f"{path} is not stripped")
        for path in (root / "usr/share/man").rglob("*.1*"):
            self.assertEqual(path.suffix, ".gz", path)
        return name

    @needs("dpkg-shlibdeps")
    def test_debs_hold_what_debian_wants_and_nothing_that_others_own(self):
        owned_by_nvidia = re.compile(r"usr/(include/nccl|lib/(x86_64|aarch64)-linux-gnu/|lib/libnccl|lib/pkgconfig/nccl"
                                     r"|lib/cmake/NCCL)")
        files = {}
        for deb in self.pack("DEB"):
            root = self.folder / deb.stem
            name = self.check_debian_rules(deb, root)
            files[name] = {str(path.relative_to(root)) for path in root.rglob("*")
                           if (path.is_symlink() or not path.is_dir()) and path.parent.name != "DEBIAN"}
            for path in files[name]:
                self.assertIsNone(owned_by_nvidia.match(path), path)
        self.assertEqual(set(files), {"libtutti-nccl2", "libtutti-dev", "tutti"})
        self.assertIn("usr/lib/tutti/lib/libnccl.so.2", files["libtutti-nccl2"])
        self.assertIn("usr/lib/tutti/include/nccl.h", files["libtutti-dev"])
        self.assertIn("usr/lib/pkgconfig/tutti.pc", files["libtutti-dev"])
        self.assertIn("usr/bin/tutti", files["tutti"])
        self.assertFalse(files["libtutti-nccl2"] & files["libtutti-dev"])

    @needs("lintian")
    @needs("dpkg-shlibdeps")
    def test_lintian_finds_no_error(self):
        debs = self.pack("DEB")
        run("lintian", "--allow-root", "--fail-on", "error", *debs)

    @needs("rpmbuild")
    @needs("rpm")
    def test_rpms_promise_no_library_that_others_would_find(self):
        packages = self.pack("RPM")
        self.assertEqual(len(packages), 3)
        for package in packages:
            self.assertNotIn("libnccl.so", run("rpm", "-qp", "--provides", "--requires", package))


if __name__ == "__main__":
    BUILD, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    CMAKE, CPACK = sys.argv[3:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
