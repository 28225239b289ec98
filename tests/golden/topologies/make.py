#!/usr/bin/env python3
"""Writes the machines of this folder, each from the public description of its maker (named beside it): `make.py` writes
the files, `make.py --check` says whether they are what it would write. The path tables (*.paths.txt) are the model's
answer: test_topology compares them, and writes them anew with TUTTI_UPDATE_GOLDEN=1."""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
SPEED = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
BRIDGE, GPU_CLASS, DISPLAY, INFINIBAND, ETHERNET = "0x060400", "0x030200", "0x030000", "0x020700", "0x020000"
INTEL_BROADWELL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"'
INTEL_SKYLAKE = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"'
INTEL_ICELAKE = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106"'
INTEL_SAPPHIRE = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
INTEL_EMERALD = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"'
AMD_ROME = 'arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"'
AMD_GENOA = 'arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="17"'
GRACE = 'arch="arm64"'
POWER9 = 'arch="ppc64"'


def mask(first, last):
    bits = ((1 << (last + 1)) - 1) ^ ((1 << first) - 1)
    words = []
    while bits or not words:
        words.insert(0, f"{bits & 0xffffffff:08x}")
        bits >>= 32
    return ",".join(words)


class Machine:
    """Collects lines; `rank` counts the GPUs over all hosts of the file, `port` the ports of a host."""

    def __init__(self):
        self.lines, self.depth, self.rank = ['<system version="1">'], 1, 0
        self.host, self.dev, self.port = "", 0, 0

    def on_host(self, number):
        self.host, self.dev, self.port = f'host_hash="0x{0xa000 + number:x}" ', 0, 0

    def put(self, text):
        self.lines.append("  " * self.depth + text)

    def inside(self, opening, body):
        self.put(opening)
        self.depth += 1
        body()
        self.depth -= 1
        self.put("</" + opening[1:].split()[0].rstrip(">") + ">")

    def cpu(self, numa, kind, processors, body=lambda: None):
        affinity = f'affinity="{mask(*processors)}" ' if processors else ""
        self.inside(f'<cpu {self.host}numaid="{numa}" {affinity}{kind}>', body)

    def pci(self, bus, device_class, generation, width, body):
        speed = SPEED.get(generation, "")
        self.inside(f'<pci busid="{bus}" class="{device_class}" link_speed="{speed}" link_width="{width}">', body)

    def gpu(self, bus, sm, generation, links=(), gdr=1, device_class=GPU_CLASS, c2c=None, width=16, tag="nvlink", gcn=""):
        def body():
            dev, rank = self.dev, self.rank
            self.dev, self.rank = dev + 1, rank + 1
            opening = f'<gpu dev="{dev}" sm="{sm}" {gcn}rank="{rank}" gdr="{gdr}">'

            def inner():
                for target, count, target_class in links:
                    self.put(f'<{tag} target="{target}" count="{count}" tclass="{target_class}"/>')
                if c2c:
                    self.put(f'<c2c bw="{c2c[0]}" count="{c2c[1]}"/>')
            self.inside(opening, inner)
        self.pci(bus, device_class, generation, width, body)

    def nic_body(self, name, mbps, gdr, rail):
        def body():
            extra = f' rail="{rail}"' if rail is not None else ""
            self.put(f'<net name="{name}" dev="{self.port}" speed="{mbps}" port="1" latency="0" guid="0x{0x100 + self.port:x}" '
                     f'maxconn="131072" gdr="{gdr}"{extra}/>')
            self.port += 1
        return lambda: self.inside("<nic>", body)

    def nic(self, bus, name, mbps, generation, gdr=1, width=16, device_class=INFINIBAND, rail=None):
        self.pci(bus, device_class, generation, width, self.nic_body(name, mbps, gdr, rail))

    def text(self):
        return "\n".join(self.lines + ["</system>", ""])


SWITCHED = lambda count: [("ffff:ff:ff.0", count, "0x068000")]

# Links between the eight GPUs of a DGX-1V: NVIDIA, "DGX-1 With Tesla V100 System Architecture", figure 4.
CUBE_MESH = {0: {1: 1, 2: 1, 3: 2, 4: 2}, 1: {0: 1, 2: 2, 3: 1, 5: 2}, 2: {0: 1, 1: 2, 3: 2, 6: 1}, 3: {0: 2, 1: 1, 2: 2, 7: 1},
             4: {0: 2, 5: 1, 6: 1, 7: 2}, 5: {1: 2, 4: 1, 6: 2, 7: 1}, 6: {2: 1, 4: 1, 5: 2, 7: 2}, 7: {3: 1, 4: 2, 5: 1, 6: 2}}


