"""Hosts for tests: network namespaces, each with one interface, on one bridge. All of it lives in a namespace of the
test process, so nothing is left behind and nothing outside is touched."""

import json
import os
import re
import subprocess
import sys
import time

SKIPPED = 77  # what CTest takes for "skipped"
LIFETIME = "1300"  # seconds: a host ends by itself when its test was killed


def enter():
    """Goes on in a network namespace of its own, as root in there; ends with SKIPPED where that is not to be had.

    Or with 1 where the environment says that it must be: MULTIHOST_REQUIRED.
    """
    if os.environ.get("MULTIHOST_INSIDE"):
        run("ip", "link", "set", "lo", "up")
        return
    for flags in (["--net"], ["--user", "--map-root-user", "--net"]):
        if subprocess.run(["unshare", *flags, "ip", "link", "add", "wires", "type", "bridge"], capture_output=True).returncode == 0:
            os.environ["MULTIHOST_INSIDE"] = "1"
            os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])
    why = "this system lets us make no network namespace with a bridge (needs root or user namespaces, and ip)"
    if os.environ.get("MULTIHOST_REQUIRED"):
        sys.exit(f"MULTIHOST_REQUIRED is set, but {why}")
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """Host number i has 10.77.0.(i+1) and fd77::(i+1) on its eth0; the other end of that wire is `port`."""

    def __init__(self, number):
        self.number = number
        self.port = f"port{number}"
        self.further_ports = []
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", LIFETIME])
        own = os.readlink("/proc/self/ns/net")
        for _ in range(1000):
            if os.readlink(f"/proc/{self.holder.pid}/ns/net") != own:
                break
            time.sleep(0.01)
        self.prefix = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self.inside("ip", "link", "set", "lo", "up")
        self.plug_in()

    def plug_in(self):
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.port, "master", "wires", "up")
        self.inside("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "-6", "addr", "add", f"fd77::{self.number + 1}/64", "dev", "eth0", "nodad")
        self.set_up("eth0")

    @property
    def address(self):
        return f"10.77.0.{self.number + 1}"

    def inside(self, *words):
        return run(*self.prefix, *words)

    def add_wire(self, number):
        """A further interface, eth<number>, with 10.77.<number>.(i+1), on the bridge of that number."""
        port, name = f"port{self.number}x{number}", f"eth{number}"
        run("ip", "link", "add", port, "type", "veth", "peer", "name", name, "netns", str(self.holder.pid))
        self.further_ports.append(port)
        run("ip", "link", "set", port, "master", f"wires{number}", "up")
        self.inside("ip", "addr", "add", f"10.77.{number}.{self.number + 1}/24", "dev", name)
        self.set_up(name)

    def set_up(self, name):
        """On a busy machine the kernel takes a while to see that a new wire has two ends; until then nobody would choose it."""
        self.inside("ip", "link", "set", name, "up")
        for _ in range(1000):
            if json.loads(self.inside("ip", "-j", "link", "show", name))[0]["operstate"] == "UP":
                return
            time.sleep(0.01)
        raise OSError(f"{name} of host {self.number} does not come up")

    def sent_bytes(self):
        """By interface."""
        links = json.loads(self.inside("ip", "-j", "-s", "link"))
        return {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links if link["ifname"].startswith("eth")}

    def cut(self):
        """Nothing gets through any more, and nobody is told."""
        run("ip", "link", "set", self.port, "nomaster")

    def mend(self):
        run("ip", "link", "set", self.port, "master", "wires")

    def deafen(self):
        """What is sent to the host is lost; what it sends arrives: the bridge forgets where it is."""
        run("ip", "link", "set", self.port, "type", "bridge_slave", "learning", "off", "flood", "off", "fdb_flush")

    def join_through_proxy(self):
        """Nothing joins the host and the bridge any more but who carries frames between `port` and the interface returned."""
        near, far = f"near{self.number}", f"far{self.number}"
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        run("ip", "link", "set", self.port, "nomaster")
        run("ip", "link", "set", far, "master", "wires", "up")
        run("ip", "link", "set", near, "up")
        return near

    def make_plain(self):
        """What it sends looks as on a cable."""
        self.inside(sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "proxy.py"), "plain", "eth0")

    def checksum_errors(self):
        """TCP segments that its kernel has dropped since their checksum did not match."""
        with open(f"/proc/{self.holder.pid}/net/snmp") as lines:
            names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("InCsumErrors")])

    def slow_down(self, rate):
        """Both ways. rate: as tc has it, "50mbit"."""
        run("tc", "qdisc", "add", "dev", self.port, "root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        self.slow_down_sending(rate)

    def slow_down_sending(self, rate):
        self.inside("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")

    def listening_ports(self):
        """TCP ports that somebody on the host listens at."""
        found = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self.holder.pid}/net/{table}") as lines:
                for line in lines:
                    match = re.match(r"\s*\d+: \w+:(\w{4}) \w+:\w{4} 0A ", line)
                    if match:
                        found.add(int(match[1], 16))
        return found

    def count_waiting(self):
        """TCP connections whose ports the kernel keeps back (TIME_WAIT)."""
        with open(f"/proc/{self.holder.pid}/net/tcp") as lines:
            return sum(line.split()[3] == "06" for line in lines)

    def end(self):
        """The kernel takes a namespace's interfaces away some time after its last process: the next test wants their names at once."""
        self.holder.kill()
        self.holder.wait()
        for name in (self.port, *self.further_ports, f"near{self.number}"):
            subprocess.run(["ip", "link", "del", name], capture_output=True)


SSH = """#!/bin/sh
# Stands for ssh between the hosts of a test: like it, hands on no variable of the caller's, and begins at home.
while :; do
  case $1 in -[oplFi]) shift 2 ;; -*) shift ;; *) break ;; esac
done
host=${1#*@}
shift
case $host in
%s
*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
esac
cd
exec nsenter --net=/proc/$pid/ns/net env -i PATH="$PATH" HOME="$HOME" SHELL=/bin/sh unshare --uts sh -c "hostname $name; $*"
"""


class Hosts:
    def __init__(self, count):
        run("ip", "link", "add", "wires", "type", "bridge")
        run("ip", "link", "set", "wires", "up")
        self.all = [Host(number) for number in range(count)]
        self.addenda = []  # further bridges

    def __getitem__(self, number):
        return self.all[number]

    def add_wires(self, count):
        """So many further interfaces a host, a bridge for each."""
        for number in range(1, count + 1):
            run("ip", "link", "add", f"wires{number}", "type", "bridge")
            self.addenda.append(f"wires{number}")
            run("ip", "link", "set", f"wires{number}", "up")
            for host in self.all:
                host.add_wire(number)

    def part(self, numbers):
        """These hosts reach each other, and none of the others."""
        run("ip", "link", "add", "island", "type", "bridge")
        self.addenda.append("island")
        run("ip", "link", "set", "island", "up")
        for number in numbers:
            run("ip", "link", "set", self[number].port, "master", "island")

    def join(self, numbers):
        for number in numbers:
            self[number].mend()

    def write_ssh(self, path):
        """A program at this path that does what ssh would between these hosts, by name ("host1") and by address."""
        names = [f"host{host.number}|{host.address}|fd77::{host.number + 1}) pid={host.holder.pid} name=host{host.number} ;;" for host in self.all]
        path.write_text(SSH % "\n".join(names))
        path.chmod(0o700)

    def end(self):
        for host in self.all:
            host.end()
        for bridge in ["wires", *self.addenda]:
            subprocess.run(["ip", "link", "del", bridge], capture_output=True)
