"""What the tutti command answers, as plain objects: frozen, comparable, without methods that ask again."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import types
import typing
from typing import Any, Literal, Mapping, TypeVar

from ._library import command_path

Answer = TypeVar("Answer")


def _value(kind: Any, data: Any) -> Any:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(_value(arguments[0], each) for each in data)
    if isinstance(kind, types.UnionType):  # X | None
        return None if data is None else _value(arguments[0], data)
    return answer_of(kind, data) if dataclasses.is_dataclass(kind) else kind(data)


def answer_of(kind: Any, data: Mapping) -> Any:
    """A dataclass of a JSON object; a field's metadata has the key where that is no name for Python, or says too little.

    What the class does not know is left out, so the command may say more one day.
    """
    hints = typing.get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        key = field.metadata.get("key", field.name)
        if key in data:
            fields[field.name] = _value(hints[field.name], data[key])
    return kind(**fields)


def _ask(kind: type[Answer], *arguments: Any, good: tuple = (0,), text: str | None = None) -> Answer:
    command = [os.fspath(command_path()), *map(str, arguments), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, input=text)
    if result.returncode not in good:
        said = result.stderr.strip().splitlines()  # "tutti NAME: why", and where its help is
        reason = " ".join(line for line in said if not line.endswith("--help tells more."))
        for prefix in (f"tutti {arguments[0]}: ", "tutti: "):
            reason = reason.removeprefix(prefix)
        raise ValueError(f"tutti {arguments[0]}: {reason or f'exit code {result.returncode}'}")
    return answer_of(kind, json.loads(result.stdout))


# ---- explain ----


@dataclasses.dataclass(frozen=True)
class Switch:
    """Calls of `from_bytes` and more, up to the next switch, take this algorithm."""

    from_bytes: int
    algorithm: str


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One that could have been taken, and what the rank that does most would do.

    threads_us, processes_us: predicted microseconds, 0 where there is no choice and so no price; steps and messages are of one
    piece, bytes of the whole call; hops: messages one after the other; slots: that a link must have.
    """

    name: str
    threads_us: float
    processes_us: float
    steps: int
    sent_messages: int
    received_messages: int
    sent_bytes: float
    received_bytes: float
    hops: int
    slots: int


@dataclasses.dataclass(frozen=True)
class Program:
    """What one rank does for each piece, a line a step."""

    rank: int
    steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MappedStep:
    """A step of the program with buffers that peers map.

    names_memory: its messages say where the data lies instead of bringing it; offers_for_step: the later step whose result's
    place its message offers, -1: none; places_at_ranks: it puts its result into the outputs of these; is_placed: what it waits
    for may be in its output already.
    """

    step: int
    names_memory: bool
    offers_for_step: int
    places_at_ranks: tuple[int, ...]
    is_placed: bool


@dataclasses.dataclass(frozen=True)
class Mapped:
    """What processes of one host do with buffers of ncclMemAlloc. other: what is tried beside the algorithm, "": nothing;
    steps: those that do anything of it."""

    algorithm: str
    other: str
    steps: tuple[MappedStep, ...]


@dataclasses.dataclass(frozen=True)
class Proof:
    """tried: above 256 ranks it is not; ok: tried, and right on all ranks without deadlock; text: what was found."""

    tried: bool
    ok: bool
    text: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """How CPU ranks carry a call out.

    bytes: of the whole vector; hosts: as many ranks on each; network: between them and why, "" on one host; threads,
    processes: what is taken from which size on by ranks that can, and that cannot, read each other's memory; reads_senders:
    nothing is copied between ranks of a process; sender, carrier: of "sendrecv", the rank that sends to root, and the rank
    whose process takes that to another host.
    """

    collective: str
    ranks: int
    hosts: int
    network: str
    root: int
    bytes: int
    algorithm: str
    reason: str
    pieces: int
    piece_bytes: int
    reads_senders: bool
    threads: tuple[Switch, ...]
    processes: tuple[Switch, ...]
    algorithms: tuple[Algorithm, ...]
    program: Program
    mapped: Mapped
    proof: Proof
    sender: int | None = None
    carrier: int | None = None


