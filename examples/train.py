"""Data-parallel training in forty lines: each rank has its own data, and all end with the same model.

    python -m tutti run -n 4 examples/train.py
"""

import numpy

import tutti

STEPS, BATCH, FEATURES, RATE = 200, 64, 8, 0.1


def main():
    with tutti.Communicator.from_environment() as comm:
        random = numpy.random.default_rng(comm.rank)  # other data on each rank
        wanted = numpy.linspace(-1, 1, FEATURES)
        weights = numpy.zeros(FEATURES)
        for _ in range(STEPS):
            inputs = random.standard_normal((BATCH, FEATURES))
            error = inputs @ (weights - wanted)
            gradient = inputs.T @ error / BATCH
            comm.all_reduce(gradient, op="avg")
            weights -= RATE * gradient

        everyones = comm.all_gather(weights, numpy.empty((comm.size, FEATURES)))
        assert (everyones == weights).all(), "the ranks' models differ"
        assert numpy.abs(weights - wanted).max() < 0.01, "the model did not learn"
        if comm.rank == 0:
            print(f"{comm.size} ranks, {STEPS} steps: all have learnt the same model")


if __name__ == "__main__":
    main()
