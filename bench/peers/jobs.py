"""Finding the libraries, building a program for each, and talking to its ranks."""

import collections
import dataclasses
import functools
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

from figures import BARE_FORMS, COLLECTIVES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
C_FLAGS = ["-std=c11", "-O2", f"-I{ROOT}"]
START_SECONDS = 60
END_SECONDS = 10


class Failed(Exception):
    """A peer cannot go on; the text says why."""


@dataclasses.dataclass(frozen=True)
class Peer:
    key: str
    title: str
    program: pathlib.Path
    launcher: tuple[str, ...] = ()  # before the program; "{n}" is the number of ranks. Empty: each rank is started here
    crowded: tuple[str, ...] = ()  # more of it when ranks outnumber cores
    arguments: tuple[str, ...] = ()


def run_quietly(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(map(str, command))}` failed: {last_lines(done.stderr)}")
    return done.stdout


def last_lines(text, count=3):
    return " / ".join([line.strip() for line in text.splitlines() if line.strip()][-count:]) or "no message"


def build(compiler, source, program, extra=()):
    """Compiles a peer's program with the harness; C, or C++ for the source alone."""
    if shutil.which(compiler) is None:
        raise Failed(f"{compiler} is not installed")
    harness = program.with_suffix(".harness.o")
    run_quietly(["cc", *C_FLAGS, "-c", HERE / "harness.c", "-o", harness])
    flags = [f"-I{ROOT}", "-O2", "-std=c++17"] if source.endswith(".cc") else C_FLAGS
    run_quietly([compiler, *flags, HERE / source, harness, "-o", program, *extra])
    return program


def mpirun_options():
    return ("--allow-run-as-root",) if os.geteuid() == 0 else ()


# What each library is told so that it takes TCP on loopback, as between two hosts. Gloo has nothing else.
TCP_OF_UCX = {"UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "lo"}
TCP_OF_OPENMPI = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")


def find_openmpi(work, over_tcp=False):
    program = build("mpicc.openmpi", "mpi_collectives.c", work / "openmpi")
    launcher = ("mpirun.openmpi", *mpirun_options(), "--bind-to", "none", *(TCP_OF_OPENMPI if over_tcp else ()))
    return Peer("openmpi", "Open MPI", program, (*launcher, "-np", "{n}"), ("--oversubscribe",))


def find_openmpi_ucx(work, over_tcp):
    plain = find_openmpi(work)
    if "mca:pml:ucx:" not in run_quietly(["ompi_info", "--parsable"]):
        raise Failed("this Open MPI was built without UCX")
    # Without the second and third, Open MPI takes UCX for certain network cards only.
    ucx = ("--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any")
    for name, value in (TCP_OF_UCX if over_tcp else {"UCX_TLS": "self,posix,cma"}).items():
        ucx += ("-x", f"{name}={value}")
    return dataclasses.replace(
        plain, key="openmpi-ucx", title="Open MPI, UCX", launcher=(*plain.launcher[:-2], *ucx, "-np", "{n}")
    )


# Settings of Open MPI that are faster than what it takes by itself, in some cells.
OPENMPI_SETTINGS = {
    "openmpi-sm": ("Open MPI, coll sm", ("--mca", "coll_sm_priority", "100")),
    "openmpi-han": ("Open MPI, coll han", ("--mca", "coll_han_priority", "100")),
    "openmpi-adapt": ("Open MPI, coll adapt", ("--mca", "coll_adapt_priority", "100")),
    "openmpi-nocma": ("Open MPI, no CMA", ("--mca", "btl_vader_single_copy_mechanism", "none")),
}


def find_openmpi_with(work, key):
    plain = find_openmpi(work)
    title, words = OPENMPI_SETTINGS[key]
    return dataclasses.replace(plain, key=key, title=title, launcher=(*plain.launcher[:-2], *words, "-np", "{n}"))


def find_mpich(work, over_tcp):
    program = build("mpicc.mpich", "mpi_collectives.c", work / "mpich")
    launcher = ["mpirun.mpich"]
    for setting in ({"MPIR_CVAR_NOLOCAL": "1", **TCP_OF_UCX} if over_tcp else {}).items():
        launcher += ["-genv", *setting]
    return Peer("mpich", "MPICH", program, (*launcher, "-n", "{n}"))


def find_gloo(work):
    if not pathlib.Path("/usr/include/gloo/allreduce.h").exists():
        raise Failed("libgloo-dev is not installed")
    return Peer("gloo", "Gloo (TCP)", build("c++", "gloo_collectives.cc", work / "gloo", ["-lgloo", "-lpthread"]))


def find_tutti(work, library, arguments=()):
    if not (library / "libnccl.so.2").exists():
        raise Failed(f"{library}/libnccl.so.2 is missing: build it first (make build), or name its folder by --library")
    extra = [f"-I{ROOT / 'include'}", f"-L{library}", "-l:libnccl.so.2", f"-Wl,-rpath,{library}"]
    return Peer("tutti", "tutti", build("cc", "nccl_collectives.c", work / "tutti", extra), arguments=arguments)


def find_bare(work, form):
    """The transfer alone, of one form: no library, so it is compiled for this machine."""
    flags = [*C_FLAGS, "-O3", "-march=native"]
    parts = []
    for name in ("bare_slots", "bare_direct"):
        parts.append(work / f"{name}.o")
        run_quietly(["cc", *flags, "-c", HERE / f"{name}.c", "-o", parts[-1]])
    program = build("cc", "bare_collectives.c", work / "bare", [*flags, *parts])
    return Peer(f"bare-{form}", f"bare: {form}", program, arguments=(form,))


def find_peers(wanted, work, library, over_tcp):
    """(peers by key, reasons by key of those that are not here), in the order wanted."""
    work.mkdir(parents=True, exist_ok=True)
    hosts = ("hosts",) if over_tcp else ()
    finders = {
        "openmpi": lambda: find_openmpi(work, over_tcp),
        "openmpi-ucx": lambda: find_openmpi_ucx(work, over_tcp),
        "mpich": lambda: find_mpich(work, over_tcp),
        "gloo": lambda: find_gloo(work),
        "tutti": lambda: find_tutti(work, library, hosts),
        "tutti-shared": lambda: dataclasses.replace(
            find_tutti(work, library, ("shared", *hosts)), key="tutti-shared", title="tutti, ncclMemAlloc"
        ),
    }
    finders |= {key: functools.partial(find_openmpi_with, work, key) for key in OPENMPI_SETTINGS}
    finders |= {f"bare-{form}": functools.partial(find_bare, work, form) for form in BARE_FORMS}
    peers, skipped = {}, {}
    for key in wanted:
        try:
            peers[key] = finders[key]()
        except Failed as reason:
            skipped[key] = str(reason)
    return peers, skipped


ALL_PEERS = ["openmpi", "openmpi-ucx", "mpich", "gloo", "tutti", "tutti-shared"]
SETTINGS = list(OPENMPI_SETTINGS)  # of the host's memory
BARE = [f"bare-{form}" for form in BARE_FORMS]

Timing = collections.namedtuple("Timing", "us fastest_us iterations wrong")


# The scheduler shares the CPUs among sessions, and a rank that yields makes room for ranks of its own session only: they
# are in one, as a launcher's are.
RANKS_OF_ONE_SESSION = 'rank=0; while [ $rank -lt $0 ]; do { RANK=$rank "$@" || kill 0; } & rank=$((rank + 1)); done; wait'


class Job:
    """The ranks of one peer, asleep but for the time of ask(). Use as a context, so that they end."""

    def __init__(self, peer, ranks):
        self.peer = peer
        self.ranks = ranks
        self.processes = []
        self.pids = []
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="tutti-peers-", dir=shared_memory_folder()))
        for name in ("command", "result"):
            os.mkfifo(self.directory / name, 0o600)
        (self.directory / "board").touch(0o600)
        # Both directions, so that neither end waits for the other to open.
        self.command = os.open(self.directory / "command", os.O_RDWR | os.O_CLOEXEC)
        self.result = os.open(self.directory / "result", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        self.errors = open(self.directory / "errors", "w+b")
        self.received = b""

    def start(self):
        command = [str(self.peer.program), str(self.directory), str(self.ranks), *self.peer.arguments]
        if self.peer.launcher:
            launcher = [word.replace("{n}", str(self.ranks)) for word in self.peer.launcher]
            if self.ranks > len(os.sched_getaffinity(0)):
                launcher[1:1] = self.peer.crowded
            self.spawn([*launcher, *command], {})
        else:
            self.spawn(["sh", "-c", RANKS_OF_ONE_SESSION, str(self.ranks), *command], {})
        description = self.read_line(START_SECONDS).removeprefix("ready ")
        self.pids = [int(pid) for pid in self.ask("pids", START_SECONDS).split()[1:]]
        return description

    def spawn(self, command, environment):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMI_", "RANK"))}
        kept["TUTTI_DEVICE"] = "host"  # ranks are the machine's CPUs, also where it has GPUs
        self.processes.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.errors,
                stderr=self.errors,
                env=kept | environment,
                start_new_session=True,  # a group of its own, to be ended as one
            )
        )

    def measure(self, collective, size, iterations, seconds, patience):
        """A Timing, or None where the library has no such collective."""
        line = f"measure {COLLECTIVES.index(collective)} {size} {iterations} {seconds}"
        words = self.ask(line, patience).split()
        if words[0] == "absent":
            return None
        return Timing(float(words[1]) * 1e6, float(words[2]) * 1e6, int(words[3]), int(words[4]))

    def ask(self, line, patience):
        os.write(self.command, line.encode() + b"\n")
        return self.read_line(patience)

    def read_line(self, patience):
        end = time.monotonic() + patience
        while b"\n" not in self.received:
            if select.select([self.result], [], [], 0.2)[0]:
                self.received += os.read(self.result, 65536)
                continue
            if any(process.poll() is not None for process in self.processes):
                raise Failed(f"a rank has ended: {self.error_text()}")
            if time.monotonic() > end:
                raise Failed(f"no answer within {patience:.0f} s: {self.error_text()}")
        line, self.received = self.received.split(b"\n", 1)
        return line.decode()

    def error_text(self):
        self.errors.seek(0)
        # Of as many ranks as a job has here: the first to end says why the others did.
        return last_lines(self.errors.read().decode(errors="replace"), count=8)

    def cpu_ticks(self):
        """What the job's processes have used."""
        own = self.pids + [process.pid for process in self.processes]
        return sum(ticks_of(pid) for pid in set(own))

    def end(self, patience=END_SECONDS):
        """Asks the ranks to end, then makes them. A second call does nothing."""
        if self.errors.closed:
            return
        os.write(self.command, b"quit\n")
        end = time.monotonic() + patience
        for process in self.processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.errors.close()
        os.close(self.command)
        os.close(self.result)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def shared_memory_folder():
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def ticks_of(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return int(fields[11]) + int(fields[12])


def machine_ticks():
    """(busy, stolen) of the whole machine since it started. Without interrupts: over TCP they are the measured work itself."""
    fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, _, _, steal = fields[:8]
    return user + nice + system, steal
