"""tutti run with real processes: exit codes, prefixes, ending the rest, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI = sys.argv.pop(1)
LIMIT = 300  # seconds: many times what the longest needs, and still an end


def run(*arguments, stdin=subprocess.DEVNULL, env=None, timeout=LIMIT):
    return subprocess.run(
        [TUTTI, "run", *arguments], stdin=stdin, capture_output=True, text=True, env=env, timeout=timeout
    )


def is_alive(pid):
    """A process that is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=LIMIT):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Run(unittest.TestCase):
    def test_sets_what_torchrun_sets(self):
        names = "$RANK/$WORLD_SIZE/$LOCAL_RANK/$LOCAL_WORLD_SIZE/$MASTER_ADDR"
        result = run("-n", "3", "--", "sh", "-c", f'echo "{names} $MASTER_PORT"')
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = sorted(result.stdout.splitlines())
        ports = {line.split()[-1] for line in lines}
        self.assertEqual(len(ports), 1)
        self.assertGreater(int(ports.pop()), 1023)
        self.assertEqual([line.rsplit(" ", 1)[0] for line in lines], [f"[{r}] {r}/3/{r}/3/127.0.0.1" for r in range(3)])

    def test_an_allocation_of_this_host_alone_changes_nothing(self):
        env = dict(os.environ, SLURM_JOB_NODELIST=socket.gethostname(), SLURM_TASKS_PER_NODE="5")
        result = run("--", "sh", "-c", 'echo "$RANK/$WORLD_SIZE"', env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] 0/2", "[1] 1/2"])

    def test_an_allocation_that_cannot_be_read_is_an_error_unless_unwanted(self):
        env = dict(os.environ, SLURM_JOB_NODELIST="node[1-2", SLURM_TASKS_PER_NODE="1(x2)")
        result = run("--", "true", env=env)
        self.assertEqual(result.returncode, 2)
        self.assertIn("SLURM_JOB_NODELIST=node[1-2: a ']' is missing", result.stderr)
        self.assertEqual(run("--local", "--", "true", env=env).returncode, 0)
        step = dict(env, SLURM_STEP_ID="0", SLURM_PROCID="0", SLURM_NTASKS="2")
        self.assertEqual(run("--", "true", env=step).returncode, 0)

    def test_puts_its_library_first(self):
        library = os.path.realpath(os.path.join(os.path.dirname(TUTTI), "..", "lib"))
        if not os.path.exists(os.path.join(library, "libnccl.so.2")):
            self.skipTest("no libnccl.so.2 built")
        env = dict(os.environ, LD_LIBRARY_PATH="/elsewhere")
        result = run("-n", "1", "--", "sh", "-c", 'echo "$LD_LIBRARY_PATH ${LD_PRELOAD-none}"', env=env)
        self.assertEqual(result.stdout, f"[0] {library}:/elsewhere none\n")
        needed = subprocess.run(["ldd", f"{library}/libnccl.so.2"], capture_output=True, text=True).stdout
        if "libasan" in needed or "libtsan" in needed:
            self.skipTest("a sanitized library cannot be preloaded into a plain program")
        result = run("-n", "1", "--preload", "--", "sh", "-c", 'echo "$LD_PRELOAD"')
        self.assertIn(f"{library}/libnccl.so.2", result.stdout)
        for given, policy in ((None, "1"), ("0", "0")):
            env = {name: value for name, value in os.environ.items() if name != "NCCL_CTA_POLICY"}
            if given is not None:
                env["NCCL_CTA_POLICY"] = given
            result = run("-n", "1", "--preload", "--", "sh", "-c", 'echo "$NCCL_CTA_POLICY"', env=env)
            self.assertEqual(result.stdout, f"[0] {policy}\n")

    def test_lines_of_ranks_never_mix(self):
        script = 'i=0; while [ $i -lt 500 ]; do printf "a%s" $RANK; printf "b%s\\n" $RANK; i=$((i+1)); done'
        result = run("-n", "4", "--", "sh", "-c", script)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 2000)
        for line in lines:
            rank = line[1]
            self.assertEqual(line, f"[{rank}] a{rank}b{rank}")

    def test_last_line_without_an_end_is_kept(self):
        self.assertEqual(run("-n", "1", "--", "printf", "half").stdout, "[0] half\n")

    def test_errors_stay_on_standard_error(self):
        result = run("-n", "1", "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr), ("[0] out\n", "[0] err\n"))

    def test_without_prefix(self):
        self.assertEqual(run("-n", "2", "--no-prefix", "--", "echo", "x").stdout, "x\nx\n")

    def test_arguments_reach_the_program_as_they_are(self):
        result = run("-n", "1", "--", "printf", "%s|", "-n", "a b", "--", "--timeout", "")
        self.assertEqual(result.stdout, "[0] -n|a b|--|--timeout||\n")

    def test_rank_0_alone_reads_standard_input(self):
        with tempfile.TemporaryFile("w+") as source:
            source.write("hello\n")
            source.seek(0)
            result = run("-n", "2", "--", "sh", "-c", 'cat; echo "end $RANK"', stdin=source)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] end 0", "[0] hello", "[1] end 1"])

    def test_exit_code_of_the_first_rank_that_failed(self):
        script = '[ $RANK = 1 ] && exit 7; exec sleep 1000'
        result = run("-n", "3", "--", "sh", "-c", script)
        self.assertEqual(result.returncode, 7)
        self.assertRegex(result.stderr, r"rank 1 \(pid \d+\) exited with code 7; ending the others")

    def test_names_the_signal_that_killed_a_rank(self):
        result = run("-n", "2", "--", "sh", "-c", '[ $RANK = 0 ] && kill -9 $$; exec sleep 1000')
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertRegex(result.stderr, r"rank 0 \(pid \d+\) was killed by SIGKILL \(Killed\)")

    def test_kills_ranks_that_do_not_end_when_asked(self):
        script = '[ $RANK = 1 ] && exit 3; trap "" TERM; while :; do sleep 0.1; done'
        result = run("-n", "2", "--", "sh", "-c", script)
        self.assertEqual(result.returncode, 3)

    def test_a_program_that_is_not_there(self):
        result = run("-n", "1", "--", "/nonexistent/program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("cannot start /nonexistent/program: No such file", result.stderr)

    def test_time_limit(self):
        result = run("-n", "2", "--timeout", "1", "--", "sleep", "1000")
        self.assertEqual(result.returncode, 4)
        self.assertIn("--timeout", result.stderr)

    def test_usage(self):
        for arguments in ([], ["-n", "0", "--", "true"], ["-n", "x", "--", "true"], ["--nonsense", "--", "true"]):
            self.assertEqual(run(*arguments).returncode, 2, arguments)

    def test_a_hand_over_without_a_name_is_refused(self):
        for wrong in ("=3", "A B=3", ""):
            self.assertEqual(run("-n", "1", "-x", wrong, "--", "true").returncode, 2, wrong)
        self.assertEqual(run("-n", "1", "-x", "A=3", "--", "true").returncode, 0)

    def test_ranks_end_when_nobody_reads_them(self):
        with subprocess.Popen([TUTTI, "run", "-n", "2", "--", "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launch:
            launch.stdout.readline()
            launch.stdout.close()
            self.assertEqual(launch.wait(LIMIT), 128 + signal.SIGPIPE)
            self.assertEqual(launch.stderr.read(), "")

    def test_what_cannot_be_written_is_told(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            lost = subprocess.run([TUTTI, "run", "-n", "2", "--", "echo", "hi"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=LIMIT, check=False)
        self.assertEqual(lost.returncode, 3)
        self.assertIn("cannot write what the ranks print: No space left", lost.stderr)

    def test_what_a_rank_leaves_behind_ends_with_it(self):
        result = run("-n", "1", "--", "sh", "-c", "sleep 1000 & echo $!")
        self.assertEqual(result.returncode, 0)
        left = int(result.stdout.split()[1])
        self.assertTrue(wait_until(lambda: not is_alive(left)))

    def start(self, *arguments):
        process = subprocess.Popen(
            [TUTTI, "run", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(process.communicate)
        return process

    def test_passes_signals_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            script = f'trap "echo caught; exit 0" {number.value}; echo $$; while :; do sleep 0.05; done'
            process = self.start("-n", "2", "--", "sh", "-c", script)
            pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
            process.send_signal(number)
            output, _ = process.communicate(timeout=LIMIT)
            self.assertEqual(sorted(output.split()), ["[0]", "[1]", "caught", "caught"])
            self.assertEqual(process.returncode, 128 + number)
            self.assertFalse(any(is_alive(pid) for pid in pids))

    def test_ranks_die_with_a_killed_launcher(self):
        process = self.start("-n", "3", "--", "sh", "-c", "echo $$; exec sleep 1000")
        pids = [int(process.stdout.readline().split()[1]) for _ in range(3)]
        self.assertTrue(all(is_alive(pid) for pid in pids))
        process.kill()
        process.wait()
        self.assertTrue(wait_until(lambda: not any(is_alive(pid) for pid in pids)))

    def test_a_rank_that_never_stops_writing_can_be_stopped(self):
        result = run("-n", "2", "--timeout", "1", "--", "sh", "-c", "exec yes")
        self.assertEqual(result.returncode, 4)

    def test_leaves_no_zombies_while_it_runs(self):
        process = self.start("-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] && { echo $$; exit 0; }; exec sleep 1000")
        pid = int(process.stdout.readline().split()[1])
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{pid}")))
        self.assertIsNone(process.poll())
        process.terminate()
        process.communicate(timeout=LIMIT)

    def test_no_colours_in_a_pipe(self):
        self.assertNotIn("\x1b", run("-n", "2", "--", "echo", "x").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
