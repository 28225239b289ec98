"""A rank that dies, exits or crashes, at any point of its life, is named by all others within T."""

import itertools
import os
import re
import subprocess
import time
import unittest

from harness import BOUND, INIT_PHASES, LIMIT, REMOTE, TUTTI, FaultCase, HostEach, by_process, last_call

# What calls each collective; a root where there is one.
CALLS = {
    "all_reduce": "allreduce:{}",
    "all_gather": "allgather:{}",
    "reduce_scatter": "reducescatter:{}",
    "broadcast": "broadcast:{}:0",
    "reduce": "reduce:{}:0",
    "alltoall": "alltoall:{}",
    "gather": "gather:{}:0",
    "scatter": "scatter:{}:0",
    "sendrecv": "sendrecv:{}",
}
COUNTS = (8, 30000)  # of elements: in the line that tells of them, and in many slots
BETWEEN_HOSTS = ("hierarchical", "rail")  # of four ranks on two
IN_THE_NETWORK = ("collnetchain", "collnetdirect")  # with its plug-ins: tests/conformance/collnet_test.cc


def algorithms(collective):
    """All that the library has for it: one that comes is tested, too."""
    refused = subprocess.run([TUTTI, "explain", collective, "--algorithm", "none"], capture_output=True, text=True, timeout=LIMIT)
    names = re.search(r"there are: (.*)", refused.stderr)[1].split()
    return [name for name in names if name not in IN_THE_NETWORK]


