"""tutti perf with real ranks: every collective, how ranks are started and found, exit codes, outputs."""

import contextlib
import csv
import functools
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SABOTAGE = sys.argv.pop(2)
TUTTI = sys.argv.pop(1)
COLLECTIVES = "all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv".split()
LIMIT = 300  # seconds: many times what the longest needs, and still an end
QUICK = ["--iters", "2", "-w", "1"]
ROW = re.compile(r"^ +\d+ +\d+ +\w+ +\w+ +-?\d+( +[\d.]+){3} +(\d+|N/A)( +[\d.]+){3} +(\d+|N/A)$")


def environment(**changes):
    """Ours, without a launcher that this test may itself run under."""
    names = ("RANK", "WORLD_SIZE", "OMPI_", "PMI", "SLURM_", "NCCL_TESTS_", "NCCL_COMM_ID")
    env = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    env.update(changes)
    return env


def perf(*arguments, env=None, timeout=LIMIT):
    return subprocess.run(
        [TUTTI, "perf", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env or environment(), timeout=timeout
    )


@functools.cache
def libraries():
    """What the command is linked with."""
    return subprocess.run(["ldd", TUTTI], capture_output=True, text=True).stdout


def leave_out_with_asan(why):
    if "libasan" in libraries():
        raise unittest.SkipTest(why)


def sabotaged(what, *arguments):
    preload = SABOTAGE
    leave_out_with_asan("ASan does not run behind another preloaded library")
    env = environment(LD_PRELOAD=preload, SABOTAGE=what)
    return perf("all_reduce", "-n", "3", "-b", "256", "-e", "4K", "-f", "4", *QUICK, *arguments, env=env)


def rows(output):
    return [line for line in output.splitlines() if line and not line.startswith("#")]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Perf(unittest.TestCase):
    def check(self, result, row_count=None):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("# Out of bounds values : 0 OK\n", result.stdout)
        self.assertEqual(result.stderr, "")
        for row in rows(result.stdout):
            self.assertRegex(row, ROW)
        if row_count is not None:
            self.assertEqual(len(rows(result.stdout)), row_count, result.stdout)

    @contextlib.contextmanager
    def another_library(self):
        """A copy of ours, which perf opens with RTLD_DEEPBIND."""
        leave_out_with_asan("ASan allows no library that binds deeply")
        own = re.search(r"libnccl\.so\.2 => (\S+)", libraries())[1]
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "libnccl.so.2")
            shutil.copy(own, other)
            yield other

    def test_another_library_has_the_settings_too(self):
        with self.another_library() as other:
            result = perf("all_reduce", "-n", "2", "-b", "64", "-e", "64", *QUICK, "--lib", other,
                          env=environment(NCCL_ALGO="ring", NCCL_DEBUG="INFO"))
        self.assertEqual(result.returncode, 0, result.stderr)
        choices = re.findall(r"choice AllReduce +(.*)", result.stdout + result.stderr)
        self.assertEqual(choices, ["ring", "ring"])

    def test_another_library_is_timed_in_turn(self):
        with self.another_library() as other:
            for ranks in (["-n", "2"], ["-t", "2"]):
                result = perf("all_reduce", *ranks, "-o", "mulsum", "-b", "64", "-e", "4K", "-f", "64", *QUICK, "--lib", other,
                              "--json", "-")
                self.assertEqual(result.returncode, 0, result.stderr)
                report = json.loads(result.stdout)
                self.assertEqual(report["peer"], other)
                self.assertEqual(report["out_of_bounds"], 0)
                for row in report["results"]:
                    side = row["out_of_place"]
                    self.assertAlmostEqual(side["ratio"], side["peer_time_us"] / side["time_us"])
            refused = perf("all_reduce", *QUICK, "--lib", __file__)
            self.assertEqual(refused.returncode, 3)
            self.assertIn("cannot load", refused.stderr)

    def test_another_library_may_have_buffers_of_another_kind(self):
        leave_out_with_asan("ASan allows no library that binds deeply")
        for own, theirs, windows in (("0", "2", 4), ("2", "0", 0), ("2", None, 4)):
            kind = ["--lib-register", theirs] if theirs else []
            result = perf("all_reduce", "-n", "2", "-b", "4K", "-e", "4K", *QUICK, "-R", own, "--lib", SABOTAGE, *kind)
            self.assertEqual(result.returncode, 0, result.stderr)
            # Of each rank one for each of two buffers.
            self.assertEqual(result.stderr.count("sabotage: a window"), windows, result.stdout + result.stderr)

    def test_rows_that_nobody_checks_are_filled_once(self):
        for collective in ("all_reduce", "reduce_scatter", "alltoall"):
            result = perf(collective, "-n", "3", "-b", "4", "-e", "300K", "-f", "7", *QUICK, "-c", "0")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.count("N/A"), 2 * 6, result.stdout)

    def test_every_collective_with_every_rank_count(self):
        for ranks in (1, 2, 3, 4, 8):
            for collective in COLLECTIVES:
                with self.subTest(ranks=ranks, collective=collective):
                    self.check(perf(collective, "-n", str(ranks), "-b", "0", "-e", "300K", "-f", "37", *QUICK), 5)

    def test_every_type_and_reduction(self):
        for collective in ("all_reduce", "reduce_scatter", "reduce"):
            with self.subTest(collective):
                self.check(perf(collective, "-n", "3", "-o", "all", "-d", "all", "-b", "2400", "-e", "2400", *QUICK), 12 * 6)

    def test_every_type_moves(self):
        self.check(perf("all_gather", "-n", "2", "-d", "all", "-b", "80K", "-e", "80K", *QUICK), 12)

    def test_every_root(self):
        for collective in ("broadcast", "reduce", "gather", "scatter"):
            with self.subTest(collective):
                result = perf(collective, "-n", "4", "-r", "all", "-b", "4K", "-e", "4K", *QUICK)
                self.check(result, 4)
                self.assertEqual([row.split()[4] for row in rows(result.stdout)], ["0", "1", "2", "3"])

    def test_ranks_as_threads(self):
        self.check(perf("all_reduce", "-t", "4", "-b", "1K", "-e", "64K", "-f", "8", *QUICK), 3)
        result = perf("alltoall", "-n", "2", "-t", "2", "-b", "64K", "-e", "64K", *QUICK)
        self.check(result, 1)
        self.assertEqual(len(re.findall(r"^#  Rank", result.stdout, re.M)), 4)
        self.assertEqual(len(set(re.findall(r"Pid +(\d+)", result.stdout))), 2)

    def test_many_ranks_on_few_cores(self):
        self.check(perf("all_reduce", "-n", "32", "-b", "1K", "-e", "64K", "-f", "8", "--iters", "5"), 3)

    def test_ways_of_calling(self):
        for arguments in (["--stream"], ["-m", "3"], ["-z", "1"], ["-z", "2"], ["-z", "3"], ["-a", "3"], ["-u", "1"],
                          ["-N", "2"], ["-c", "3"], ["--no-pin"], ["-m", "2", "--stream"]):
            with self.subTest(arguments):
                self.check(perf("all_reduce", "-n", "2", "-b", "4K", "-e", "4K", *QUICK, *arguments))

    def test_registered_buffers(self):
        for kind in ("1", "2"):
            result = perf("all_reduce", "-n", "2", "-b", "4K", "-e", "4K", *QUICK, "-R", kind)
            if "cannot be registered in this build" in result.stderr:
                self.assertEqual(result.returncode, 3)
                self.skipTest("the library registers no buffers")
            self.check(result, 1)

    def test_unchecked_is_not_called_right(self):
        result = perf("all_reduce", "-n", "2", "-b", "4K", "-e", "4K", "-c", "0", *QUICK)
        self.assertEqual(rows(result.stdout)[0].split().count("N/A"), 2)

    def test_adapts_iterations(self):
        result = perf("all_reduce", "-n", "2", "-b", "64", "-e", "64", "--min-time", "0.5", "--json", "-")
        # Thousands on an idle machine; a loaded one may take milliseconds for each.
        self.assertGreater(json.loads(result.stdout)["results"][0]["out_of_place"]["iterations"], 20)

    def test_ranks_that_read_each_others_memory(self):
        for collective in ("all_reduce", "all_gather", "broadcast", "alltoall", "sendrecv", "reduce_scatter"):
            for ranks in ("2", "3"):
                with self.subTest(collective=collective, ranks=ranks):
                    result = perf(collective, "-n", ranks, "-b", "1M", "-e", "1M", *QUICK, env=environment(TUTTI_PROCESS_READ="1"))
                    self.check(result, 1)

    def test_ranks_that_try_forms_and_algorithms(self):
        # Some hundred calls of a shape: the trial is over, and what it chose is what is checked.
        for collective, ranks in (("all_reduce", "2"), ("all_gather", "2"), ("alltoall", "3"), ("reduce_scatter", "3")):
            for buffers in ("0", "1"):
                with self.subTest(collective=collective, buffers=buffers):
                    result = perf(collective, "-n", ranks, "-b", "96K", "-e", "96K", "-R", buffers, "--iters", "400", "-c", "3")
                    self.check(result, 1)

    def test_json_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            result = perf("reduce", "-n", "3", "-b", "8", "-e", "512", "-f", "8", "-J", path, "--csv", "-", *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                report = json.load(file)
        self.assertEqual(report["collective"], "reduce")
        self.assertEqual([row["size"] for row in report["results"]], [8, 64, 512])
        self.assertEqual(report["results"][0]["in_place"]["wrong"], 0)
        self.assertEqual(len(report["places"]), 3)
        table = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertEqual([row["size"] for row in table], ["8", "64", "512"])
        self.assertEqual(table[0]["out_of_place_wrong"], "0")

    def test_json_by_another_name_of_standard_output_is_alone_there(self):
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run([TUTTI, "perf", "all_reduce", "-b", "8", "-e", "8", *QUICK, "--json", "/dev/stdout"],
                                  stdout=out, env=environment(), timeout=LIMIT, check=False)
            out.seek(0)
            self.assertEqual((done.returncode, json.load(out)["collective"]), (0, "all_reduce"))
        both = perf("all_reduce", "--json", "/dev/stdout", "--csv", "-")
        self.assertEqual(both.returncode, 2)

    def test_a_reader_that_has_enough_is_nobodys_fault(self):
        with subprocess.Popen([TUTTI, "perf", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "-N", "0", *QUICK],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as child:
            child.stdout.readline()
            child.stdout.close()
            self.assertEqual(child.wait(LIMIT), 128 + signal.SIGPIPE)
            self.assertEqual(child.stderr.read(), "")

    def test_few_descriptors_are_named_in_the_error_itself(self):
        limited = f"ulimit -n 10; exec {TUTTI} perf all_reduce -n 8 -b 8 -e 8"
        result = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=LIMIT, check=False,
                                env=environment(TUTTI_TIMEOUT_MS="1000"))
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"^tutti perf: rank \d: .* 10 \(ulimit -n\)")

    def test_without_proc_the_own_library_is_measured(self):
        leave_out_with_asan("its leak checker reads /proc")
        script = f'umount -l /proc && exec "$0" perf all_reduce -n 2 -b 8 -e 8 {" ".join(QUICK)}'
        try:
            result = subprocess.run(["unshare", "--mount", "sh", "-c", script, TUTTI], capture_output=True, text=True, timeout=LIMIT,
                                    env=environment(LD_DEBUG="libs", LSAN_OPTIONS="detect_leaks=0"), check=False)
        except FileNotFoundError:
            self.skipTest("no unshare")
        own = os.path.realpath(os.path.join(os.path.dirname(TUTTI), "../lib/libnccl.so.2"))
        loaded = re.findall(r"calling init: (\S*libnccl\S*)", result.stderr)
        if not loaded:
            self.skipTest("no namespace of mounts, or no library of the system's")
        self.assertEqual(result.returncode, 0, result.stderr[-1000:])
        self.assertEqual(os.path.realpath(loaded[-1]), own)

    def test_a_small_stack_is_enough(self):
        for collective in ("all_reduce", "alltoall"):
            limited = f"ulimit -s 64; exec {TUTTI} perf {collective} -n 3 -b 8 -e 1M -f 16 {' '.join(QUICK)}"
            result = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=LIMIT, env=environment(), check=False)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_file_that_cannot_be_made(self):
        result = perf("all_reduce", "-b", "8", "-e", "8", *QUICK, "--csv", "/nonexistent/x.csv")
        self.assertEqual(result.returncode, 3)
        self.assertIn("/nonexistent/x.csv", result.stderr)

    def test_too_slow(self):
        self.assertEqual(perf("all_reduce", "-b", "8", "-e", "8", *QUICK, "--min-bw", "1e9").returncode, 1)
        result = perf("all_reduce", "-b", "8", "-e", "8", *QUICK, env=environment(NCCL_TESTS_MIN_BW="1e9"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED", result.stdout)

    def test_usage(self):
        for arguments in ([], ["allreduce"], ["all_reduce", "-n", "0"], ["all_reduce", "-b", "x"], ["reduce", "-n", "2", "-r", "2"],
                          ["all_reduce", "-b", "8", "-e", "4"], ["all_reduce", "-d", "quarter"], ["all_reduce", "-f", "1"]):
            with self.subTest(arguments):
                result = perf(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
        self.assertEqual(perf("all_reduce", env=environment(NCCL_TESTS_MIN_BW="fast")).returncode, 2)

    def test_more_memory_than_there_is(self):
        result = perf("all_reduce", "-n", "64", "-b", "64G", "-e", "64G")
        self.assertEqual(result.returncode, 3)
        self.assertIn("MiB are free", result.stderr)

    def test_sees_a_wrong_element(self):
        for what in ("element", "beyond", "input"):
            with self.subTest(what):
                result = sabotaged(what)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stdout, r"# Out of bounds values : [12] FAILED")
                wrong = [row.split()[8] for row in rows(result.stdout)]
                self.assertEqual(wrong, ["0", "1", "0"])

    def test_a_dead_rank_ends_all(self):
        result = sabotaged("die")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"rank 1 \(pid \d+\) was killed by SIGKILL")
        self.assertFalse(any(is_alive(pid) for pid in re.findall(r"Pid +(\d+)", result.stdout)))

    def test_a_failing_rank_says_why(self):
        result = sabotaged("fail")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"tutti perf: rank 1: ncclAllReduce: invalid usage")

    def test_time_limit(self):
        result = sabotaged("hang", "-T", "1")
        self.assertEqual(result.returncode, 4)
        self.assertIn("-T), in the row of 1024 bytes", result.stderr)
        # Rank 1 never comes: the time is over before the ranks have met.
        waiting = environment(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                              MASTER_PORT="1", TORCHELASTIC_RUN_ID=f"perf-test-{os.getpid()}")
        result = perf("all_reduce", "-T", "1", env=waiting)
        self.assertEqual(result.returncode, 4)
        self.assertIn("only 1 of 2 processes came", result.stderr)

    def start_endless(self):
        process = subprocess.Popen(
            [TUTTI, "perf", "all_reduce", "-n", "3", "-N", "0", "-b", "8", "-e", "8", *QUICK],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.communicate)
        pids = []
        for line in process.stdout:
            pids += re.findall(r"^#  Rank.*Pid +(\d+)", line)
            if ROW.match(line.rstrip("\n")):
                break
        self.assertEqual(len(pids), 3)
        return process, pids

    def test_signals_end_all_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, pids = self.start_endless()
            process.send_signal(number)
            process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 128 + number)
            self.assertFalse(any(is_alive(pid) for pid in pids))

    def test_ranks_die_with_their_parent(self):
        process, pids = self.start_endless()
        process.kill()
        process.communicate(timeout=LIMIT)
        deadline = time.monotonic() + LIMIT
        while any(is_alive(pid) for pid in pids):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