def dgx1v(m):
    bus = ["0000:06:00.0", "0000:07:00.0", "0000:0a:00.0", "0000:0b:00.0", "0000:85:00.0", "0000:86:00.0", "0000:89:00.0", "0000:8a:00.0"]
    switch = ["0000:04:00.0", "0000:08:00.0", "0000:83:00.0", "0000:87:00.0"]
    for socket in range(2):
        def body():
            for half in range(2):
                pair = 2 * socket + half

                def devices():
                    for g in (2 * pair, 2 * pair + 1):
                        m.gpu(bus[g], 70, 3, [(bus[to], n, GPU_CLASS) for to, n in CUBE_MESH[g].items()])
                    m.nic(f"{switch[pair][:8]}01.0", f"mlx5_{pair}", 100000, 3)
                m.pci(switch[pair], BRIDGE, 3, 16, devices)
        m.cpu(socket, INTEL_BROADWELL, (20 * socket, 20 * socket + 19), body)


def dgx2(m):  # NVIDIA DGX-2: 16 V100 with 6 NVLinks each to 12 NVSwitches, 8 InfiniBand EDR, two Xeon 8168
    for socket in range(2):
        def body():
            for quad in range(2):
                def four():
                    for half in range(2):
                        index = 4 * socket + 2 * quad + half

                        def leaf():
                            for g in range(2):
                                m.gpu(f"0000:{0x30 + 0x10 * index + g:02x}:00.0", 70, 3, SWITCHED(6))
                            m.nic(f"0000:{0x34 + 0x10 * index:02x}:00.0", f"mlx5_{index}", 100000, 3)
                        m.pci(f"0000:{0x2e + 0x10 * index:02x}:00.0", BRIDGE, 3, 16, leaf)
                m.pci(f"0000:{0x20 + 2 * (2 * socket + quad):02x}:00.0", BRIDGE, 3, 16, four)
        m.cpu(socket, INTEL_SKYLAKE, (24 * socket, 24 * socket + 23), body)


