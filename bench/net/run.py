#!/usr/bin/env python3
"""Times CPU ranks of two hosts: tutti against iperf3 and Open MPI over TCP, in turns.

Beds: `loopback`; `veth`, two network namespaces with a virtual wire, which end with the run; `veth-10g`, the same
wire held to 10 Gbit/s (or another number); `veth-200mflow`, each connection over it held to 200 Mbit/s (or a number of
Gbit/s: `veth-5gflow`), as clouds do. All programs are started at once and sleep; each round of a cell measures each of
them once, iperf3 among them with a stream, in a process of its own, a rank of a host, and a ratio is the median, over the rounds, of two figures of one round.
Rates are bytes a second and direction between the hosts: an all-reduce of S bytes needs S each way, however many ranks
share a host (iperf3 --bidir); a ping-pong of each rank with its partner on the other host moves S a rank, one way at a time.

Exit codes: 0 measured; 1 a wrong result; 2 usage; 3 our library is missing or has failed; 77 no namespaces here.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE.parent.parent / "tests" / "multihost")]

import bed  # noqa: E402
from figures import size_text  # noqa: E402
from jobs import ROOT, Failed, Job, find_openmpi, find_tutti  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB]
LARGE = 16 * MIB  # from here on a rate is compared with iperf3's
PORT = 5201  # the first of iperf3's servers
PATIENCE_SECONDS = 120
OPENMPI = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"]


@dataclasses.dataclass
class Bed:
    """Where two ranks are: a command's words before each of them, and how one reaches the other."""

    name: str
    interface: str
    server: str  # address of the first host
    prefixes: tuple = ((), ())
    hosts: object = None


def hold_each_flow(host, rate):
    """Told apart by three bits of both ports, those that a kernel which dials counts up."""
    lines = ["qdisc add dev eth0 root handle 1: htb"]
    for number in range(64):
        source, destination = number // 8 * 2, number % 8 * 2
        lines.append(f"class add dev eth0 parent 1: classid 1:{number + 1:x} htb rate {rate} quantum 60000")
        lines.append(f"filter add dev eth0 parent 1: protocol ip u32 match ip sport {source} 0xe match ip dport {destination} 0xe flowid 1:{number + 1:x}")
    host.inside("sh", "-c", "tc -batch - <<END\n" + "\n".join(lines) + "\nEND")


