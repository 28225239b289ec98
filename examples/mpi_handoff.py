"""A program that MPI starts hands its ranks over: MPI carries the id, tutti the arrays.

    mpirun -n 4 python examples/mpi_handoff.py               # needs mpi4py
"""

import numpy
from mpi4py import MPI

import tutti


def main():
    world = MPI.COMM_WORLD
    id = world.bcast(tutti.unique_id() if world.rank == 0 else None, root=0)
    with tutti.Communicator(world.size, world.rank, id) as comm:
        ours = numpy.arange(1000, dtype=numpy.float32) * (comm.rank + 1)
        mpis = numpy.empty_like(ours)
        world.Allreduce(ours, mpis, op=MPI.SUM)
        comm.all_reduce(ours)
        assert (ours == mpis).all(), "MPI and tutti disagree"
        if comm.rank == 0:
            print(f"{comm.size} ranks: tutti's sum is MPI's")


if __name__ == "__main__":
    main()
