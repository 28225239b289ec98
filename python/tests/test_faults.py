"""Bad input is an exception before anything is sent; faults of other ranks are errors that name them, and no hang."""

import os
import re
import subprocess
import sys

import numpy
import pytest

import tutti


def refuse(ranks, call, error, text):
    def body(comm):
        with pytest.raises(error, match=text):
            call(comm)
        comm.barrier()  # nothing was sent

    ranks(2, body)


def test_arrays_with_gaps(ranks):
    refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros((4, 4))[:, 1]), ValueError, "not contiguous.*ascontiguous")
    refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros((4, 4)).T[1:]), ValueError, "not contiguous")


def test_types_that_the_interface_lacks(ranks):
    for dtype in ("complex64", "bool", "int16", ">f4", "U3"):
        refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros(3, dtype)), TypeError, "elements of type")
    refuse(ranks, lambda comm: comm.all_reduce([1, 2]), TypeError, "array is a list")
    refuse(ranks, lambda comm: comm.all_reduce(None), TypeError, "array is a NoneType")


def test_arrays_that_may_not_be_written(ranks):
    fixed = numpy.zeros(3)
    fixed.flags.writeable = False
    refuse(ranks, lambda comm: comm.all_reduce(fixed), ValueError, "array is read-only")
    refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros(3), fixed), ValueError, "out is read-only")
    refuse(ranks, lambda comm: comm.all_reduce(b"abc"), ValueError, "read-only")


def test_sizes_and_types_that_do_not_fit(ranks):
    refuse(ranks, lambda comm: comm.all_gather(numpy.zeros(3), numpy.zeros(5)), ValueError, "3 elements.*5.*must have 6")
    refuse(ranks, lambda comm: comm.reduce_scatter(numpy.zeros(6), numpy.zeros(2)), ValueError, "must have 6 / 2")
    refuse(ranks, lambda comm: comm.all_to_all(numpy.zeros(3), numpy.zeros(3)), ValueError, "multiple of the 2 ranks")
    refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros(3), numpy.zeros(3, "f4")), TypeError, "float64, out of float32")
    refuse(ranks, lambda comm: comm.all_reduce(numpy.zeros(3), op="median"), ValueError, "'median', wanted one of sum")


def test_roots_and_peers_out_of_range(ranks):
    refuse(ranks, lambda comm: comm.broadcast(numpy.zeros(3), root=2), tutti.Error, "2")
    refuse(ranks, lambda comm: comm.send(numpy.zeros(3), peer=-1), tutti.Error, "-1")


class OnAGpu:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}


class TorchsType:
    """torch.dtype has no name; what NumPy lacks, torch's GPU tensors say as bytes."""

    def __init__(self, text):
        self._text = text

    def __str__(self):
        return self._text


class OfTorch:
    def __init__(self, dtype, typestr):
        self.dtype = TorchsType(dtype)
        self.__cuda_array_interface__ = OnAGpu.__cuda_array_interface__ | {"typestr": typestr}


def test_gpu_memory_on_a_cpu_rank(ranks):
    for array in (OnAGpu(), OfTorch("torch.bfloat16", "<V2"), OfTorch("torch.float8_e5m2", "|V1")):
        refuse(ranks, lambda comm, array=array: comm.all_reduce(array), TypeError, "GPU memory, but this is a CPU rank")
    refuse(ranks, lambda comm: comm.all_reduce(OfTorch("torch.complex64", "<c8")), TypeError, "elements of type complex64")


def test_an_id_of_the_wrong_length_or_content():
    with pytest.raises(ValueError, match="3 bytes, wanted the 128"):
        tutti.Communicator(1, 0, b"abc")
    with pytest.raises(tutti.Error) as caught:
        tutti.Communicator(2, 0, bytes(128))
    assert caught.value.code == "ncclInvalidArgument" and caught.value.rank == 0


def test_use_after_the_end(ranks):
    def body(comm):
        comm.barrier()
        comm.destroy()
        comm.destroy()
        with pytest.raises(tutti.Error, match="was destroyed"):
            comm.barrier()

    ranks(2, body)


def test_ranks_that_call_different_sizes_are_told(processes):
    result = processes(2, """
import numpy, tutti
comm = tutti.Communicator.from_environment()
try:
    comm.all_reduce(numpy.zeros(10 + comm.rank))
except tutti.Error as error:
    print("refused:", error.rank, error.code, error.reason)
    comm.abort()
""", TUTTI_TIMEOUT_MS="3000")
    assert result.returncode == 0, result.stderr
    assert len(re.findall("refused: [01] ", result.stdout)) == 2, result.stdout


