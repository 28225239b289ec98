#!/usr/bin/env python3
"""GPUDirect, with the network plug-in of the tests: hosts played by NCCL_HOSTID, a rank on each, collectives through
`tutti perf`, every result checked, and what the plug-in was given to do counted.

    tests/gpu/direct_check.py BUILD PLUGIN [FOLDER]

FOLDER: of the libibverbs of the tests, over which some of it runs, too.

On GPUs the kernels fold in slots of the GPU's memory, which the plug-in reads and writes by the driver's copies. What it
received there shows up at its flush only, so that one which is left out makes a wrong result. Without GPUs, LD_LIBRARY_PATH names
the driver of the tests.
"""
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts_check  # noqa: E402

ONE_SIZE = ["-b", "3M", "-e", "3M", "--min-time", "0.0001", "-w", "1"]
REDUCE = ("all_reduce", "reduce_scatter", "reduce")
TWO_GPUS = pathlib.Path(__file__).parent / "fake/two_gpus.xml"  # the fake driver's, PHB apart

VERBS = """device mlx5_0 {folder} 64
port 1 active ib 64 2 5
gid 0 ib fe80::5
device mlx5_1 {folder} 64
port 1 active ib 64 2 6
gid 0 ib fe80::6
"""


class Bed:
    def __init__(self, build, plugin):
        self.tutti = pathlib.Path(build, "bin/tutti")
        self.plugin = plugin
        self.failures = 0

    def run(self, operation, options, ranks=2, hosts=None, **settings):
        """The first rank's output and the sums of the ranks' last reports."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report")
            own = {"NCCL_NET_PLUGIN": self.plugin, "NCCL_NET": "Fake", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL",
                   "FAKE_NET_GPU": "both", "NCCL_NET_GDR_LEVEL": "SYS", "TUTTI_GDR_FROM_BYTES": "1",
                   "FAKE_NET_GPU_REPORT": str(report)}
            own.update({name: None if value is None else str(value) for name, value in settings.items()})
            output, failure = hosts_check.run([self.tutti, "perf", operation, *options], ranks, hosts or ranks, own)
            return output, self.counts(report), failure

    # Each connection's end appends its process's counts: the last of each process count.
    def counts(self, report):
        lines = report.read_text().split("\n")[:-1] if report.exists() else []
        rows = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in lines}
        sums = [sum(column) for column in zip(*rows.values())] if rows else [0] * 5
        return dict(zip(("registered", "released", "sends", "receives", "flushes"), sums))

    def check(self, name, failure):
        print(f"{name}: {failure or 'right'}", flush=True)
        self.failures += failure is not None

    def expect(self, name, operation, *, options=ONE_SIZE, says=None, says_not=None, moves=True, sends=True,
               **settings):
        """`moves`: by GPUDirect; None: over a network that counts nothing."""
        output, counts, failure = self.run(operation, options, **settings)
        if failure is None and "of which there is none here" in output:
            print(f"{name}: skipped: the driver gives no DMA buffers", flush=True)
            return
        folds = "calls that reduce excepted" not in output
        if operation in REDUCE and not folds:
            moves, says = (None if moves is None else False), None
        counted = moves is not None
        if failure is None and says is not None and not re.search(says, output):
            failure = f"the log lacks {says!r}: {output[-1500:]}"
        if failure is None and says_not is not None and says_not in output:
            failure = f"the log says {says_not!r}"
        if failure is None and counted and moves != (counts["receives"] > 0 and counts["flushes"] > 0):
            failure = f"{counts} of a call that {'is' if moves else 'is not'} to go by GPUDirect"
        if failure is None and counted and moves and sends != (counts["sends"] > 0):
            failure = f"{counts} of a call whose sends {'are' if sends else 'are not'} to"
        if failure is None and counts["registered"] != counts["released"]:
            failure = f"{counts}: not all memory was given back"
        self.check(name, failure)


def main():
    build, plugin, *rest = sys.argv[1:]
    bed = Bed(build, str(pathlib.Path(plugin).resolve()))
    for operation in hosts_check.OPERATIONS:
        bed.expect(operation, operation, options=hosts_check.SIZES, says="GPUDirect from 1 bytes on")
    bed.expect("by address", "all_gather", FAKE_NET_GPU="address")
    bed.expect("by DMA buffer", "all_gather", FAKE_NET_GPU="dmabuf")
    bed.expect("slow network", "all_reduce", FAKE_NET="slow")
    bed.expect("types", "all_reduce", options=["-o", "all", "-d", "all", "-b", "100K", "-e", "100K",
                                               "--min-time", "0.0001", "-w", "1"])
    bed.expect("groups", "alltoall", options=["-m", "5", "-b", "64", "-e", "256K", "-f", "64", "--min-time", "0.0001",
                                              "-w", "1"])
    bed.expect("graphs", "all_reduce", options=["-G", "3", "-b", "1M", "-e", "1M", "--iters", "3"])
    bed.expect("the level is the setting's", "all_gather", NCCL_NET_GDR_LEVEL=None, moves=False,
               says=r"no GPUDirect: rank 0: fake0 is (PHB|SYS) from the GPU, farther than P2C \(NCCL_NET_GDR_LEVEL\)")
    bed.expect("never", "all_gather", NCCL_NET_GDR_LEVEL="LOC", moves=False, says="farther than LOC")
    bed.expect("no reads", "all_gather", NCCL_NET_GDR_READ=0, sends=False,
               says="sends go through the host: NCCL_NET_GDR_READ=0")
    bed.expect("no DMA buffers", "all_gather", NCCL_DMABUF_ENABLE=0, FAKE_NET_GPU="dmabuf", moves=False,
               says="no GPUDirect: rank 0: fake0 takes DMA buffers only, and NCCL_DMABUF_ENABLE=0")
    bed.expect("short calls", "all_gather", TUTTI_GDR_FROM_BYTES=1 << 30, moves=False)
    bed.expect("a network of host memory", "all_gather", FAKE_NET_GPU=None, moves=False,
               says="no GPUDirect: rank 0: the network between the hosts moves memory of the host only")
    for operation in ("all_reduce", "all_gather"):
        bed.expect(f"registration fails, {operation}", operation, FAKE_NET="fail-gpu", moves=False,
                   says=r"goes through pinned host memory: network plug-in Fake: regMr of a GPU's memory returned 2")
    several = int(os.environ.get("TUTTI_CHECK_RANKS", "4"))
    for operation in hosts_check.OPERATIONS if several > 2 else ():
        bed.expect(f"{operation}, {several - 1} ranks", operation, ranks=several - 1)
        # Who sends nothing within its host says nothing of it.
        says = None if operation in ("reduce", "gather") else r"link of GPU ranks 0 -> \d: from GPU to GPU"
        bed.expect(f"{operation}, {several} ranks on 2 hosts", operation, ranks=several, hosts=2, says=says,
                   FAKE_CUDA="shares")
    for operation in ("all_reduce", "alltoall") if several > 2 else ():
        bed.expect(f"{operation}, 2 threads a host", operation, options=[*ONE_SIZE, "-t", "2"], FAKE_CUDA="shares",
                   says=r"link of GPU ranks 0 -> 1: from GPU to GPU")
    if several > 2:
        bed.expect(f"GPUs that reach no others, {several} ranks on 2 hosts", "all_reduce", ranks=several, hosts=2,
                   says_not="from GPU to GPU", NCCL_P2P_DISABLE=1)
        apart = {"ranks": several, "hosts": 2, "FAKE_CUDA": "shares", "NCCL_TOPO_FILE": TWO_GPUS}
        if os.environ.get("LD_LIBRARY_PATH", "").find("fakes") >= 0:  # real GPUs are elsewhere
            bed.expect("GPUs that are too far apart", "all_reduce", NCCL_P2P_LEVEL="PXB", says_not="from GPU to GPU",
                       says="through the host's memory: their GPUs are farther apart than NCCL_P2P_LEVEL", **apart)
            bed.expect("GPUs that are near enough", "all_reduce", NCCL_P2P_LEVEL="PHB",
                       says=r"link of GPU ranks 0 -> 1: from GPU to GPU", **apart)
    if rest:
        over_verbs(bed, rest[0])
    return 1 if bed.failures else 0


def over_verbs(bed, folder):
    with tempfile.TemporaryDirectory() as place:
        devices = pathlib.Path(place, "devices")
        devices.write_text(VERBS.format(folder=place))
        network = {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "FAKE_VERBS_DEVICES": str(devices),
                   "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        for operation in hosts_check.OPERATIONS:
            bed.expect(f"{operation} over verbs", operation, moves=None,
                       says="GPUDirect: the network reaches the GPU's memory", **network)
        bed.expect("registration fails, verbs", "all_gather", moves=None, FAKE_VERBS="fail dmabuf",
                   says="goes through pinned host memory: registration of a GPU's memory of .* for mlx5_0", **network)
        bed.expect("no descriptors, verbs", "all_gather", moves=None, FAKE_VERBS="without dmabuf",
                   says="no GPUDirect: rank 0: the network between the hosts moves memory of the host only", **network)


if __name__ == "__main__":
    sys.exit(main())