class Death(FaultCase):
    def test_of_a_rank_is_told_by_all_survivors_and_they_go_on(self):
        steps = "loop shrink:2:abort allreduce:100 destroy"
        ranks = self.launch(steps, steps, "loop", steps)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[2].child.kill()
        survivors = [ranks[0], ranks[1], ranks[3]]
        self.expect(survivors, "loop", REMOTE, rf"rank 2 \(.*, pid {ranks[2].child.pid}\) died while rank .*{last_call('AllReduce')}", killed)
        self.expect_success(survivors, "shrink")
        self.expect_success(survivors, "allreduce")

    def test_of_two_and_then_of_all_but_one_leaves_the_rest_able_to_go_on(self):
        steps = "loop shrink:1,2:abort allreduce:100 loop shrink:1:abort allreduce:100 destroy"
        ranks = self.launch(steps, "loop", "loop", steps)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        for rank in ranks[1:3]:
            rank.child.kill()
        self.expect([ranks[0], ranks[3]], "loop", REMOTE, f"rank [12] .* died while rank .*{last_call('AllReduce')}", killed)
        self.expect_success([ranks[0], ranks[3]], "allreduce")
        self.wait_until_underway([ranks[0], ranks[3]], nth=1)
        killed = time.monotonic()
        ranks[3].child.kill()
        code, moment, message = ranks[0].result("loop", nth=1)
        self.assertEqual(code, REMOTE, message)
        self.assertRegex(message, f"rank 1 .* died while rank 0 .*{last_call('AllReduce')}")
        self.keep_time(self.taken(killed, moment), BOUND, "of all but one")
        self.expect_success([ranks[0]], "allreduce", nth=1)
        self.expect_success([ranks[0]], "destroy")

    def test_while_another_is_late(self):
        for dead, late in ((1, 2), (2, 1)):  # whichever rank 0 waits for
            steps = ["allreduce:8 allreduce:9 solo"] * 3
            steps[late], steps[dead] = "allreduce:8 line solo", "allreduce:8 line"
            ranks = self.launch(*steps)
            self.expect_success(ranks, "allreduce:8")
            time.sleep(0.2)
            killed = time.monotonic()
            ranks[dead].child.kill()
            self.expect([ranks[0]], "allreduce:9", REMOTE, rf"rank {dead} \(.*\) died while rank 0 .*; its last call was AllReduce #1 .*, done", killed)
            ranks[late].say("go")
            self.expect_success([ranks[0], ranks[late]], "solo")

    def test_in_each_algorithm(self):
        if not TUTTI:
            self.skipTest("no tutti command to name them")
        tried = 0
        for collective, call in CALLS.items():
            for algorithm, count in itertools.product(algorithms(collective), COUNTS):
                with self.subTest(collective=collective, algorithm=algorithm, count=count):
                    name = call.split(":")[0]
                    settings = {} if name == "sendrecv" else {"NCCL_ALGO": f"{name}:{algorithm}"}
                    self.die_in(call.format(count), algorithm in BETWEEN_HOSTS, settings)
                    tried += 1
        self.assertGreater(tried, 40)

    def test_in_another_pid_namespace(self):
        """As of containers that share the network: their processes cannot be looked at."""
        apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no pid namespaces here")
        ranks = self.launch("loop shrink:1:abort allreduce:1000 destroy", "loop", "loop shrink:1:abort allreduce:1000 destroy", prefixes=[(), apart, ()])
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[1].child.kill()
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, rf"rank 1 \(.*no sign of life .*{last_call('AllReduce')}", killed, bound=BOUND + self.own_T)
        for step in ("shrink", "allreduce", "destroy"):
            self.expect_success([ranks[0], ranks[2]], step)

    def test_in_long_calls_with_helpers(self):
        for call in ("allreduce:2000000", "allgather:1000000", "alltoall:1000000", "broadcast:3000000:0"):
            with self.subTest(call=call):
                self.die_in(call, False, {"TUTTI_HELPER_THREADS": "1"})

    def die_in(self, call, has_two_hosts, settings):
        steps = f"loop:{call} shrink:1:abort allreduce:1000 destroy"
        hosts = [{"NCCL_HOSTID": "one"}, {"NCCL_HOSTID": "other"}] * 2 if has_two_hosts else ()
        ranks = self.launch(steps, f"loop:{call}", steps, steps, each=hosts, **settings)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[1].child.kill()
        survivors = [ranks[0], *ranks[2:]]
        self.expect(survivors, "loop", REMOTE, r"rank 1 \(.*\) (died|ended, or the way to its host failed,) while rank", killed)
        for rank in survivors:
            self.assertNotIn("NCCL_ALGO", rank.log)  # it is known
        for step in ("shrink", "allreduce", "destroy"):
            self.expect_success(survivors, step)

    def test_at_every_step_of_init(self):
        # Nobody knows the process of a rank that died before it came.
        self.die_at_every_step(victim=1, unseen=r"ranks? 1\b.* of 3 did not come within")

    def test_of_the_process_with_the_root_at_every_step_of_init(self):
        self.die_at_every_step(victim=0)

    def die_at_every_step(self, victim, unseen=None):
        """Kills the victim at its first, second, ... step on a socket, until its init needs no more.

        Each error names its rank or that its process made the id, host and process number, and what init was at. With FAULTS_FULL set
        at every one; else, from the eighth on, at every third.
        """
        slowest = 0.0
        thorough = bool(os.environ.get("FAULTS_FULL"))
        for nth in itertools.chain(range(8), range(8, 200, 1 if thorough else 3)):
            steps = ["init solo fds"] * 3
            steps[victim] = f"inject:death:{nth} init inject:death:-1"
            ranks = self.launch(*steps, expect_init=False, inject=True)
            dead = ranks[victim]
            dead.reader.join()
            died = time.monotonic()
            if any(result[0] == "init" for result in dead.results):
                break
            self.assertEqual(dead.child.wait(), -9)
            pattern = by_process(dead) + (f"|{unseen}" if unseen else "")
            for rank in ranks:
                if rank is dead:
                    continue
                code, moment, message = rank.result("init")
                # Its last step may be one that nobody needs any more.
                if code != 0:
                    self.assertEqual(code, REMOTE, f"step {nth}: {message}")
                    self.assertRegex(message, pattern, f"step {nth}")
                    self.assertRegex(message, INIT_PHASES, f"step {nth}")
                slowest = max(slowest, self.taken(died, moment))
                self.expect_success([rank], "solo")
        self.assertGreater(nth, 5)
        self.keep_time(slowest, BOUND)

    def test_while_the_others_rest(self):
        ranks = self.launch("allreduce:8 line allreduce:9", "allreduce:8 line", "allreduce:8 line allreduce:9")
        self.expect_success(ranks, "allreduce:8")
        ranks[1].child.kill()
        ranks[1].child.wait()
        for rank in (ranks[0], ranks[2]):
            rank.say("go")
        self.expect([ranks[0], ranks[2]], "allreduce:9", REMOTE, "rank 1 .* died .*; its last call was AllReduce #1 .*, done", time.monotonic())

    def test_of_the_partner_in_a_group(self):
        group = "group send:1:100000 recv:1:100000 endgroup"
        ranks = self.launch("allreduce:8 " + group, "allreduce:8 line")
        self.expect_success(ranks, "allreduce")
        killed = time.monotonic()
        ranks[1].child.kill()
        # Killed before its links are made, it is missed by the bootstrap.
        pattern = "rank 1 .*( died while rank 0 waited for it in (Send|Recv)|closed its connection)"
        self.expect([ranks[0]], "endgroup", REMOTE, pattern, killed)

    def test_before_the_others_finalize(self):
        ranks = self.launch("allreduce:8 line finalize destroy", "allreduce:8 line", "allreduce:8 line destroy")
        self.expect_success(ranks, "allreduce:8")
        ranks[1].child.kill()
        ranks[1].child.wait()
        began = time.monotonic()
        for rank in (ranks[0], ranks[2]):
            rank.say("go")
            self.expect_success([rank], "destroy")
        self.keep_time(self.taken(began), BOUND)

    def test_by_a_crash_or_an_exception_in_user_code(self):
        for how, signal in (("crash", -11), ("throw", -6)):
            with self.subTest(how):
                # A sanitizer would turn the signal into an exit.
                plain = "handle_segv=0:handle_abort=0"
                ranks = self.launch("allreduce:8 loop", f"allreduce:8 sleep:100 {how}", "allreduce:8 loop", ASAN_OPTIONS=plain,
                                    TSAN_OPTIONS=f"{os.environ.get('TSAN_OPTIONS', '')} {plain}")
                ranks[1].result("sleep")
                crashed = time.monotonic()
                self.expect([ranks[0], ranks[2]], "loop", REMOTE, "rank 1 .* died while rank .*; its last call was AllReduce #1 .*, done", crashed)
                self.assertEqual(ranks[1].child.wait(), signal)

    def test_is_told_from_an_exit_without_destroy(self):
        ranks = self.launch("allreduce:8 loop", "allreduce:8 sleep:200 exit", "allreduce:8 loop")
        ranks[1].result("sleep")
        text = r"rank 1 \(.*\) exited without ncclCommDestroy .*; its last call was AllReduce #1 .*, done"
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, text, time.monotonic())

    def test_is_told_from_a_destroyed_communicator(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 destroy sleep:5000", "allreduce:8 allreduce:9")
        ranks[1].result("destroy")
        text = "rank 1 .* destroyed its communicator .*; its last call was AllReduce #1 .*, done"
        self.expect([ranks[0], ranks[2]], "allreduce:9", REMOTE, text, time.monotonic())

    def test_is_told_from_a_finalized_communicator(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 finalize sleep:5000", "allreduce:8 allreduce:9")
        ranks[1].result("finalize")
        text = "rank 1 .* has finalized its communicator while rank . waits for it in AllReduce #2 .*; its last call was AllReduce #1 .*, done"
        self.expect([ranks[0], ranks[2]], "allreduce:9", REMOTE, text, time.monotonic())


class OnAStream(FaultCase):
    """The same where the library's own thread runs the calls, and the caller waits for the stream."""

    def launch(self, *steps, **options):
        return super().launch(*steps, FAULT_STREAM="1", **options)

    die_in = Death.die_in
    test_of_a_rank_is_told_by_all_survivors_and_they_go_on = Death.test_of_a_rank_is_told_by_all_survivors_and_they_go_on
    test_while_another_is_late = Death.test_while_another_is_late
    test_while_the_others_rest = Death.test_while_the_others_rest
    test_of_the_partner_in_a_group = Death.test_of_the_partner_in_a_group
    test_is_told_from_an_exit_without_destroy = Death.test_is_told_from_an_exit_without_destroy

    def test_in_each_collective(self):
        for call, count in itertools.product(CALLS.values(), COUNTS):
            with self.subTest(call=call, count=count):
                self.die_in(call.format(count), False, {})


class BetweenHosts(HostEach):
    """What a rank of another host has called is known where it has told it, as it does while others wait for it."""

    def test_of_a_rank_that_has_told_its_last_call(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 line", timeout_ms=1500)
        self.expect_success(ranks, "allreduce:8")
        self.pause(0.5)  # rank 0 waits, and asks
        killed = time.monotonic()
        ranks[1].child.kill()
        text = rf"rank 1 \(.*pid {ranks[1].child.pid}\) ended, or the way to its host failed, .*; its last call was AllReduce #1 \(8 of .*, done"
        self.expect([ranks[0]], "allreduce:9", REMOTE, text, killed)


class Deriving(FaultCase):
    """A rank that is killed at its first, second, ... step on a socket while it makes a communicator of another.

    Each survivor gets an error that names it, or the new communicator with the dead rank in it, of which the first call says so:
    no two of them go on in different ones. Then they shrink the old one, and all-reduce.
    """

    def test_by_a_split(self):
        self.die_at_every_step("split:0:0", victim=1)

    def test_by_a_split_without_who_opens_the_new_one(self):
        self.die_at_every_step("split:0:0", victim=0)

    def test_by_a_shrink(self):
        self.die_at_every_step("shrink:3:abort", victim=1, absent=[3])

    def test_by_a_shrink_without_who_opens_the_new_one(self):
        self.die_at_every_step("shrink:3:abort", victim=0, absent=[3])

    def die_at_every_step(self, call, victim, absent=()):
        """With FAULTS_FULL set at every one; else, from the fourth on, at every fifth."""
        slowest, failed, joined = 0.0, 0, 0
        gone = ",".join(str(rank) for rank in (victim, *absent))
        survive = f"init {call} allreduce:16 parent shrink:{gone}:abort allreduce:100 destroy"
        for nth in itertools.chain(range(4), range(4, 400, 1 if os.environ.get("FAULTS_FULL") else 5)):
            steps = [survive] * 4
            steps[victim] = f"init inject:death:{nth} {call} inject:death:-1 line"
            for rank in absent:
                steps[rank] = "init line"
            ranks = self.launch(*steps, inject=True)
            dead = ranks[victim]
            self.wait_for_death_or(dead, call)
            died = time.monotonic()
            if any(result[0] == call for result in dead.results):
                break
            for rank in ranks:
                if rank is dead or rank.rank in absent:
                    continue
                first = "allreduce:16" if rank.result(call)[0] == 0 else call
                code, moment, message = rank.result(first)
                self.assertEqual(code, REMOTE, f"step {nth}, {first} of rank {rank.rank}: {message}")
                self.assertRegex(message, rf"rank {victim}\b", f"step {nth}, {first}")
                slowest = max(slowest, self.taken(died, moment))
                failed, joined = failed + (first == call), joined + (first != call)
                for step in (f"shrink:{gone}", "allreduce:100", "destroy"):
                    self.expect_success([rank], step)
        self.assertGreater(nth, 5)
        self.assertGreater(failed, joined)
        self.keep_time(slowest, 2 * BOUND)

    def wait_for_death_or(self, rank, step):
        while rank.child.poll() is None and not any(result[0] == step for result in list(rank.results)):
            time.sleep(0.005)
        if rank.child.poll() is not None:
            rank.reader.join()


class Reset(FaultCase):
    def test_of_a_connection_at_any_step_of_init_ends_in_success_or_an_error(self):
        slowest = 0.0
        for nth in range(0, 200, 1 if os.environ.get("FAULTS_FULL") else 4):
            ranks = self.launch("init solo", f"inject:reset:{nth} init solo inject:reset:-1", expect_init=False, inject=True)
            began = time.monotonic()
            outcomes = [rank.result("init") for rank in ranks]
            for code, moment, message in outcomes:
                self.assertIn(code, (0, REMOTE), f"step {nth}: {message}")
                slowest = max(slowest, self.taken(began, moment))
            self.expect_success(ranks, "solo")
            if nth > 4 and all(code == 0 for code, _, _ in outcomes):
                break
        self.keep_time(slowest, BOUND)


if __name__ == "__main__":
    unittest.main(verbosity=1)