def test_an_exception_in_one_rank_ends_the_others(processes):
    result = processes(3, """
import numpy, tutti
try:
    with tutti.Communicator.from_environment() as comm:
        comm.barrier()
        if comm.rank == 1:
            raise ZeroDivisionError
        comm.all_reduce(numpy.zeros(1000))
except ZeroDivisionError:
    print("mine")
except tutti.Error as error:
    print("theirs:", error)
""", TUTTI_TIMEOUT_MS="3000")
    assert result.stdout.count("mine") == 1, result
    assert len(re.findall(r"theirs: rank [02]: .*1", result.stdout)) == 2, result


def test_a_forked_child_may_not_use_its_parents_communicator(processes):
    result = processes(2, """
import os, tutti
comm = tutti.Communicator.from_environment()
comm.barrier()
child = os.fork()
if child == 0:
    try:
        comm.barrier()
    except tutti.Error as error:
        print("child:", error, flush=True)
    raise SystemExit(0)   # the end of the child must leave the parent's communicator alone
assert os.waitpid(child, 0)[1] == 0
comm.barrier()
comm.destroy()
print("parent is well")
""")
    assert result.stdout.count("is a fork of it") == 2, result
    assert result.stdout.count("parent is well") == 2, result


CHILDREN = """
import multiprocessing, sys
import numpy, tutti

def rank_main(rank, size, ids, told):
    try:
        with tutti.Communicator(size, rank, ids.get()) as comm:
            told.put(float(comm.all_reduce(numpy.full(3, rank + 1.0))[2]))
    except tutti.Error as error:
        told.put(str(error))

if __name__ == "__main__":
    method, use_first = sys.argv[1:]
    context = multiprocessing.get_context(method)
    ids, told = context.Queue(), context.Queue()
    if use_first == "True":
        mine = tutti.Communicator(1, 0, tutti.unique_id())
        mine.all_reduce(numpy.ones(3))
    children = [context.Process(target=rank_main, args=(rank, 3, ids, told)) for rank in range(3)]
    for child in children:
        child.start()
    id = tutti.unique_id()
    for child in children:
        ids.put(id)
    print(*sorted(told.get(timeout=300) for _ in children), sep="\\n")
    for child in children:
        child.join()
    if use_first == "True":
        mine.all_reduce(numpy.ones(3))
        mine.destroy()
    print("parent is well")
"""


@pytest.mark.parametrize("method, used_before", [("spawn", True), ("forkserver", True), ("fork", False), ("fork", True)])
def test_children_are_ranks_unless_forked_after_the_first_call(tmp_path, method, used_before):
    path = tmp_path / "script.py"
    path.write_text(CHILDREN)
    result = subprocess.run([sys.executable, str(path), method, str(used_before)], text=True, capture_output=True, timeout=300,
                            check=False)
    *told, last = result.stdout.splitlines() or [""]
    assert len(told) == 3 and last == "parent is well", result
    for each in told:
        assert "fork before the first call" in each if method == "fork" and used_before else each == "6.0", result


def test_the_interpreter_ends_in_the_middle_of_collectives(processes):
    result = processes(2, """
import threading, time, numpy, tutti
comm = tutti.Communicator.from_environment()
comm.barrier()
def wait():
    try:
        comm.recv(numpy.zeros(100), 1 - comm.rank)   # which nobody sends
    except tutti.Error:
        pass
threading.Thread(target=wait, daemon=True).start()
work = comm.split(0).recv(numpy.zeros(100), 1 - comm.rank, async_op=True)
time.sleep(0.2)  # until the threads are at it
print("leaving", flush=True)
""", timeout=300)
    assert result.returncode == 0, result
    assert result.stdout.count("leaving") == 2


def test_ctrl_c_ends_a_call_that_waits(processes, tmp_path):
    result = processes(2, f"""
import os, pathlib, signal, threading, time, numpy, tutti
interrupted = pathlib.Path({str(tmp_path / "interrupted")!r})
comm = tutti.Communicator.from_environment()
comm.barrier()
if comm.rank == 0:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
else:  # two ranks that wait for each other for long would be told so
    while not interrupted.exists():
        time.sleep(0.01)
try:
    comm.recv(numpy.zeros(10), 1 - comm.rank)
except KeyboardInterrupt:
    interrupted.touch()
    print("interrupted", comm)
except tutti.Error as error:
    print("told", error.rank)
""", timeout=300, TUTTI_TIMEOUT_MS="20000")
    assert "interrupted <tutti.Communicator rank 0 of 2, aborted>" in result.stdout, result
    assert "told 1" in result.stdout, result


