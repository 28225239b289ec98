#!/usr/bin/env python3
"""A training step of a transformer as a trace for `tutti sim --trace`, on standard output.

Tensor groups of neighbours, data groups across them; gradients of a layer are reduced while the next layer's are
computed. Times of computation are supposed, not measured.

    make_transformer_step.py [--layers 8] [--tensor 8] [--data 8] [--hidden 8192] [--tokens 8192] > step.jsonl
"""

import argparse
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--tensor", type=int, default=8, help="ranks of a tensor group")
parser.add_argument("--data", type=int, default=8, help="ranks of a data group: all ranks over those of a tensor group")
parser.add_argument("--hidden", type=int, default=8192)
parser.add_argument("--tokens", type=int, default=8192, help="of a rank's batch")
parser.add_argument("--tflops", type=float, default=500, help="that a GPU reaches")
arguments = parser.parse_args()

weights = 12 * arguments.hidden**2 // arguments.tensor  # of a layer on a rank
forward_us = 2 * weights * arguments.tokens / (arguments.tflops * 1e6)
activations = arguments.tokens * arguments.hidden


def line(**facts):
    print(json.dumps(facts))


def tensor_reductions():
    for _ in range(2):  # after attention and after the feed-forward part
        line(call="all_reduce", count=activations, type="bfloat16", group="tensor")


line(group="tensor", consecutive=arguments.tensor)
line(group="data", every=arguments.tensor)
for layer in range(arguments.layers):
    line(compute_us=round(forward_us, 1), name=f"forward {layer}")
    tensor_reductions()
for layer in reversed(range(arguments.layers)):
    line(compute_us=round(2 * forward_us, 1), name=f"backward {layer}", id=f"b{layer}")
    tensor_reductions()
    line(call="reduce_scatter", count=weights // arguments.data, type="bfloat16", group="data", stream="gradients", after=[f"b{layer}"],
         name=f"gradients {layer}", id=f"g{layer}")
line(compute_us=round(forward_us / 10, 1), name="optimizer", after=[f"g{layer}" for layer in range(arguments.layers)])
line(call="all_gather", count=weights // arguments.data, type="bfloat16", group="data", name="weights")
