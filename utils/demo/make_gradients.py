#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the gradients that the repository ships for optinc-demo.

    make_gradients.py [--text FILE] [--check] [DIRECTORY]

Trains a small model on a real text with data-parallel SGD on four ranks and
writes each rank's gradients of the last step, TENSOR-rankK.f32. The model
predicts a character from the two before it:

    h = softsign(embed[previous] + embed[the one before] / 2)
    p = softmax(h * output)

Each rank reads its own quarter of the text, so that the gradients differ as
they do in training: rows of embed whose character a batch did not hold are zero.
Of COPYING only the licences are used, not what the project says before them.

The same text gives the same bits on every machine: only IEEE additions,
multiplications and divisions in a fixed order are used, no function of libm, no
sum(), whose rounding changed in Python 3.12. --check compares with what
DIRECTORY holds and writes nothing.
"""

import argparse
import array
import hashlib
import pathlib
import random
import sys

RANKS = 4
STEPS = 60
BATCH = 16
RATE = 0.6
WIDTH = 80
ALPHABET = "\n" + "".join(chr(c) for c in range(32, 127))
LICENCES = b"                    GNU GENERAL PUBLIC LICENSE\n"
HERE = pathlib.Path(__file__).resolve().parent


def exp(x):
    """(1 + x/4096)^4096: near enough to e^x, and the same everywhere."""
    if x < -40.0:
        return 0.0
    y = 1.0 + x / 4096.0
    for _ in range(12):
        y *= y
    return y


def softmax(logits):
    top = max(logits)
    terms = [exp(x - top) for x in logits]
    total = 0.0
    for term in terms:
        total += term
    return [term / total for term in terms]


def zeros(rows, columns):
    return [[0.0] * columns for _ in range(rows)]


class Model:
    """Two tensors; output is kept by character, so that a row is a dot product."""

    def __init__(self, rng):
        v = len(ALPHABET)
        self.embed = [[rng.random() - 0.5 for _ in range(WIDTH)] for _ in range(v)]
        self.output = [[(rng.random() - 0.5) * 0.25 for _ in range(WIDTH)] for _ in range(v)]

    def hidden(self, first, second):
        x = [a / 2 + b for a, b in zip(self.embed[first], self.embed[second])]
        return x, [t / (1.0 + abs(t)) for t in x]

    def add_sample(self, grads, sample):
        """Add one sample's gradients, each divided by BATCH."""
        first, second, target = sample
        x, h = self.hidden(first, second)
        logits = []
        for row in self.output:
            z = 0.0
            for a, b in zip(row, h):
                z += a * b
            logits.append(z)
        errors = softmax(logits)
        errors[target] -= 1.0
        back = [0.0] * WIDTH
        for row, grad, error in zip(self.output, grads["output"], errors):
            error /= BATCH
            for i in range(WIDTH):
                grad[i] += error * h[i]
                back[i] += error * row[i]
        for i in range(WIDTH):
            slope = 1.0 + abs(x[i])
            back[i] /= slope * slope
            grads["embed"][first][i] += back[i] / 2
            grads["embed"][second][i] += back[i]

    def descend(self, all_grads):
        for name in ("embed", "output"):
            tensor = getattr(self, name)
            for grads in all_grads:
                for row, grad in zip(tensor, grads[name]):
                    for i in range(WIDTH):
                        row[i] -= RATE / RANKS * grad[i]


def shards(text):
    """A quarter of the text for each rank, as indices into ALPHABET."""
    index = {c: i for i, c in enumerate(ALPHABET)}
    numbers = [index[c] for c in text if c in index]
    size = len(numbers) // RANKS
    if size < 100:
        sys.exit("make_gradients: the text is too short")
    return [numbers[k * size : (k + 1) * size] for k in range(RANKS)]


def train(text):
    """Gradients of the last step, one dictionary per rank."""
    rng = random.Random(2024)
    model = Model(rng)
    data = shards(text)
    for step in range(STEPS):
        if step:
            model.descend(all_grads)
        all_grads = []
        for shard in data:
            grads = {name: zeros(len(ALPHABET), WIDTH) for name in ("embed", "output")}
            for _ in range(BATCH):
                at = int(rng.random() * (len(shard) - 2))
                model.add_sample(grads, shard[at : at + 3])
            all_grads.append(grads)
    return all_grads


def pack(rows):
    values = array.array("f", [x for row in rows for x in row])
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=HERE / "data")
    parser.add_argument("--text", type=pathlib.Path, default=HERE.parents[1] / "COPYING")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()

    data = args.text.read_bytes()
    data = data[max(data.find(LICENCES), 0) :]
    print(f"{args.text}: SHA-256 {hashlib.sha256(data).hexdigest()}")
    differ = 0
    for rank, grads in enumerate(train(data.decode("latin-1"))):
        for name, rows in grads.items():
            path = args.directory / f"{name}-rank{rank}.f32"
            if not args.check:
                path.write_bytes(pack(rows))
            elif path.read_bytes() != pack(rows):
                print(f"{path} differs")
                differ += 1
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
