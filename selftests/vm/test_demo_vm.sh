#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# "make demo-vm": the demo through the driver in four virtual machines passes,
# and its checksums are those of "make demo". Prints TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
tests=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

ok_if() {	# ok_if DESCRIPTION COMMAND...
	local what=$1 word=ok
	shift
	tests=$((tests + 1))
	"$@" || { word='not ok'; failed=$((failed + 1)); }
	echo "$word $tests - $what"
	[ "$word" = ok ] || sed 's/^/# /' "$log"
}

demo() {
	make --no-print-directory demo-vm >"$log" 2>&1
}

# each tensor's line has both checksums, and they are the same
checksums_equal() {
	[ "$(awk '/^CRC-32 of/ { on = 1; next } /^demo-vm:/ { on = 0 } on && NF == 3 && $2 == $3' \
		"$log" | wc -l)" = "$(sed -nE 's/^demo-vm: PASS ([0-9]+) checksums.*/\1/p' "$log")" ]
}

ok_if "four machines, a card each: every rank has the same bits" demo
ok_if "checksums are those of emu:" checksums_equal
echo "1..$tests"
[ $failed = 0 ]
