"""Interfaces that go down, change or are the wrong ones, and hosts without a free port: errors say what was tried and why not."""

import signal
import subprocess
import sys
import tempfile
import time
import unittest

import bed
from host_case import BOUND, LIMIT, REMOTE, SYSTEM, HostCase, between

# Takes all TCP ports of an address in the range, says so, and keeps them until its input ends.
TAKE_PORTS = """
import socket, sys
address, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
taken = []
for port in range(first, last + 1):
    taken.append(socket.socket())
    taken[-1].bind((address, port))
    taken[-1].listen()
print("taken", flush=True)
sys.stdin.read()
"""

# Connects so many times to an address, without a word, says so, and stays until its input ends.
CONNECT = """
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connections = []
for _ in range(count):
    connections.append(socket.socket())
    connections[-1].setblocking(False)
    connections[-1].connect_ex((address, port))
print("connected", flush=True)
sys.stdin.read()
"""


class Interfaces(HostCase):
    def lose(self, change, pattern):
        """Three ranks on a host each; `change` the third host while they run. The others go on without it."""
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000 solo", timeout_ms=3000)
        self.expect_success(ranks, "underway")
        changed = time.monotonic()
        change(hosts[2])
        # The survivors notice one after the other, and the first one's shrink waits for the second.
        self.expect(ranks[:2], "loop", REMOTE, r"rank 2 \(", changed, BOUND + 2)
        self.expect([ranks[2]], "loop", REMOTE, pattern, changed, BOUND + 2, f"{self.id().split('.test_')[-1]}, as the host itself sees it")
        self.expect_survivors(ranks[:2])
        self.expect_success(ranks[2:], "solo")

    def test_one_that_goes_down(self):
        self.lose(lambda host: host.inside("ip", "link", "set", "eth0", "down"), between(2))

    def test_one_whose_address_changes(self):
        def change(host):
            host.inside("ip", "addr", "del", f"{host.address}/24", "dev", "eth0")
            host.inside("ip", "addr", "add", "10.77.0.99/24", "dev", "eth0")

        self.lose(change, between(2))

    def fail_init(self, hosts, code, pattern, missing, **settings):
        """Rank 1 fails so; rank 0 hears of it, or misses it. Their processes are well."""
        began = time.monotonic()
        ranks = self.launch_on(hosts, [0, 1], *["init solo"] * 2, expect_init=False, **settings)
        self.expect([ranks[1]], "init", code, pattern, began, BOUND)
        self.expect([ranks[0]], "init", REMOTE, missing, began, BOUND, f"{self.id().split('.test_')[-1]}, as the other sees it")
        self.expect_success(ranks, "solo")

    def test_one_that_is_down_before_init(self):
        hosts = self.make_hosts(2)
        hosts[1].inside("ip", "link", "set", "eth0", "down")
        self.fail_init(hosts, REMOTE, r"rank 1 cannot connect to 10\.77\.0\.1:\d+.*eth0 \(10\.77\.0\.2\) is down", "rank.* 1")

    def test_a_wrong_one(self):
        """The others have no way to the interface that one host is told to use."""
        hosts = self.make_hosts(2)
        hosts[1].inside("ip", "link", "add", "wrong0", "type", "veth", "peer", "name", "wrong1")
        for name in ("wrong0", "wrong1"):
            hosts[1].inside("ip", "addr", "add", f"10.99.{name[-1]}.1/24", "dev", name)
            hosts[1].inside("ip", "link", "set", name, "up")
        for name in ("wrong0", "wrong1"):
            hosts[1].set_up(name)
        began = time.monotonic()
        ranks = self.launch_on(hosts, [0, 1], *["init allreduce:64 solo"] * 2, expect_init=False, each=[{}, {"NCCL_SOCKET_IFNAME": "=wrong0"}])
        pattern = r"10\.99\.0\.1:\d+ .*(Network is unreachable|No route to host); here .*eth0 \(10\.77\.0\.1\) is up"
        self.expect([ranks[0]], "init", REMOTE, pattern, began, BOUND)
        self.assertNotEqual(ranks[1].result("init")[0], 0)
        self.expect_success(ranks, "solo")


