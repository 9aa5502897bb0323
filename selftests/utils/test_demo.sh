#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# optinc-demo on the gradients that the repository ships, its numbers and results
# against demo_check.py, which takes nothing from the library. What is wrong must
# be noticed: in results that were changed, in gradients that are not complete.
set -u
cd "$(dirname "$0")/../.." || exit 1
DEMO=${BUILD:-build}/bin/optinc-demo
CHECK=selftests/lib/demo_check.py
DATA=utils/demo/data
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0

ok() {	# ok STATUS NAME: one TAP line, and what the last run printed if it failed
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		sed 's/^/# /' "$tmp/out"
	fi
}

demo() {	# demo ARGS: into $tmp/out and $status, never for ever
	timeout -k 5 120 "$DEMO" "$@" >"$tmp/out" 2>&1
	status=$?
}

last() { tail -n 1 "$tmp/out" | grep -qE -- "$1"; }

check() {	# check ARGS
	"$CHECK" "$DATA" "$@" >"$tmp/out" 2>&1
	status=$?
}

# rows TABLE EXPRESSION: true of each row r of a table in JSON; there are rows
rows() {
	python3 - "$@" >"$tmp/out" 2>&1 <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))["tensors"]
bad = [r for r in rows if not eval(f"({sys.argv[2]})")]
for r in bad:
    print(json.dumps(r))
sys.exit(not rows or len(bad))
PYTHON
}

# --- as a user runs it

tensors=$(find $DATA -name '*-rank0.f32' | wc -l)
demo --write "$tmp/mean" $DATA
[ $status = 0 ]
ok $? "exit status 0"
last "^demo: PASS $tensors tensors, "
ok $? "the last line is demo: PASS, with $tensors tensors"
cp "$tmp/out" "$tmp/text"
[ "$(find "$tmp/mean" -type f | wc -l)" = "$tensors" ]
ok $? "--write leaves a file for each tensor"
check --written "$tmp/mean"
[ $status = 0 ] && last "^$((tensors + 1)) passed, 0 failed"
ok $? "every written bit is that of the independent computation"

demo -o json --write "$tmp/mean2" $DATA
cp "$tmp/out" "$tmp/table"
[ $status = 0 ] && diff -r "$tmp/mean" "$tmp/mean2" >"$tmp/out"
ok $? "a second run writes the same bits"
check --table "$tmp/table"
[ $status = 0 ] && last "^$((tensors * 4 + 2)) passed, 0 failed"
ok $? "table: bit-exact, CRC-32, nonfinite, SNR within 0.2 dB of float64's"
rows "$tmp/table" 'r["sent_bytes"] == r["elements"] + (r["elements"] + 255) // 256'
ok $? "the card counted a byte for each element and one for each block"
rows "$tmp/table" '1.003 <= r["sent_bytes_per_element"] <= 1.02 and
	abs(r["sent_bytes_per_element"] - r["sent_bytes"] / r["elements"]) < 1e-5'
ok $? "that is 1.003 to 1.02 bytes an element"

# The same tensors, their files' sizes and CRCs as another program has them.
python3 - "$tmp/text" "$tmp/table" "$tmp/mean" >"$tmp/out" 2>&1 <<'PYTHON'
import json, pathlib, sys, zlib
text, table, mean = map(pathlib.Path, sys.argv[1:])
for r in json.loads(table.read_text())["tensors"]:
    data = (mean / f"{r['tensor']}-mean.f32").read_bytes()
    count = len(data) // 4
    sent = count + -(-count // 256)
    want = [r["tensor"], f"{count}", f"{sent}", f"{sent / count:.4f}", "6.0000",
            f"{6 * count / sent:.2f}x", f"{r['snr_db']:.2f}", "yes",
            f"{zlib.crc32(data):08x}", "0"]
    got = [line.split() for line in text.read_text().splitlines()]
    if want not in got:
        sys.exit(f"no such line: {want}")
PYTHON
ok $? "the table for people says the same"

# --- what is wrong is noticed

for file in "$tmp"/mean/*-mean.f32; do
	rm -rf "$tmp/bad"
	cp -r "$tmp/mean" "$tmp/bad"
	# one bit, of a low byte of the last element
	python3 - "$tmp/bad/${file##*/}" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-4, 2)
    byte = f.read(1)[0]
    f.seek(-4, 2)
    f.write(bytes([byte ^ 1]))