def test_a_signal_with_a_handler_of_its_own_lets_the_call_go_on(processes):
    result = processes(2, """
import os, signal, threading, time, numpy, tutti
comm = tutti.Communicator.from_environment()
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
comm.barrier()
if comm.rank == 0:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    data = numpy.zeros(3)
    comm.recv(data, 1)
    assert data[0] == 7 and seen
else:
    time.sleep(0.6)  # rank 0 gets its signal meanwhile
    comm.send(numpy.full(3, 7.0), 0)
comm.destroy()
print("done")
""")
    assert result.stdout.count("done") == 2, result


def test_a_forked_childs_signal_is_not_the_parents(processes):
    result = processes(2, """
import os, signal, threading, time, numpy, tutti
comm = tutti.Communicator.from_environment()
comm.barrier()
child = os.fork()
if child == 0:
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        os._exit(7)
data = numpy.zeros(3)
if comm.rank == 0:
    threading.Timer(0.3, os.kill, (child, signal.SIGINT)).start()
    comm.recv(data, 1)
else:
    time.sleep(0.8)  # rank 0 waits, and its child gets the signal meanwhile
    comm.send(data, 0)
    os.kill(child, signal.SIGINT)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
comm.destroy()
print("parent is well")
""")
    assert result.stdout.count("parent is well") == 2, result


def test_the_launcher_takes_scripts_modules_and_programs():
    from tutti.__main__ import with_interpreter
    import sys

    assert with_interpreter(["run", "-n", "2", "a.py", "-x"]) == ["run", "-n", "2", "--preload", "--", sys.executable, "a.py", "-x"]
    assert with_interpreter(["run", "--", "./program"]) == ["run", "--", "./program"]
    assert with_interpreter(["run", "-m", "pkg"]) == ["run", "--preload", "--", sys.executable, "-m", "pkg"]
    assert with_interpreter(["perf", "a.py"]) == ["perf", "a.py"]
    hosts = ["run", "--hosts", "a:2,b:2", "-x", "HOME"]
    assert with_interpreter([*hosts, "a.py"]) == [*hosts, "--preload", "--", sys.executable, "a.py"]


def test_the_launcher_puts_the_library_under_programs_that_do_not_know_of_it():
    code = "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libnccl' in line})"
    told = subprocess.run([sys.executable, "-m", "tutti", "run", "-n", "1", "--no-prefix", "-c", code], capture_output=True,
                          text=True, check=True).stdout
    assert told.split() == [os.path.realpath(tutti.library_path())]


def test_the_launcher_knows_which_options_of_run_take_values():
    from tutti.__main__ import TAKE_VALUES
    told = subprocess.run([tutti.command_path(), "run", "--help"], capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^  (-[\w,-]+) [A-Z]+\b", told, re.MULTILINE)
    assert {name for line in lines for name in line.split(",")} == TAKE_VALUES


def test_a_rank_without_a_launcher_is_told(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="python -m tutti run"):
        tutti.Communicator.from_environment()


@pytest.mark.parametrize("name, text", [("RANK", "x"), ("WORLD_SIZE", "2.5"), ("MASTER_PORT", "")])
def test_what_is_no_number_is_named(monkeypatch, name, text):
    for each, good in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(each, text if each == name else good)
    with pytest.raises(ValueError, match=f"{name}={text} is not a whole number"):
        tutti.Communicator.from_environment()


def test_ranks_that_do_not_come_are_named(monkeypatch, unused_port):
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] did not come"):
        tutti.Communicator.from_environment(timeout=0.3)


@pytest.fixture
def unused_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_no_waiting_call_holds_the_gil(ranks):
    # Ranks are threads of one interpreter: if a waiting rank held it, the other could never come.
    ranks(3, lambda comm: [comm.barrier() for _ in range(50)])


def test_this_process_has_no_stray_descriptor_after_many_communicators(ranks):
    ranks(2, lambda comm: comm.barrier())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        ranks(2, lambda comm: comm.barrier())
    assert len(os.listdir("/proc/self/fd")) <= before