class Ways(HostCase):
    """Links over two interfaces a host, one of which leads nowhere: whoever opens them says which, and why."""

    def fail_links(self, break_way, pattern):
        """`break_way` between the second interfaces of two hosts, before ranks that meet over the first ones make their links."""
        hosts = self.make_hosts(2)
        hosts.add_wires(1)
        break_way(hosts)
        began = time.monotonic()
        ranks = self.launch_on(hosts, [0, 1], *["init allreduce:100000 solo"] * 2, NCCL_SOCKET_IFNAME="=eth0,eth1")
        self.expect_success(ranks, "init")
        for rank, other in zip(ranks, (1, 0)):
            self.expect([rank], "allreduce", REMOTE, rf"rank {rank.rank} cannot connect to rank {other} at {pattern(other)}", began, BOUND)
        self.expect_success(ranks, "solo")

    def test_an_address_that_no_interface_leads_to(self):
        """Each host has its second interface in a network of its own."""

        def move(hosts):
            for host in hosts.all:
                host.inside("ip", "addr", "flush", "dev", "eth1")
                host.inside("ip", "addr", "add", f"10.{88 + host.number}.1.{host.number + 1}/24", "dev", "eth1")

        self.fail_links(move, lambda other: rf"10\.{88 + other}\.1\.{other + 1}:\d+: no interface leads there: Network is unreachable; "
                                            rf"here .*eth0 \(10\.77\.0\.{2 - other}\) is up, eth1 \(10\.{89 - other}\.1\.{2 - other}\) is up")  # fmt: skip

    def test_an_interface_that_nobody_answers_on(self):
        """Its route is there, but the wire ends in between."""

        def cut(hosts):
            bed.run("ip", "link", "set", "port1x1", "nomaster")

        self.fail_links(cut, lambda other: rf"10\.77\.1\.{other + 1}:\d+: interface eth1 \(10\.77\.1\.{2 - other}\) cannot reach it: (no answer|No route to host)")


class Meeting(HostCase):
    """The first interface of each host does not lead to the others, and nobody says so: links go where the ranks have met."""

    def meet_over_the_second(self, prepare):
        hosts = self.make_hosts(2)
        hosts.add_wires(1)
        prepare(hosts)
        secret = tempfile.NamedTemporaryFile("w")
        self.addCleanup(secret.close)
        secret.write("a secret that the ranks of this test share")
        secret.flush()
        ranks = self.launch_on(
            hosts, [0, 1], *["init allreduce:100000 destroy"] * 2, NCCL_COMM_ID="10.77.1.1:4242", TUTTI_SECRET_FILE=secret.name
        )
        for step in ("allreduce", "destroy"):
            self.expect_success(ranks, step)

    def test_where_the_first_is_of_another_network(self):
        def move(hosts):
            for host in hosts.all:
                host.inside("ip", "addr", "flush", "dev", "eth0")
                host.inside("ip", "addr", "add", f"10.{88 + host.number}.0.5/24", "dev", "eth0")

        self.meet_over_the_second(move)

    def test_where_the_first_leads_nowhere(self):
        def cut(hosts):
            bed.run("ip", "link", "set", "port1", "nomaster")

        self.meet_over_the_second(cut)