@contextlib.contextmanager
def open_bed(name):
    if name == "loopback":
        yield Bed(name, "lo", "127.0.0.1")
        return
    hosts = bed.Hosts(2)
    try:
        if flow := re.fullmatch(r"veth-(\d+)([mg])flow", name):
            for host in hosts.all:
                hold_each_flow(host, f"{flow[1]}{flow[2]}bit")
        elif name != "veth":
            rate = f'{int(name.removeprefix("veth-").removesuffix("g"))}gbit'
            for host in hosts.all:
                host.inside("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "20ms")
        yield Bed(name, "eth0", hosts[0].address, tuple(tuple(host.prefix) for host in hosts.all), hosts)
    finally:
        hosts.end()


def place(peer, where, ranks, work):
    """The peer with so many ranks a host: a script stands for the program, or mpirun starts them by ssh."""
    if peer.launcher:
        return place_mpi(peer, where, ranks, work)
    lines = ["#!/bin/sh", f"host=$((RANK / {ranks}))", f"export NCCL_HOSTID=bench$host NCCL_SOCKET_IFNAME={where.interface}", "case $host in"]
    for host, prefix in enumerate(where.prefixes):
        lines.append(f'{host}) exec {" ".join(prefix)} {peer.program} "$@" ;;')
    script = work / f"{peer.key}-{where.name}-{ranks}"
    script.write_text("\n".join([*lines, "esac", ""]))
    script.chmod(0o700)
    return dataclasses.replace(peer, program=script)


def place_mpi(peer, where, ranks, work):
    launcher = (*peer.launcher[:-2], *OPENMPI, where.interface)
    if where.hosts:
        agent = work / f"ssh-{os.getpid()}"
        where.hosts.write_ssh(agent)
        hosts = ",".join(f"{host.address}:{ranks}" for host in where.hosts.all)
        launcher = (*where.prefixes[0], *launcher, "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", where.interface,
                    "--map-by", "slot", "-H", hosts)  # fmt: skip
        # By its count of slots Open MPI would spin: it takes each host for a machine of its own.
        if 2 * ranks > len(os.sched_getaffinity(0)):
            launcher = (*launcher, "--mca", "mpi_yield_when_idle", "1")
    return dataclasses.replace(peer, launcher=(*launcher, *peer.launcher[-2:]), crowded=() if where.hosts else peer.crowded)


class Iperf:
    """Servers on rank 0's host for the time of the context: a process a stream, since one moves all of its streams in one thread."""

    def __init__(self, where, streams, seconds):
        self.where = where
        self.ports = [str(PORT + stream) for stream in range(streams)]
        self.seconds = seconds

    def __enter__(self):
        self.servers = [subprocess.Popen([*self.where.prefixes[0], "iperf3", "-s", "-p", port],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for port in self.ports]  # fmt: skip
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
            server.wait()

    def rate(self, *options):
        """Bytes a second and direction that arrived, of all streams together."""
        command = [*self.where.prefixes[1], "iperf3", "-c", self.where.server, "-J", "-t", str(self.seconds), *options]
        clients = [subprocess.Popen([*command, "-p", port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for port in self.ports]
        return sum(self.rate_of(client) for client in clients)

    @staticmethod
    def rate_of(client):
        said, complained = client.communicate(timeout=PATIENCE_SECONDS)
        if client.returncode != 0:
            raise Failed(f"iperf3: {said[-200:]}{complained[-200:]}")
        end = json.loads(said)["end"]
        ways = [end[key] for key in ("sum_received", "sum_received_bidir_reverse") if key in end]
        return statistics.mean(way["bits_per_second"] / 8 for way in ways)


def moved(cell):
    """Bytes a direction in one call's time, both directions at once or in turn."""
    return 2 * cell["bytes"] * cell["ranks"] if cell["collective"] == "pingpong" else cell["bytes"]


def measure_bed(where, ranks, options, work, library):
    peers = {"tutti": find_tutti(work, library)}
    missing = []
    try:
        if not options.without_mpi:
            peers["openmpi"] = find_openmpi(work)
    except Failed as reason:
        missing.append(f"Open MPI: {reason}")
    if shutil.which("iperf3") is None:
        missing.append("iperf3 is not installed (Debian: iperf3)")
    cells = []
    with contextlib.ExitStack() as stack:
        jobs = {key: stack.enter_context(Job(place(peer, where, ranks, work), 2 * ranks)) for key, peer in peers.items()}
        for key, job in list(jobs.items()):
            try:
                job.start()
            except Failed as reason:
                if key == "tutti":
                    raise
                missing.append(f"{peers[key].title}: {reason}")
                jobs.pop(key).end(patience=0)
        iperf = None if shutil.which("iperf3") is None else stack.enter_context(Iperf(where, ranks * options.streams, options.iperf_seconds))
        for collective, ways in (("allreduce", ("--bidir",)), ("pingpong", ())):
            for size in options.sizes:
                cell = {"bed": where.name, "ranks": ranks, "collective": collective, "bytes": size, "rounds": [], "wrong": 0}
                iterations = {}
                for number in range(options.rounds):
                    keys = list(jobs)[number % len(jobs) :] + list(jobs)[: number % len(jobs)]
                    round_ = {}
                    for key in keys:
                        try:
                            timing = jobs[key].measure(collective, size, iterations.get(key, 0), options.seconds, PATIENCE_SECONDS)
                        except Failed as reason:
                            raise Failed(f"{peers[key].title}, {collective} of {size_text(size)}, 2 x {ranks}: {reason}") from reason
                        iterations[key] = timing.iterations
                        cell["wrong"] += timing.wrong
                        round_[key] = timing.us
                    if iperf and size >= LARGE:
                        round_["iperf3"] = iperf.rate(*ways)
                    cell["rounds"].append(round_)
                cells.append(cell)
                print(line_of(cell), flush=True)
    for each in missing:
        print(f"not measured: {each}")
    return cells


def line_of(cell):
    rounds = cell["rounds"]
    median = lambda figures: statistics.median(figures) if figures else None  # noqa: E731
    gigabytes = lambda us: moved(cell) / us / 1e3  # noqa: E731
    ours = median([each["tutti"] for each in rounds])
    theirs = median([each["openmpi"] for each in rounds if "openmpi" in each])
    pairs = median([each["tutti"] / each["openmpi"] for each in rounds if "openmpi" in each])
    wire = median([each["iperf3"] / 1e9 for each in rounds if "iperf3" in each])
    share = median([gigabytes(each["tutti"]) * 1e9 / each["iperf3"] for each in rounds if "iperf3" in each])
    show = lambda value, form: "-" if value is None else format(value, form)  # noqa: E731
    words = [cell["bed"], f'2 x {cell["ranks"]}', cell["collective"], size_text(cell["bytes"]), show(ours, ".1f"), show(theirs, ".1f"), show(pairs, ".2f"),
             show(gigabytes(ours), ".2f"), show(wire, ".2f"), show(share, ".2f")]  # fmt: skip
    return "| " + " | ".join(words) + " |"


HEADER = """| bed | ranks | what | size | tutti µs | Open MPI µs | ratio | tutti GB/s | iperf3 GB/s | share |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beds", default="loopback,veth,veth-10g")
    parser.add_argument("--ranks", default="1", help="of each host: 1,2,4")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the vector, multiples of 8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="to fill for each library, cell and round")
    parser.add_argument("--iperf-seconds", type=int, default=1)
    parser.add_argument("--streams", type=int, default=1, help="of iperf3 for each rank of a host: as many as the library has sockets a link")
    parser.add_argument("--without-mpi", action="store_true", help="only iperf3 beside it")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/release/lib", help="folder of libnccl.so.2")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers", help="where programs are built")
    parser.add_argument("--json", metavar="FILE", help="all rounds' figures")
    options = parser.parse_args(words)
    options.sizes = [int(size) for size in options.sizes.split(",")]
    options.ranks = [int(count) for count in options.ranks.split(",")]
    return options


def main(words):
    options = parse_arguments(words)
    beds = options.beds.split(",")
    if any(name != "loopback" for name in beds):
        bed.enter()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    print(f"{datetime.date.today()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds\n\n{HEADER}")
    cells = []
    for name in beds:
        try:
            with open_bed(name) as where:
                for ranks in options.ranks:
                    cells += measure_bed(where, ranks, options, work, options.library.resolve())
        except Failed as reason:
            print(f"run.py: {name}: {reason}", file=sys.stderr)
            return 3
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(cells, indent=1) + "\n")
    return 1 if any(cell["wrong"] for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