def explain(collective: str, ranks: int = 4, bytes: int = 1 << 20, *, root: int = 0, rank: int = 0,
            algorithm: str | None = None) -> Explanation:
    """Which algorithm a call takes and why, what the others would cost, its steps and its proof. Runs nothing.

    collective: "all_reduce", "AllReduce", ...; bytes: of the whole vector, all ranks' blocks together; root: also the
    receiver of "sendrecv"; rank: whose program is shown; algorithm: this one, whatever the choice is. ValueError says what
    is not there.
    """
    forced = () if algorithm is None else ("--algorithm", algorithm)
    return _ask(Explanation, "explain", collective, "-n", ranks, "-b", bytes, "--root", root, "--rank", rank, *forced,
                good=(0, 1))


# ---- topology ----


@dataclasses.dataclass(frozen=True)
class Link:
    """From a node to nodes[to]. kind: "PCI", "NVLink", "NET", ...; lanes: 0 where it has none."""

    to: int
    kind: str
    gb_per_second: float
    lanes: int


@dataclasses.dataclass(frozen=True)
class Node:
    """A part of the machine; what it has not is None.

    kind: "CPU", "PCI", "GPU", "NVSwitch", "NIC" or "NET" (a port); host, number: which of its kind, on which host; parent:
    index of what it hangs below; processors: as "0-15,32-47"; sm: compute capability, 90 for 9.0; gpudirect: network and GPU
    memory reach each other; peer_over_pci: GPUs' memories do.
    """

    kind: str
    host: int
    number: int
    name: str
    bus_id: str | None = None
    parent: int | None = None
    processors: str | None = None
    rank: int | None = None
    sm: int | None = None
    gpudirect: bool | None = None
    peer_over_pci: bool | None = None
    gb_per_second: float | None = None
    rail: int | None = None
    links: tuple[Link, ...] = ()


@dataclasses.dataclass(frozen=True)
class Path:
    """The best way from nodes[start] to nodes[end].

    kind: from near to far "NVL", "PIX", "PHB", "SYS" and others (docs/TOPOLOGY.md); relay: the node over whose memory it
    goes, where the two do not reach each other's.
    """

    start: int = dataclasses.field(metadata={"key": "from"})
    end: int = dataclasses.field(metadata={"key": "to"})
    kind: str
    gb_per_second: float
    relay: int | None = None


@dataclasses.dataclass(frozen=True)
class WayOut:
    """From a host to others; between two hosts it is the narrower one's."""

    host: int
    kind: str
    gb_per_second: float


@dataclasses.dataclass(frozen=True)
class Topology:
    """A machine as the planner sees it. Figures are 10^9 bytes a second in one direction.

    paths: between GPUs, CPUs and ports of a host, both ways; ways_out: a host each, where there are several; assumed: what was
    not known, a line each.
    """

    nodes: tuple[Node, ...]
    paths: tuple[Path, ...]
    ways_out: tuple[WayOut, ...]
    assumed: tuple[str, ...]

    def of_kind(self, kind: str) -> tuple[Node, ...]:
        """The nodes of a kind, in order: topology().of_kind("GPU")."""
        return tuple(node for node in self.nodes if node.kind == kind)

    def path(self, start: Node, end: Node) -> Path | None:
        """The path between two of its nodes; None where there is none, as between bridges."""
        wanted = (self.nodes.index(start), self.nodes.index(end))
        return next((path for path in self.paths if (path.start, path.end) == wanted), None)