class Ports(HostCase):
    FIRST, LAST = 40_000, 40_015

    def narrow(self, host):
        """The system gives out these few ports only."""
        host.inside("sh", "-c", f"echo {self.FIRST} {self.LAST} > /proc/sys/net/ipv4/ip_local_port_range")

    def take_all(self, host):
        taker = bed.subprocess.Popen([*host.prefix, sys.executable, "-c", TAKE_PORTS, host.address, str(self.FIRST), str(self.LAST)],
                                     stdin=bed.subprocess.PIPE, stdout=bed.subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(lambda: (taker.kill(), taker.communicate()))
        self.assertEqual(taker.stdout.readline().strip(), "taken")
        return taker

    def test_none_is_free(self):
        hosts = self.make_hosts(2)
        self.narrow(hosts[1])
        self.take_all(hosts[1])
        began = time.monotonic()
        ranks = self.launch_on(hosts, [0, 1], *["init solo"] * 2, expect_init=False)
        code, moment, message = ranks[1].result("init")
        self.assertIn(code, (REMOTE, SYSTEM))
        self.assertRegex(message, r"no free port.*net\.ipv4\.ip_local_port_range, 40000 to 40015")
        self.keep_time(self.taken(began, moment), BOUND)
        self.expect([ranks[0]], "init", REMOTE, "rank.* 1", began, BOUND, "none is free, as the other host sees it")
        self.expect_success(ranks, "solo")

    def test_some_are_free_in_time(self):
        hosts = self.make_hosts(2)
        self.narrow(hosts[1])
        taker = self.take_all(hosts[1])
        ranks = self.launch_on(hosts, [0, 1], *["allreduce:1000 destroy"] * 2, expect_init=False, timeout_ms=20_000)
        time.sleep(0.1)  # half a second is waited for one
        taker.communicate()
        self.expect_success(ranks, "allreduce")
        self.expect_success(ranks, "destroy")

    def test_those_of_jobs_before_still_wait(self):
        """Ports that TCP keeps back for a minute (TIME_WAIT) are none the less enough, of few, for job after job."""
        hosts = self.make_hosts(2)
        for host in hosts.all:
            self.narrow(host)
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write("a secret that the ranks of this test share")
            secret.flush()
            for _ in range(4):
                settings = {"NCCL_COMM_ID": f"{hosts[0].address}:{self.FIRST}", "TUTTI_SECRET_FILE": secret.name}
                ranks = self.launch_on(hosts, [0, 1], *["allreduce:1000 destroy"] * 2, timeout_ms=20_000, **settings)
                self.expect_success(ranks, "allreduce")
                self.expect_success(ranks, "destroy")
                for rank in ranks:
                    rank.child.wait(LIMIT)
        self.assertGreater(sum(host.count_waiting() for host in hosts.all), 0)


class Strangers(HostCase):
    def secret(self, text):
        """A file with it, which the ranks read again when they look at what is left."""
        file = tempfile.NamedTemporaryFile("w")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return {"TUTTI_SECRET_FILE": file.name}

    def test_one_with_another_secret(self):
        hosts = self.make_hosts(3)
        ours, other = self.secret("a secret that the ranks of this test share"), self.secret("a secret that nobody else knows, as long")
        began = time.monotonic()
        ranks = self.launch_on(hosts, [0, 1, 2], *["init solo"] * 3, expect_init=False, each=[ours, ours, other])
        self.expect([ranks[2]], "init", REMOTE, "turned rank 2 away: .*TUTTI_SECRET_FILE", began, BOUND)
        self.expect(ranks[:2], "init", REMOTE, r"rank.* 2\b", began, BOUND, "one with another secret, as the others see it")
        self.expect_success(ranks, "solo")


class Queues(HostCase):
    PLACES = 16  # in the queue of who listens
    STANDSTILL = 3.4  # seconds: the system repeats what was dropped after 1, 3 and 7 s
    SOON = 2.5  # a second between two connections of a rank, and a margin for a loaded machine

    def stand_in_line(self, host, at, port):
        """Strangers on that host take the places of a queue, and more."""
        command = [*host.prefix, sys.executable, "-c", CONNECT, at.address, str(port), str(4 * self.PLACES)]
        strangers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (strangers.communicate(), strangers.wait()))
        self.assertEqual(strangers.stdout.readline(), "connected\n")

    def test_a_full_one_at_the_root_is_found_soon_after_it_has_room(self):
        hosts = self.make_hosts(3)
        hosts[0].inside("sysctl", "-qw", f"net.core.somaxconn={self.PLACES}")
        for host in hosts[1:]:  # as before Linux 6.5, which has no such setting
            host.inside("sysctl", "-eqw", "net.ipv4.tcp_syn_linear_timeouts=0")
        later = "line init allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], "init allreduce:1000 destroy", later, later, expect_init=False, timeout_ms=10_000)
        (port,) = hosts[0].listening_ports()
        ranks[0].child.send_signal(signal.SIGSTOP)
        self.stand_in_line(hosts[1], hosts[0], port)
        for rank in ranks[1:]:
            rank.say("go")
        time.sleep(self.STANDSTILL)  # not longer with patience: the system repeats it at its own times
        self.assertFalse(any(each[0] == "init" for rank in ranks for each in rank.results))
        has_room = time.monotonic()
        ranks[0].child.send_signal(signal.SIGCONT)
        self.expect_success(ranks, "init")
        slowest = max(self.taken(has_room, rank.result("init")[1]) for rank in ranks)
        self.keep_time(slowest, self.SOON)
        self.expect_success(ranks, "destroy")
        self.assertIn(f"{self.PLACES + 1} connections waited at {hosts[0].address}:{port}", ranks[0].log)
        for rank in ranks[1:]:
            self.assertIn(f"has not been heard at {hosts[0].address}:{port} for ", rank.log)


class Partitions(HostCase):
    def test_both_sides_go_on_by_themselves_and_do_not_mix(self):
        hosts = self.make_hosts(4)
        goes_on = "allreduce:1000 line allreduce:3000 destroy"
        left, right = (f"loop:allreduce:20000 shrink:{other}:abort {goes_on}" for other in ("2,3", "0,1"))
        ranks = self.launch_on(hosts, [0, 1, 2, 3], left, left, right, right, timeout_ms=3000)
        self.expect_success(ranks, "underway")
        cut = time.monotonic()
        hosts.part([2, 3])
        self.expect(ranks[:2], "loop", REMOTE, r"rank [23] \(", cut, BOUND + 2)
        self.expect(ranks[2:], "loop", REMOTE, r"rank [01] \(", cut, BOUND + 2)
        self.expect_success(ranks, "shrink")
        # Sums show who takes part: each side of its own two ranks alone, before the wire is whole again and after.
        self.expect_success(ranks, "allreduce:1000")
        hosts.join([2, 3])
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "allreduce:3000")
        self.expect_success(ranks, "destroy")


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
