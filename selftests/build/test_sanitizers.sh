#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The unit and API tests again: built by clang, under AddressSanitizer and
# UndefinedBehaviorSanitizer, under ThreadSanitizer, under valgrind.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:suppressions=selftests/build/tsan.supp
LOG=$(mktemp)
trap 'rm -f "$LOG"' EXIT
n=0

ok() {	# ok STATUS NAME: one TAP line; what was printed, when it failed
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		tail -n 40 "$LOG" | sed 's/^/# /'
	fi
}

build() {	# build NAME MAKE-ARGUMENTS
	local name=$1
	shift
	make -s -j"$(nproc)" BUILD="$BUILD/$name" "$@" all tests >"$LOG" 2>&1
	ok $? "$name: builds without a warning"
}

run() {	# run NAME COMMAND
	local name=$1
	shift
	timeout -k 5 600 "$@" >"$LOG" 2>&1
	ok $? "$name"
}

unit_tests() {	# all but those that are about time, size and system calls
	find "$BUILD/$1/tests" -name 'test_*' -type f ! -name test_kill ! -name test_steady ! -name test_stress |
		sort
}

build clang CC=clang
build asan CC=gcc SANITIZE=address,undefined CFLAGS="-O1 -g -fno-omit-frame-pointer"
for t in $(unit_tests asan); do
	run "asan, ubsan: ${t#*/tests/}" "$t"
done
run "asan, ubsan: format_cards" "$BUILD/asan/tests/lib/format_cards"
run "asan, ubsan: test_kill, 3 rounds of 32 MiB" "$BUILD/asan/tests/lib/test_kill" 3 32
run "asan, ubsan: test_stress, 10 s" "$BUILD/asan/tests/lib/test_stress" 10

# Processes are beyond its sight; these have threads. Fences are too, but those
# only order atomic words.
build tsan CC=gcc SANITIZE=thread CFLAGS="-O1 -g -Wno-tsan"
for t in lib/test_threads lib/test_queue lib/test_api emulator/test_provider; do
	run "tsan: $t" "$BUILD/tsan/tests/$t"
done

make -s BUILD="$BUILD" all tests >"$LOG" 2>&1
under_valgrind() {	# under_valgrind NAME COMMAND
	local name=$1
	shift
	run "valgrind: $name" valgrind -q --error-exitcode=99 --leak-check=full \
		--errors-for-leak-kinds=definite "$@"
}
for t in lib/test_reference lib/test_queue lib/test_memory emulator/test_card; do
	under_valgrind "$t" "$BUILD/tests/$t"
done
# Not test_api: its deadlines of 300 ms are about real time.
under_valgrind "optinc-demo" "$BUILD/bin/optinc-demo" utils/demo/data
echo "1..$n"
