#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The reference against an independent check in integer Python.
cd "$(dirname "$0")/../.." || exit 1
out=$("${BUILD:-build}"/tests/lib/format_vectors | python3 selftests/lib/format_check.py --cover 2>&1)
status=$?
echo "# $(echo "$out" | tail -n 1)"
[ $status = 0 ] && echo "ok 1 - reference agrees with integer Python on every case" ||
	{ echo "not ok 1 - reference and integer Python"; echo "$out" | tail -n 20 | sed 's/^/# /'; }
echo 1..1
