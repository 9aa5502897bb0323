#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Recompute what optinc-demo averages, from Documentation/number-format.rst alone.

    demo_check.py GRADIENTS [--written DIR] [--table FILE]

GRADIENTS holds TENSOR-rankK.f32, raw little-endian float32. For every tensor
this computes the mean of 8-bit codes over the ranks and its signal-to-noise
ratio against the float64 mean. With --written, the files that
"optinc-demo --write DIR" left are compared bit for bit. With --table, so is
what "optinc-demo -o json" printed: CRC-32, blocks that are not finite, the
verdict, and the ratio within 0.2 dB.

Every number here is an integer or exact in float64: an element of float32
divided by a power of two, a code, a mean of codes times a power of two. Nothing
is taken from the library. Prints "N passed, N failed"; the exit status is 0 if
something was compared and nothing failed.
"""

import argparse
import array
import json
import math
import pathlib
import re
import sys
import zlib

BLOCK = 256
BITS = 8
HALF = 1 << (BITS - 1)
LARGEST = HALF - 1
NAN = 0x7FC00000
SNR_TOLERANCE = 0.2


def read_floats(path):
    """The file's elements; float64 holds each exactly."""
    values = array.array("f")
    values.frombytes(path.read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def find_tensors(directory):
    """{tensor: [path of rank 0, path of rank 1, ...]}"""
    found = {}
    for path in directory.iterdir():
        match = re.fullmatch(r"(.+)-rank(\d+)\.f32", path.name)
        if match:
            found.setdefault(match[1], {})[int(match[2])] = path
    for name, ranks in found.items():
        if sorted(ranks) != list(range(len(ranks))):
            sys.exit(f"demo_check: {name}: a rank is missing")
    return {name: [found[name][k] for k in sorted(found[name])] for name in sorted(found)}


def codes(block, scale):
    """rint(x / 2^e), limited; round() rounds half to even."""
    q = [round(x * scale) for x in block]
    if max(q) > LARGEST or min(q) < -LARGEST:
        q = [max(-LARGEST, min(LARGEST, v)) for v in q]
    return q


def reduce_block(blocks):
    """Mean of the ranks' blocks as floats, or None if one holds a NaN or an infinity."""
    count = len(blocks[0])
    # A sum of finite float32 is finite in float64; anything else stays visible in it.
    if not all(math.isfinite(sum(block)) for block in blocks):
        return None
    largest = max(max(max(block), -min(block)) for block in blocks)
    if largest == 0:
        return [0.0] * count
    e = max(math.frexp(largest)[1] - (BITS - 1), -126)
    columns = zip(*(codes(block, 2.0**-e) for block in blocks))
    ranks = len(blocks)
    unit = 2.0**e
    result = []
    for i, column in enumerate(columns):
        total = sum(column)
        if i % 2:
            total = -total
        mean = (total + ranks * HALF + ranks // 2) // ranks - HALF
        result.append((-mean if i % 2 else mean) * unit)
    return result


class Mean:
    """The mean of one tensor: its bytes, blocks without one, and its accuracy."""

    def __init__(self, inputs):
        count = len(inputs[0])
        if any(len(values) != count for values in inputs):
            sys.exit("demo_check: ranks differ in length")
        out = bytearray()
        signal = noise = 0.0
        self.nonfinite = 0
        # BLOCK is even: parity in the block is parity in the request.
        for start in range(0, count, BLOCK):
            blocks = [values[start : start + BLOCK] for values in inputs]
            result = reduce_block(blocks)
            if result is None:
                self.nonfinite += 1
                out += NAN.to_bytes(4, "little") * len(blocks[0])
                continue
            floats = array.array("f", result)
            if sys.byteorder == "big":
                floats.byteswap()
            out += floats.tobytes()
            for got, column in zip(result, zip(*blocks)):
                exact = sum(column) / len(blocks)
                signal += exact * exact
                noise += (got - exact) ** 2
        self.bytes = bytes(out)
        self.snr = 10 * math.log10(signal / noise) if signal and noise else None


class Checks:
    """Counts what passed and prints what did not."""

    def __init__(self):
        self.passed = self.failed = 0

    def expect(self, good, text):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {text}")

    def written(self, name, mean, directory):
        path = directory / f"{name}-mean.f32"
        if not path.is_file():
            self.expect(False, f"{path} is missing")
            return
        data = path.read_bytes()
        differ = sum(data[i : i + 4] != mean.bytes[i : i + 4] for i in range(0, len(data), 4))
        self.expect(
            len(data) == len(mean.bytes) and not differ,
            f"{path}: {len(data)} bytes, {differ} elements differ, {len(mean.bytes)} expected",
        )

    def row(self, name, mean, row):
        if row is None:
            self.expect(False, f"{name} is missing in the table")
            return
        crc = f"{zlib.crc32(mean.bytes):08x}"
        self.expect(row["crc32"] == crc, f"{name}: CRC-32 {row['crc32']}, {crc} expected")
        self.expect(
            row["nonfinite_blocks"] == mean.nonfinite,
            f"{name}: {row['nonfinite_blocks']} nonfinite blocks, {mean.nonfinite} expected",
        )
        self.expect(row["bit_exact"], f"{name}: not bit exact, says the table")
        got = row["snr_db"]
        near = got == mean.snr or None not in (got, mean.snr)
        near = near and (got is None or abs(got - mean.snr) <= SNR_TOLERANCE)
        self.expect(near, f"{name}: SNR {got} dB, {mean.snr} expected")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("gradients", type=pathlib.Path)
    parser.add_argument("--written", type=pathlib.Path, help="what optinc-demo --write left")
    parser.add_argument("--table", type=pathlib.Path, help="what optinc-demo -o json printed")
    args = parser.parse_args()

    checks = Checks()
    rows = {}
    if args.table:
        table = json.loads(args.table.read_text())
        checks.expect(table["pass"], f"the demo failed: {table['why']}")
        rows = {row["tensor"]: row for row in table["tensors"]}
    tensors = find_tensors(args.gradients)
    print(f"{'tensor':20} {'elements':>9} {'SNR (dB)':>8} CRC-32   nonfinite")
    for name, paths in tensors.items():
        inputs = [read_floats(path) for path in paths]
        mean = Mean(inputs)
        snr = "-" if mean.snr is None else f"{mean.snr:.2f}"
        print(
            f"{name:20} {len(inputs[0]):9} {snr:>8} {zlib.crc32(mean.bytes):08x} "
            f"{mean.nonfinite:9}"
        )
        if args.written:
            checks.written(name, mean, args.written)
        if args.table:
            checks.row(name, mean, rows.pop(name, None))
    checks.expect(not rows, f"in the table only: {', '.join(rows)}")
    print(f"{checks.passed} passed, {checks.failed} failed")
    compared = tensors and (args.written or args.table)
    return 0 if compared and not checks.failed else 1


if __name__ == "__main__":
    sys.exit(main())