PYTHON
	check --written "$tmp/bad"
	[ $status = 1 ] && grep -q "^FAILED: .*${file##*/}: .* 1 elements differ" "$tmp/out" &&
		last "^$tensors passed, 1 failed"
	ok $? "one wrong bit in ${file##*/} is noticed"
done
rm "$tmp/bad/embed-mean.f32"
check --written "$tmp/bad"
[ $status = 1 ] && grep -q '^FAILED: .*embed-mean.f32 is missing' "$tmp/out"
ok $? "a result that was not written is noticed"

changed() {	# changed MEMBER EXPRESSION: a table with that in every row r is noticed
	python3 - "$tmp/table" "$@" >"$tmp/changed" <<'PYTHON'
import json, sys
table = json.load(open(sys.argv[1]))
for r in table["tensors"]:
    r[sys.argv[2]] = eval(sys.argv[3])
json.dump(table, sys.stdout)
PYTHON
	check --table "$tmp/changed"
	[ $status = 1 ] && last "^$((tensors * 3 + 2)) passed, $tensors failed"
	ok $? "a table with another $1 is noticed"
}

changed crc32 '"00000000"'
changed snr_db 'r["snr_db"] + 0.25'
changed snr_db 'r["snr_db"] - 0.25'
changed bit_exact False
changed nonfinite_blocks 1

gradients() {	# gradients NAME: a directory to spoil
	cp -r $DATA "$tmp/$1"
}

fails() {	# fails NAME REASON: demo: FAIL on the gradients of that name, nothing written
	rm -rf "$tmp/none"
	demo --write "$tmp/none" "$tmp/$1"
	[ $status = 1 ] && last "^demo: FAIL .*$2" && ! grep -q '^demo: PASS' "$tmp/out" &&
		[ ! -e "$tmp/none" ]
	ok $? "$1: demo: FAIL ... $2"
}

gradients "a rank's file is missing"
rm "$tmp/a rank's file is missing/output-rank2.f32"
fails "a rank's file is missing" '/output-rank2.f32: No such file'
gradients "the last rank's file is missing"
rm "$tmp/the last rank's file is missing/output-rank3.f32"
fails "the last rank's file is missing" '/output-rank3.f32: No such file'
gradients "a file is truncated by a block"
truncate -s -1024 "$tmp/a file is truncated by a block/embed-rank1.f32"
fails "a file is truncated by a block" 'embed-rank1.f32 has 7424 elements, rank 0 has 7680'
gradients "a file is truncated by a byte"
truncate -s -1 "$tmp/a file is truncated by a byte/embed-rank0.f32"
fails "a file is truncated by a byte" 'embed-rank0.f32 .* 30719 bytes'
gradients "a file is empty"
: >"$tmp/a file is empty/output-rank3.f32"
fails "a file is empty" 'output-rank3.f32 .* 0 bytes'
gradients "a file cannot be read"
rm "$tmp/a file cannot be read/output-rank3.f32"
ln -s nowhere "$tmp/a file cannot be read/output-rank3.f32"
fails "a file cannot be read" 'cannot read .*/output-rank3.f32'
gradients "one rank"
rm "$tmp/one rank"/*-rank[1-3].f32
fails "one rank" 'has no gradients of two or more ranks'
mkdir "$tmp/no gradients"
fails "no gradients" 'has no gradients of two or more ranks'
echo "1..$n"