def topology(file: str | os.PathLike | None = None, *, profile: str | os.PathLike | None = None) -> Topology:
    """This machine, or the one that `file` describes: NCCL_TOPO_FILE's XML or hwloc's. profile completes one without GPUs.

    ValueError names file, line and column of what is wrong in it.
    """
    arguments = [] if file is None else ["--topo", os.fspath(file)]
    arguments += [] if profile is None else ["--profile", os.fspath(profile)]
    return _ask(Topology, "topo", *arguments)


# ---- simulate ----


@dataclasses.dataclass(frozen=True)
class Way:
    """An algorithm with its protocol, as "ring LL128".

    closed_us: microseconds by closed form; None: no schedule of ours plays it; nccl_model_us: by NCCL's own model, with
    system="nccl".
    """

    name: str = dataclasses.field(metadata={"key": "way"})
    channels: int | None = None
    closed_us: float | None = None
    hops: int | None = None
    nccl_model_us: float | None = None


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A call on a cluster.

    us: microseconds; bus_gb_s: 10^9 bytes a second on the busiest wire, by nccl-tests' formula; limited_by: a link's name,
    "latency", or the ranks themselves; events: that were played, None in closed form; ways: the cheapest first.
    """

    nodes: int
    ranks: int
    bytes: int
    way: str
    us: float
    bus_gb_s: float
    limited_by: str
    reason: str
    ways: tuple[Way, ...] = ()
    events: int | None = None


@dataclasses.dataclass(frozen=True)
class _Sweep:
    rows: tuple[Simulation, ...]


def simulate(collective: str, cluster: str | os.PathLike | Mapping, bytes: int = 1 << 20, *, nodes: int | None = None,
             ranks: int | None = None, algorithm: str | None = None,
             protocol: Literal["LL", "LL128", "Simple"] | None = None, channels: int | None = None, root: int = 0,
             fidelity: Literal["closed", "loggp", "fair"] = "closed", system: Literal["tutti", "nccl"] = "tutti",
             launch: Literal["eager", "graph"] = "eager", what_if: Mapping[str | int, float] | None = None) -> Simulation:
    """What a call would take on a cluster that nobody has at hand (docs/SIMULATOR.md). Sends nothing.

    cluster: a YAML file, or its content as a mapping, whose topology files then have absolute paths; bytes: of the whole
    vector, all ranks' blocks together; nodes, ranks: of the cluster's first group, instead of its own; what_if: a link's name
    -> factor of its speed (0: failed), a rank -> factor of its time. ValueError names line and column of what is wrong.
    """
    arguments: list = ["sim", collective, "--bytes", bytes, "--root", root, "--fidelity", fidelity, "--system", system,
                       "--launch", launch]
    for option, value in (("--nodes", nodes), ("--ranks", ranks), ("--algorithm", algorithm), ("--protocol", protocol),
                          ("--channels", channels)):
        arguments += [] if value is None else [option, value]
    for name, factor in (what_if or {}).items():
        arguments += ["--what-if", f"{name}={factor}"]
    if isinstance(cluster, Mapping):  # what is JSON is YAML
        return _ask(_Sweep, *arguments, "--cluster", "/dev/stdin", text=json.dumps(cluster)).rows[0]
    return _ask(_Sweep, *arguments, "--cluster", os.fspath(cluster)).rows[0]


# ---- settings ----


@dataclasses.dataclass(frozen=True)
class Setting:
    """One of them. value: as it is in force; source: who gave it; allowed: its values or range, as text.

    has_effect: False for those of NCCL's that are known and change nothing here, with no_effect_because.
    """

    name: str
    value: str
    source: str
    type: str
    unit: str
    default: str
    allowed: str
    has_effect: bool
    no_effect_because: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Complaint:
    """A setting with a value that cannot be, or a name that is none."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """Every setting, and what is wrong with those that are set."""

    settings: tuple[Setting, ...]
    complaints: tuple[Complaint, ...]


def settings() -> Settings:
    """Every setting of this process's environment and files: what a communicator made now would go by."""
    return _ask(Settings, "settings", good=(0, 1))
