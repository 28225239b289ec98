"""Hosts with IPv6 alone, with nothing but link-local addresses, with the longest names there are, and meeting places by name."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import bed
import multihost_test
from host_case import BOUND, LIMIT, REMOTE, RANK, HostCase

LONGEST = 64  # characters that the kernel lets a host's name have
STEPS = "loop:allreduce:20000 shrink:1:abort allreduce:1000 alltoall:1000 destroy"


class AddressCase(HostCase):
    run_all = multihost_test.Collectives.run_all

    def expect_death_of_rank_one(self, hosts, places, name=r".*", **settings):
        """Over these addresses ranks meet, all-reduce, name the dead one, and go on without it."""
        ranks = self.launch_on(hosts, places, *[STEPS] * len(places), NCCL_DEBUG="INFO", **settings)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[1].child.kill()
        survivors = [rank for rank in ranks if rank.rank != 1]
        self.expect(survivors, "loop", REMOTE, rf"rank 1 \({name}\) (died|ended)", killed, BOUND)
        self.expect_survivors(survivors)
        for step in ("alltoall", "destroy"):
            self.expect_success(survivors, step)
        return ranks


def without_ipv4(hosts):
    for host in hosts.all:
        host.inside("ip", "-4", "addr", "flush", "dev", "eth0")
        host.inside("ip", "-4", "addr", "flush", "dev", "lo")


class Ipv6Alone(AddressCase):
    """No IPv4 address on any interface, loopback's included, and no setting that says so."""

    def test_every_collective(self):
        def prepare(hosts):
            without_ipv4(hosts)
            return {}

        self.run_all([0, 1, 1, 2], prepare=prepare, meeting="[fd77::1]:4242")

    def test_a_death_is_named(self):
        hosts = self.make_hosts(3)
        without_ipv4(hosts)
        ranks = self.expect_death_of_rank_one(hosts, [0, 1, 2, 0])
        self.assertRegex(ranks[0].log, r"\[?fd77::1\]?")


class LinkLocalAlone(AddressCase):
    """Addresses that mean something on one wire only: each host adds its own interface. That has another number on each host."""

    def make_hosts(self, count):
        hosts = super().make_hosts(count)
        for host in hosts.all:
            for number in range(host.number):  # what comes later has a higher number
                host.inside("ip", "link", "add", f"spare{number}", "type", "veth", "peer", "name", f"other{number}")
            bed.run("ip", "link", "del", host.port)
            host.plug_in()
            host.inside("ip", "-6", "addr", "flush", "dev", "eth0", "scope", "global")
        without_ipv4(hosts)
        numbers = {json.loads(host.inside("ip", "-j", "link", "show", "eth0"))[0]["ifindex"] for host in hosts.all}
        self.assertEqual(len(numbers), count)
        self.own = [self.address_of(host) for host in hosts.all]
        return hosts

    def address_of(self, host):
        for _ in range(1000):  # until the kernel knows that nobody else has it
            found = [each for link in json.loads(host.inside("ip", "-6", "-j", "addr", "show", "dev", "eth0")) for each in link.get("addr_info", [])]
            if found and not any(each.get("tentative") for each in found):
                return found[0]["local"]
            time.sleep(0.01)
        raise OSError(f"host {host.number} has no link-local address: {found}")

    def test_every_collective(self):
        """Met at a place that is the same text on all hosts, with the interface's name."""
        self.run_all([0, 1, 1, 2], prepare=lambda hosts: {"meeting": f"[{self.own[0]}%eth0]:4242"})

    def test_a_death_is_named(self):
        """Met by an id, which has the number of its maker's interface in it."""
        hosts = self.make_hosts(3)
        ranks = self.expect_death_of_rank_one(hosts, [0, 1, 2, 0])
        self.assertIn(self.own[0], ranks[0].log)


class Names(AddressCase):
    def test_the_longest_there_are(self):
        """Hosts whose names differ in their last character only are not one, and the name does not hide what follows it."""
        hosts = self.make_hosts(3)
        for host in hosts.all:
            name = "h" * (LONGEST - 1) + str(host.number)
            host.prefix = [*host.prefix, "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]
        ranks = self.expect_death_of_rank_one(hosts, [0, 1, 2, 0], name=rf"h{{{LONGEST - 1}}}, pid \d+", NCCL_DEBUG_SUBSYS="ALL")
        kinds = {tuple(sorted(map(int, found[:2]))): found[2] for rank in ranks for found in re.findall(r"link (\d+) <- (\d+) lane \d via (\w+)", rank.log)}
        self.assertEqual({pair for pair, kind in kinds.items() if kind != "net"} - {(0, 3), (0, 2)}, set())

    def test_a_meeting_place_by_a_long_name(self):
        """Longer than a host's own can be, as names of the domain system may be."""
        name = ".".join(["meeting-place-of-a-rather-long-name"] * 5) + ".test"
        table = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "hosts"

        def prepare(hosts):
            table.write_text(f"{hosts[0].address} {name}\n")
            for host in hosts.all:
                host.prefix = [*host.prefix, "unshare", "--mount", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh"]
            return {}

        self.run_all([0, 1], body="NetworkRanks.DISABLED_AllReduce", prepare=prepare, meeting=f"{name}:4242")

    def test_a_meeting_place_that_cannot_be_found(self):
        hosts = self.make_hosts(1)
        for place, reason in (("nowhere.invalid:4242", 'cannot resolve host "nowhere.invalid"'),
                              (f"{'x' * 300}.invalid:4242", 'cannot resolve host "xxx'),
                              ("[fe80::1%nothing]:4242", "not an IPv6 address of an existing interface"),
                              ("10.77.0.1", "no port")):  # fmt: skip
            with self.subTest(place):
                began = time.monotonic()
                done = subprocess.run([*hosts[0].prefix, RANK, "0", "1", "init"], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
                                      env=os.environ | {"NCCL_COMM_ID": place, "NCCL_DEBUG": "WARN"})  # fmt: skip
                self.keep_time(self.taken(began), BOUND, f"a meeting place that cannot be found: {place[:30]}")
                self.assertEqual(done.returncode, 3, done.stdout)  # of ncclGetUniqueId
                self.assertIn(reason, done.stdout + done.stderr)


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
