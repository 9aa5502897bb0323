#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Recompute number-format vectors from Documentation/number-format.rst.

Reads what format_vectors and format_cards write (format_write.h describes the
text), from a file or standard input, computes each case anew and compares the
bytes of the output and both counts. Prints "N passed, N failed"; the exit
status is 0 only if something was read, nothing failed and the file is complete.

With --cover it fails too when the cases leave one of the format's corners
out: a check that nothing could fail proves nothing.

Everything is exact integer arithmetic. A value is an integer count of its
type's smallest subnormal; conversion to floating point searches the type's
patterns, which are ordered as their values are. Neither is how the library or
the emulated card does it, and that is the point.
"""

import argparse
import sys

BLOCK = 256

# name: (bytes, fraction bits, exponent bits)
FLOATS = {"f32": (4, 23, 8), "f16": (2, 10, 5), "bf16": (2, 7, 8)}
RAWS = {"i8": 1, "i16": 2}

COUNTS = (0, 1, 255, 256, 257, 513, 1281, 2048, 2303, 2561, 4609, 5000, 33025)


class Malformed(Exception):
    """The vector file is not what it should be."""


class FloatType:
    """One floating-point type, its magnitudes counted in smallest subnormals."""

    def __init__(self, name):
        self.name = name
        self.bytes, self.fraction, exponent = FLOATS[name]
        self.sign = 1 << (8 * self.bytes - 1)
        self.infinity = ((1 << exponent) - 1) << self.fraction
        self.nan = self.infinity | 1 << (self.fraction - 1)
        # a smallest subnormal is 2^unit
        self.unit = 2 - (1 << (exponent - 1)) - self.fraction
        self.known = {}

    def magnitude(self, pattern):
        """Value of a pattern without sign; for infinity, the next power of two."""
        biased = pattern >> self.fraction
        fraction = pattern - (biased << self.fraction)
        if biased == 0:
            return fraction
        return (fraction + (1 << self.fraction)) << (biased - 1)

    def value(self, pattern):
        """Signed value, or None for NaN and the infinities."""
        magnitude = pattern % self.sign
        if magnitude >= self.infinity:
            return None
        value = self.magnitude(magnitude)
        return -value if pattern & self.sign else value

    def convert(self, integer, e):
        """Pattern nearest to integer * 2^e, the even one of two; zero is +0."""
        if integer == 0:
            return 0
        key = integer, e
        if key not in self.known:
            self.known[key] = self.search(abs(integer), e, self.sign if integer < 0 else 0)
        return self.known[key]

    def search(self, integer, e, sign):
        # Both sides in units fine enough for either.
        fine = min(e, self.unit) - 1
        target = integer << (e - fine)
        scale = self.unit - fine

        low, high = 0, self.infinity
        if target >= self.magnitude(high) << scale:
            return sign | self.infinity
        while high - low > 1:
            middle = (low + high) // 2
            if self.magnitude(middle) << scale <= target:
                low = middle
            else:
                high = middle
        below = target - (self.magnitude(low) << scale)
        above = (self.magnitude(high) << scale) - target
        if above < below or (above == below and low % 2):
            low = high
        return sign | low if low else 0


TYPES = {name: FloatType(name) for name in FLOATS}


def nearest_even(numerator, denominator):
    """numerator / denominator (positive) to the nearest integer, half to even."""
    quotient, remainder = divmod(numerator, denominator)
    if 2 * remainder > denominator or (2 * remainder == denominator and quotient % 2):
        quotient += 1
    return quotient


def little(data, size, signed=False):
    return [
        int.from_bytes(data[i : i + size], "little", signed=signed)
        for i in range(0, len(data), size)
    ]


class Case:
    """One request, as read; run() gives output, nonfinite and saturated."""

    def __init__(self, fields, inputs, seen):
        self.dtype = fields["dtype"]
        self.redop = fields["redop"]
        self.bits = int(fields["bits"])
        self.nranks = int(fields["nranks"])
        self.count = int(fields["count"])
        flags = fields["flags"]
        self.flags = set() if flags == "-" else set(flags.split(","))
        self.parity = int("parity" in self.flags)
        self.half = 1 << (self.bits - 1)
        self.inputs = inputs
        self.seen = seen
        self.check()

    def check(self):
        float_or_raw = self.dtype in FLOATS or self.dtype in RAWS
        if not (
            2 <= self.nranks <= 16
            and self.bits in (8, 16)
            and self.flags <= {"parity", "sign", "abstain"}
            and self.redop in (("mean", "sum") if float_or_raw else ("vote",))
            and (float_or_raw or self.dtype == "bit")
            and (self.dtype not in RAWS or 8 * RAWS[self.dtype] == self.bits)
            and (self.redop == "vote" or not self.flags & {"sign", "abstain"})
            and ("abstain" not in self.flags or "sign" in self.flags)
        ):
            raise Malformed("a combination that does not exist")
        size = (self.count + 7) // 8 if self.dtype == "bit" else self.count * self.size()
        if len(self.inputs) != self.nranks or any(len(i) != size for i in self.inputs):
            raise Malformed("inputs of the wrong number or length")

    def size(self):
        return FLOATS[self.dtype][0] if self.dtype in FLOATS else RAWS[self.dtype]

    def note(self, what):
        self.seen.add(f"{self.dtype} {self.redop} {self.bits}: {what}")

    def run(self):
        self.note(f"ranks {self.nranks}")
        self.note(f"parity {self.parity}")
        self.note(f"count {self.count}")
        if self.dtype == "bit":
            return self.vote(), 0, 0
        if self.dtype in RAWS:
            return self.raw()
        return self.floating()

    def reduce(self, index, codes):
        """Codes of one element, one of each rank, to the resulting code."""
        negate = -1 if (index + self.parity) % 2 else 1
        total = sum(negate * code + self.half for code in codes)
        if self.redop == "sum":
            return negate * (total - self.nranks * self.half)
        if self.nranks % 2 == 0 and total % self.nranks == self.nranks // 2:
            self.note("mean half-way between codes" + (", negated" if negate < 0 else ""))
        return negate * ((total + self.nranks // 2) // self.nranks - self.half)

    def quantise(self, value, unit, e):
        """value * 2^unit / 2^e, as a code."""
        up, down = 1 << max(unit - e, 0), 1 << max(e - unit, 0)
        if value % down * 2 == down:
            self.note("tie between codes")
        code = nearest_even(value * up, down)
        limit = self.half - 1
        if abs(code) > limit:
            self.note("clip")
        return max(-limit, min(limit, code))

    def floating(self):
        kind = TYPES[self.dtype]
        ranks = [little(data, kind.bytes) for data in self.inputs]
        output = []
        nonfinite = 0
        for first in range(0, self.count, BLOCK):
            block = [rank[first : first + BLOCK] for rank in ranks]
            patterns, bad = self.float_block(kind, first, block)
            output += patterns
            nonfinite += bad
        return b"".join(p.to_bytes(kind.bytes, "little") for p in output), nonfinite, 0

    def float_block(self, kind, first, block):
        length = len(block[0])
        if length < BLOCK and first:
            self.note("short tail")
        if any(kind.sign in rank for rank in block):
            self.note("-0")
        values = [[kind.value(pattern) for pattern in rank] for rank in block]
        if any(None in rank for rank in values):
            for pattern in (p for rank in block for p in rank):
                if pattern % kind.sign > kind.infinity:
                    self.note("NaN")
                elif pattern % kind.sign == kind.infinity:
                    self.note("-Inf" if pattern & kind.sign else "+Inf")
            return [kind.nan] * length, 1

        tops = [max(map(abs, rank)) for rank in values]
        largest = max(tops)
        if largest == 0:
            self.note("zero block")
            return [0] * length, 0
        if min(tops) == 0:
            self.note("mixed zero block")
        if largest >> 40 > min(tops):
            self.note("exponents of ranks far apart")
        if any(0 < top < 1 << kind.fraction for top in tops):
            self.note("subnormal")

        # largest * 2^unit lies in [2^(x-1), 2^x) for the frexp exponent x
        e = largest.bit_length() + kind.unit - (self.bits - 1)
        if e < -126:
            self.note("exponent stops at -126")
            e = -126

        patterns = []
        for i in range(length):
            codes = [self.quantise(rank[i], kind.unit, e) for rank in values]
            code = self.reduce(first + i, codes)
            pattern = kind.convert(code, e)
            magnitude = pattern % kind.sign
            if magnitude == kind.infinity:
                self.note("overflow to infinity")
            elif 0 < magnitude < 1 << kind.fraction:
                self.note("subnormal result")
            elif magnitude == 0 and code < 0:
                self.note("negative underflow to zero")
            elif code == 0 and any(codes):
                self.note("codes cancel")
            patterns.append(pattern)
        return patterns, 0

    def raw(self):
        size = RAWS[self.dtype]
        ranks = [little(data, size, signed=True) for data in self.inputs]
        saturated = sum(rank.count(-self.half) for rank in ranks)
        if saturated:
            self.note("saturated")
        width = 2 * size if self.redop == "sum" else size
        output = b""
        for i in range(self.count):
            codes = [max(rank[i], 1 - self.half) for rank in ranks]
            output += self.reduce(i, codes).to_bytes(width, "little", signed=True)
        return output, 0, saturated

    def vote(self):
        counts = []
        for i in range(self.count):
            digits = [3 if data[i // 8] & 1 << i % 8 else 1 for data in self.inputs]
            counts.append(sum(digits) - 2 * self.nranks)
        form = "count"
        if "sign" in self.flags:
            form = "abstain" if "abstain" in self.flags else "sign"
        if 0 in counts:
            self.note(f"{form}, tie")
        self.note(f"{form}, ranks {self.nranks}")
        if form == "count":
            return b"".join(c.to_bytes(1, "little", signed=True) for c in counts)
        if form == "abstain":
            signs = ((c > 0) - (c < 0) for c in counts)
            return b"".join(s.to_bytes(1, "little", signed=True) for s in signs)
        packed = sum((c >= 0) << i for i, c in enumerate(counts))
        return packed.to_bytes((self.count + 7) // 8, "little")


def corners():
    """What cases that deserve the name must have among them."""
    ranks = [f"ranks {n}" for n in range(2, 17)]
    counts = [f"count {n}" for n in COUNTS]
    always = ranks + counts + ["parity 0", "parity 1"]
    for redop in ("mean", "sum"):
        ties = ["mean half-way between codes", "mean half-way between codes, negated"]
        some = always + (ties if redop == "mean" else [])
        for dtype in FLOATS:
            for bits in (8, 16):
                name = f"{dtype} {redop} {bits}: "
                for what in some + [
                    "short tail", "-0", "NaN", "+Inf", "-Inf", "zero block", "codes cancel",
                    "mixed zero block", "subnormal", "tie between codes",
                ]:
                    yield name + what
                if dtype == "f32" or bits == 8:
                    yield name + "clip"
                if dtype == "f16":
                    yield name + "subnormal result"
                    # a sum is a multiple of the smallest subnormal again
                    if redop == "mean":
                        yield name + "negative underflow to zero"
                else:
                    yield name + "exponent stops at -126"
                    yield name + "exponents of ranks far apart"
                if redop == "sum":
                    yield name + "overflow to infinity"
        for dtype, size in RAWS.items():
            for what in some + ["saturated"]:
                yield f"{dtype} {redop} {8 * size}: {what}"
    for bits in (8, 16):
        for what in counts:
            yield f"bit vote {bits}: {what}"
        for form in ("count", "sign", "abstain"):
            for what in ranks + ["tie"]:
                yield f"bit vote {bits}: {form}, {what}"


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def read(lines):
    """Yield (name, fields, inputs) of each case; insist on a complete file."""
    if next(lines, "").strip() != "optinc-format-vectors 1":
        raise Malformed("not a file of format vectors, version 1")
    cases = 0
    fields, inputs, name = {}, [], None
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "total":
            if name is not None or int(rest) != cases:
                raise Malformed(f"{cases} cases, not the {rest} that were written")
            return
        if word == "case":
            fields, inputs, name = {}, [], rest
        elif word == "input":
            rank, _, text = rest.partition(" ")
            if int(rank) != len(inputs):
                raise Malformed(f"case {name}: input {rank} out of turn")
            inputs.append(unhex(text))
        elif word == "end":
            yield name, fields, inputs
            cases += 1
            name = None
        else:
            fields[word] = rest
    raise Malformed("cut short: no total at the end")


def difference(claim, computed):
    for what, a, b in zip(("output", "nonfinite", "saturated"), claim, computed):
        if a == b:
            continue
        if what != "output" or len(a) != len(b):
            return f"{what}: claimed {a!r}, computed {b!r}"
        at = next(i for i in range(len(a)) if a[i] != b[i])
        return f"output differs at byte {at}: claimed {a[at]:#04x}, computed {b[at]:#04x}"
    return None


def main():
    parser = argparse.ArgumentParser(description="check vectors of the number format")
    parser.add_argument("file", nargs="?", default="-", help="standard input by default")
    parser.add_argument(
        "--cover", action="store_true", help="fail unless the cases reach every corner"
    )
    options = parser.parse_args()

    stream = sys.stdin if options.file == "-" else open(options.file, encoding="ascii")
    passed = failed = 0
    seen = set()
    broken = None
    try:
        for name, fields, inputs in read(iter(stream)):
            claim = unhex(fields["output"]), int(fields["nonfinite"]), int(fields["saturated"])
            wrong = difference(claim, Case(fields, inputs, seen).run())
            if wrong:
                failed += 1
                kind = f"{fields['dtype']} {fields['redop']} {fields['bits']}"
                print(f"case {name} ({kind}, {fields['nranks']} ranks): {wrong}")
            else:
                passed += 1
    except Malformed as error:
        broken = str(error)
    except (KeyError, ValueError) as error:
        broken = f"malformed: {error!r}"

    if broken:
        print(broken)
    missing = [corner for corner in corners() if corner not in seen] if options.cover else []
    for corner in missing:
        print(f"no case of: {corner}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or broken or missing or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
