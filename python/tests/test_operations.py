"""Each operation against NumPy, as threads; arrays of every kind."""

import array
import pathlib
import re

import ml_types
import numpy
import pytest

import tutti

TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def values_of(rank, count, dtype="float64"):
    return (numpy.arange(count) % 5 + rank + 1).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_all_reduce_of_each_type(ranks, size, dtype):
    def body(comm):
        out = numpy.zeros(1000, dtype)
        assert comm.all_reduce(values_of(comm.rank, 1000, dtype), out) is out
        return out

    wanted = sum(values_of(rank, 1000) for rank in range(size))
    for out in ranks(size, body):
        numpy.testing.assert_array_equal(out, wanted.astype(dtype))


@pytest.mark.parametrize("op,fold", [("sum", numpy.sum), ("prod", numpy.prod), ("max", numpy.max), ("min", numpy.min),
                                     ("avg", numpy.mean)])
def test_each_reduction_in_place(ranks, size, op, fold):
    def body(comm):
        data = values_of(comm.rank, 77)
        assert comm.all_reduce(data, op=op) is data
        return data

    wanted = fold([values_of(rank, 77) for rank in range(size)], axis=0)
    for out in ranks(size, body):
        numpy.testing.assert_allclose(out, wanted)


def test_reduce_and_broadcast_with_each_root(ranks, size):
    def body(comm):
        for root in range(size):
            data = values_of(comm.rank, 10)
            comm.reduce(data, root=root)
            wanted = sum(values_of(rank, 10) for rank in range(size)) if comm.rank == root else values_of(comm.rank, 10)
            numpy.testing.assert_array_equal(data, wanted)
            comm.broadcast(data, root=root)
            numpy.testing.assert_array_equal(data, sum(values_of(rank, 10) for rank in range(size)))

    ranks(size, body)


def test_gathering_and_scattering(ranks, size):
    everyones = numpy.concatenate([values_of(rank, 6) for rank in range(size)])

    def body(comm):
        mine = values_of(comm.rank, 6).reshape(2, 3)
        numpy.testing.assert_array_equal(comm.all_gather(mine, numpy.zeros((size, 6))).ravel(), everyones)
        root = size - 1
        out = numpy.zeros((size, 2, 3)) if comm.rank == root else None
        comm.gather(mine, out, root)
        if comm.rank == root:
            numpy.testing.assert_array_equal(out.ravel(), everyones)
        part = numpy.zeros(6)
        comm.scatter(everyones if comm.rank == root else None, part, root)
        numpy.testing.assert_array_equal(part, mine.ravel())
        comm.reduce_scatter(everyones, part)
        numpy.testing.assert_array_equal(part, mine.ravel() * size)

    ranks(size, body)


def test_all_to_all_swaps_blocks(ranks, size):
    def body(comm):
        outgoing = numpy.array([[comm.rank, to] for to in range(size)], "int32")
        incoming = numpy.zeros_like(outgoing)
        comm.all_to_all(outgoing, incoming)
        numpy.testing.assert_array_equal(incoming, [[source, comm.rank] for source in range(size)])

    ranks(size, body)


def test_a_group_may_receive_before_it_sends(ranks, size):
    def body(comm):
        mine, theirs = numpy.array([comm.rank]), numpy.array([-1])
        with tutti.group():
            comm.recv(theirs, (comm.rank - 1) % size)
            comm.send(mine, (comm.rank + 1) % size)
        assert theirs[0] == (comm.rank - 1) % size

    ranks(size, body)


def test_a_group_whose_block_raises_does_nothing(ranks):
    def body(comm):
        data = numpy.ones(3)
        with pytest.raises(ZeroDivisionError):
            with tutti.group():
                comm.all_reduce(data)
                1 / 0
        numpy.testing.assert_array_equal(data, 1)
        comm.all_reduce(data)
        numpy.testing.assert_array_equal(data, 2)

    ranks(2, body)


def test_asynchronous_work_in_order(ranks, size):
    def body(comm):
        data = numpy.ones(1 << 16, "float32")
        works = [comm.all_reduce(data, async_op=True) for _ in range(5)]
        assert works[-1].wait() is data
        assert all(work.done() for work in works)
        numpy.testing.assert_array_equal(data, size**5)
        comm.check()

    ranks(size, body)


def test_work_that_nobody_waits_for_keeps_its_arrays(ranks):
    def body(comm):
        for _ in range(20):
            comm.all_reduce(numpy.ones(1 << 14), async_op=True)
        comm.barrier()

    ranks(2, body)


def test_split_and_shrink(ranks):
    def body(comm):
        child = comm.split(comm.rank % 2, key=-comm.rank)
        assert (child.size, child.rank) == ((2, 1 - comm.rank // 2) if comm.rank % 2 == 0 else (1, 0))
        child.destroy()
        assert comm.split(None if comm.rank == 0 else 1) is None or comm.rank
        if comm.rank != 1:
            with comm.shrink([1]) as rest:
                assert rest.size == 2

    ranks(3, body)


class OnlyDLPack:
    """An array that has nothing but DLPack, like a torch tensor."""

    def __init__(self, data):
        self._data = data

    def __dlpack__(self, stream=None):
        return self._data.__dlpack__()

    def __dlpack_device__(self):
        return self._data.__dlpack_device__()


@pytest.mark.parametrize("dtype", TYPES)
def test_dlpack(ranks, dtype):
    def body(comm):
        data = values_of(comm.rank, 9, dtype)
        comm.all_reduce(OnlyDLPack(data))
        numpy.testing.assert_array_equal(data, values_of(0, 9, dtype) + values_of(1, 9, dtype))

    ranks(2, body)


def test_buffers_of_python_itself(ranks):
    def body(comm):
        numbers = array.array("d", [1.5, comm.rank])
        comm.all_reduce(numbers)
        assert list(numbers) == [3.0, 1.0]
        text = bytearray(b"abc" if comm.rank == 0 else b"xyz")
        comm.broadcast(text)
        assert text == b"abc"

    ranks(2, body)


def test_bfloat16_by_name(ranks):
    def body(comm):
        data = ml_types.bfloat16(numpy.array([1.0, comm.rank], "float32"))
        comm.all_reduce(data)
        numpy.testing.assert_array_equal(data.as_float32(), [2.0, 1.0])

    ranks(2, body)


def test_nothing_at_all(ranks):
    def body(comm):
        comm.all_reduce(numpy.zeros(0))
        comm.all_gather(numpy.zeros((3, 0)), numpy.zeros(0))

    ranks(2, body)


def test_the_version_is_the_interfaces():
    assert tutti.interface_version() == 22809


def test_the_example_learns(processes):
    example = pathlib.Path(__file__).parents[2] / "examples/train.py"
    result = processes(2, example.read_text())
    assert "2 ranks, 200 steps: all have learnt the same model" in result.stdout, result


def test_the_package_has_the_projects_version():
    root = pathlib.Path(__file__).parents[2]
    versions = {re.search(pattern, (root / file).read_text()).group(1) for file, pattern in (
        ("CMakeLists.txt", r"project\(tutti VERSION ([\d.]+)"), ("python/pyproject.toml", r'version = "([\d.]+)"'))}
    assert len(versions) == 1, versions
