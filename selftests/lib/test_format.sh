#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The number format: what the reference and what cards make of the same requests,
# each against an independent check in integer Python. OPTINC_TEST_CARDS and
# OPTINC_TEST_RANKS name other cards than emulated ones, see format_cards.c.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset OPTINC_KERNELS
judged=
n=0

ok() {	# ok STATUS NAME: one TAP line, and the end of $tmp/log if it failed
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		tail -n 20 "$tmp/log" | cut -c 1-200 | sed 's/^/# /'
	fi
}

skip() {	# skip NAME WHY
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# judge FILE CHECK-OPTIONS: by Python, unless it has passed the same bytes already
judge() {
	[ -n "$judged" ] && cmp -s "$judged" "$1" && return
	python3 selftests/lib/format_check.py "${@:2}" "$1" >"$tmp/log" 2>&1 || return
	echo "# $(tail -n 1 "$tmp/log")"
	judged=$1
}

# vectors NAME CHECK-OPTIONS -- COMMAND: what it writes is as Python computes it
vectors() {
	local file options=()
	file=$tmp/$((n + 1)).vectors
	local name=$1
	shift
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	timeout -k 5 300 env "$@" >"$file" 2>"$tmp/log" && judge "$file" "${options[@]}"
	ok $? "$name"
}

cpu_has() {	# cpu_has FLAG ...
	local flag
	for flag; do
		grep -qw "$flag" /proc/cpuinfo || return
	done
}

cover=(--cover)
[ -n "${OPTINC_TEST_CARDS:-}${OPTINC_TEST_RANKS:-}" ] && cover=()
vectors "cards agree with integer Python on every case" "${cover[@]}" -- \
	"$BUILD/tests/lib/format_cards"
vectors "reference agrees with integer Python on every case" --cover -- \
	"$BUILD/tests/lib/format_vectors"

for kernels in c avx2; do
	name="cards with OPTINC_KERNELS=$kernels agree with integer Python on every case"
	if [[ ${OPTINC_TEST_CARDS:-emu:} != emu:* ]]; then
		skip "$name" "these cards are not emulated"
	elif [ $kernels = avx2 ] && ! cpu_has avx2 fma f16c; then
		skip "$name" "this processor has no AVX2 with FMA and F16C"
	else
		vectors "$name" "${cover[@]}" -- OPTINC_KERNELS=$kernels \
			"$BUILD/tests/lib/format_cards"
	fi
done
echo "1..$n"