def dgx_a100(m):  # NVIDIA DGX A100: two EPYC 7742 as four NUMA nodes each, 12 NVLinks a GPU, 8 ConnectX-6 200 Gb/s
    group = 0
    for numa in range(8):
        def body():
            nonlocal group
            if numa % 2 == 0:
                return
            base, mine = 0x10 * (group + 1) + 0x40 * (group // 2), group
            group += 1

            def devices():
                for g in range(2):
                    m.gpu(f"0000:{base + 4 + g:02x}:00.0", 80, 4, SWITCHED(12))
                for n in range(2):
                    m.nic(f"0000:{base + 8 + n:02x}:00.0", f"mlx5_{2 * mine + n}", 200000, 4, rail=2 * mine + n)
            m.pci(f"0000:{base:02x}:00.0", BRIDGE, 4, 16, devices)
        m.cpu(numa, AMD_ROME, (16 * numa, 16 * numa + 15), body)


def eight_switched(m, sm, cpus, generation, mbps, gpus=8, links=18, nics=8, numa_cores=56):
    """A GPU and a NIC at each PCIe switch, half of them at each socket."""
    for socket in range(2):
        def body():
            for each in range(gpus // 2):
                index = socket * (gpus // 2) + each

                def devices():
                    m.gpu(f"0000:{0x1b + 0x10 * index:02x}:00.0", sm, generation, SWITCHED(links))
                    if index * nics // gpus != (index - 1) * nics // gpus or nics >= gpus:
                        m.nic(f"0000:{0x18 + 0x10 * index:02x}:00.0", f"mlx5_{m.port}", mbps, generation, rail=m.port)
                m.pci(f"0000:{0x16 + 0x10 * index:02x}:00.0", BRIDGE, generation, 16, devices)
        m.cpu(socket, cpus, (numa_cores * socket, numa_cores * socket + numa_cores - 1), body)


def dgx_h100(m):  # NVIDIA DGX H100: two Xeon 8480C, 18 NVLinks a GPU, 8 ConnectX-7 400 Gb/s
    eight_switched(m, 90, INTEL_SAPPHIRE, 5, 400000)


def hgx_h100_genoa(m):  # an HGX H100 board on two EPYC 9004 with four 400 Gb/s NICs
    eight_switched(m, 90, AMD_GENOA, 5, 400000, nics=4, numa_cores=96)


def hgx_b200(m):  # an HGX B200 board on two Emerald Rapids: NVLink 5
    eight_switched(m, 100, INTEL_EMERALD, 5, 400000, numa_cores=60)


def hgx_h100_4gpu(m):  # an HGX H100 4-GPU board: no NVSwitch, each pair of GPUs joined by 6 NVLinks
    bus = [f"0000:{0x1b + 0x20 * g:02x}:00.0" for g in range(4)]
    for socket in range(2):
        def body():
            for g in (2 * socket, 2 * socket + 1):
                m.gpu(bus[g], 90, 5, [(bus[to], 6, GPU_CLASS) for to in range(4) if to != g])
            m.nic(f"0000:{0x70 + 8 * socket:02x}:00.0", f"mlx5_{socket}", 200000, 5)
        m.cpu(socket, INTEL_SAPPHIRE, (32 * socket, 32 * socket + 31), body)


def workstation_2x4090(m):  # two GeForce RTX 4090 at a Ryzen Threadripper: no NVLink, no peer access
    def body():
        for g in range(2):
            m.gpu(f"0000:{0x21 + 0x20 * g:02x}:00.0", 89, 4, gdr=0, device_class=DISPLAY)
        m.nic("0000:61:00.0", "enp97s0", 10000, 3, gdr=0, width=4, device_class=ETHERNET)
    m.cpu(0, AMD_GENOA, (0, 63), body)


def workstation_4xa6000(m):  # four RTX A6000 in pairs with an NVLink bridge (4 links), one Xeon W
    bus = [f"0000:{b}:00.0" for b in ("17", "31", "b1", "ca")]

    def body():
        for g in range(4):
            m.gpu(bus[g], 86, 4, [(bus[g ^ 1], 4, "0x030000")], gdr=1, device_class=DISPLAY)
        m.nic("0000:e1:00.0", "enp225s0", 10000, 3, gdr=0, width=8, device_class=ETHERNET)
    m.cpu(0, INTEL_ICELAKE, (0, 55), body)


def server_8xl40s(m):  # eight L40S without NVLink, four at a PCIe switch, a 400 Gb/s NIC at each switch
    for socket in range(2):
        def body():
            def devices():
                for g in range(4):
                    m.gpu(f"0000:{0x80 * socket + 0x21 + g:02x}:00.0", 89, 4)
                m.nic(f"0000:{0x80 * socket + 0x2a:02x}:00.0", f"mlx5_{socket}", 400000, 5)
            m.pci(f"0000:{0x80 * socket + 0x20:02x}:00.0", BRIDGE, 4, 16, devices)
        m.cpu(socket, INTEL_SAPPHIRE, (32 * socket, 32 * socket + 31), body)


def rails(m, nodes):
    for node in range(nodes):
        m.on_host(node)
        dgx_h100(m)


def unequal_8_4_2(m):  # an eight-GPU, a four-GPU and a two-GPU node
    m.on_host(0)
    dgx_h100(m)
    m.on_host(1)
    hgx_h100_4gpu(m)
    m.on_host(2)
    eight_switched(m, 90, INTEL_SAPPHIRE, 5, 400000, gpus=2, nics=2)


def single_gpu(m, nodes=1):  # one T4 and one 25 Gb/s NIC
    for node in range(nodes):
        if nodes > 1:
            m.on_host(node)

        def body():
            m.gpu("0000:3b:00.0", 75, 3)
            m.nic("0000:5e:00.0", "ens1f0", 25000, 3, gdr=0, width=8, device_class=ETHERNET)
        m.cpu(0, INTEL_SKYLAKE, (0, 15), body)


def gh200(m):  # NVIDIA GH200: a Grace CPU and a Hopper GPU joined by NVLink-C2C (450 GB/s a direction), one 400 Gb/s NIC
    def body():
        m.gpu("0009:01:00.0", 90, 5, c2c=(45000, 10))
        m.pci("0002:00:00.0", BRIDGE, 5, 16, lambda: m.nic("0002:01:00.0", "mlx5_0", 400000, 5))
    m.cpu(0, GRACE, (0, 71), body)


def gb200_4gpu(m):  # a compute tray of GB200 NVL72: two Grace, four Blackwell, 18 NVLinks each to the rack's switches
    for socket in range(2):
        def body():
            for g in range(2):
                m.gpu(f"{8 * (2 * socket + g):04x}:01:00.0", 100, 5, SWITCHED(18), c2c=(45000, 10))
                m.pci(f"{8 * (2 * socket + g) + 2:04x}:00:00.0", BRIDGE, 5, 16,
                      lambda: m.nic(f"{8 * (2 * socket + g) + 2:04x}:01:00.0", f"mlx5_{m.port}", 400000, 5, rail=m.port))
        m.cpu(socket, GRACE, (72 * socket, 72 * socket + 71), body)


def power9_ac922(m):  # IBM AC922: two POWER9 with two V100 each; three NVLinks to the neighbour and three to the CPU
    bus = ["0004:04:00.0", "0004:05:00.0", "0035:03:00.0", "0035:04:00.0"]
    for socket in range(2):
        def body():
            for g in (2 * socket, 2 * socket + 1):
                m.gpu(bus[g], 70, 3, [(bus[g ^ 1], 3, GPU_CLASS), ("0000:00:00.0", 3, "0x068001")])
            m.nic(f"{0x0003 + 0x30 * socket:04x}:01:00.0", f"mlx5_{socket}", 100000, 4, width=8)
        m.cpu(8 * socket, POWER9, (80 * socket, 80 * socket + 79), body)


def mi300x_8gpu(m):  # an AMD MI300X platform: eight GPUs, each joined to each other by one xGMI link
    bus = [f"0000:{0x11 + 0x18 * g:02x}:00.0" for g in range(8)]
    for socket in range(2):
        def body():
            for g in range(4 * socket, 4 * socket + 4):
                def devices():
                    m.gpu(bus[g], 94, 5, [(bus[to], 1, "0x120000") for to in range(8) if to != g], device_class="0x120000",
                          tag="xgmi", gcn='gcn="gfx942" ')
                    m.nic(f"0000:{0x12 + 0x18 * g:02x}:00.0", f"mlx5_{g}", 400000, 5, rail=g)
                m.pci(f"0000:{0x10 + 0x18 * g:02x}:00.0", BRIDGE, 5, 16, devices)
        m.cpu(socket, AMD_GENOA, (96 * socket, 96 * socket + 95), body)


def vm_4xh100(m):  # four H100 given to a virtual machine: no NUMA, no PCI tree, no widths, a virtual network device
    def body():
        for g in range(4):
            m.gpu(f"0000:00:{6 + g:02x}.0", 90, 5, SWITCHED(18), width=0)
        m.nic_body("eth0", 0, 0, None)()
    m.cpu(-1, INTEL_SAPPHIRE, None, body)


def cpu_host(m, numas, kind, cores):
    for numa in range(numas):
        def body():
            if numa == 0:
                m.nic("0000:5e:00.0", "ens1f0", 25000, 3, gdr=0, width=8, device_class=ETHERNET)
        m.cpu(numa, kind, (cores * numa, cores * numa + cores - 1), body)


MACHINES = {
    "dgx1v": dgx1v, "dgx2": dgx2, "dgx_a100": dgx_a100, "dgx_h100": dgx_h100, "hgx_h100_genoa": hgx_h100_genoa,
    "hgx_h100_4gpu": hgx_h100_4gpu, "hgx_b200": hgx_b200, "workstation_2x4090": workstation_2x4090,
    "workstation_4xa6000": workstation_4xa6000, "server_8xl40s": server_8xl40s,
    "rails_2x8_h100": lambda m: rails(m, 2), "rails_3x8_h100": lambda m: rails(m, 3), "unequal_8_4_2": unequal_8_4_2,
    "single_gpu": single_gpu, "single_gpu_4_nodes": lambda m: single_gpu(m, 4), "gh200": gh200, "gb200_4gpu": gb200_4gpu,
    "power9_ac922": power9_ac922, "mi300x_8gpu": mi300x_8gpu, "vm_4xh100": vm_4xh100,
    "cpu_1_numa": lambda m: cpu_host(m, 1, INTEL_SAPPHIRE, 16), "cpu_2_numa": lambda m: cpu_host(m, 2, INTEL_SAPPHIRE, 56),
    "cpu_8_numa": lambda m: cpu_host(m, 8, AMD_GENOA, 24),
}


def main():
    differing = []
    for name, describe in MACHINES.items():
        machine = Machine()
        describe(machine)
        text = machine.text().replace('version="1"', 'version="2"') if name.startswith("mi") else machine.text()
        path = FOLDER / f"{name}.xml"
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                differing.append(path.name)
        else:
            path.write_text(text)
    if differing:
        sys.exit(f"not what make.py writes: {', '.join(differing)}")


if __name__ == "__main__":
    main()