class Launchers(unittest.TestCase):
    def launch(self, *command, **env):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                                    env=environment(XDG_RUNTIME_DIR=folder, **env))
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("tutti")], [])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(re.findall(r"^#  Rank", result.stdout, re.M)), 4, result.stdout)
        self.assertEqual(result.stdout.count("# Out of bounds values : 0 OK"), 1)

    def test_tutti_run(self):
        self.launch(TUTTI, "run", "-n", "4", "--no-prefix", "--", TUTTI, "perf", "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", *QUICK)

    def test_threads_in_launched_processes(self):
        self.launch(TUTTI, "run", "-n", "2", "--no-prefix", "--", TUTTI, "perf", "all_gather", "-t", "2", "-b", "1K", "-e", "64K", "-f", "8", *QUICK)

    def test_ranks_that_share_nothing_but_an_address(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.launch(TUTTI, "run", "-n", "4", "--no-prefix", "--", TUTTI, "perf", "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", *QUICK,
                    NCCL_COMM_ID=f"127.0.0.1:{port}")

    def test_open_mpi(self):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun")
        self.launch("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", TUTTI, "perf", "broadcast",
                    "-b", "1K", "-e", "64K", "-f", "8", *QUICK)

    def test_own_ranks_when_asked_under_a_launcher(self):
        result = perf("all_reduce", "-n", "2", "-b", "8", "-e", "8", *QUICK,
                      env=environment(RANK="0", WORLD_SIZE="9", MASTER_ADDR="127.0.0.1", MASTER_PORT="1"))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_several_hosts_need_an_address(self):
        result = perf("all_reduce", env=environment(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_NNODES="2", SLURM_STEP_ID="0"))
        self.assertEqual(result.returncode, 3)
        self.assertIn("NCCL_COMM_ID", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
