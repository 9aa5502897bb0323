#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Above the provider seam nothing knows which provider it has: only provider.c
# speaks of schemes and of the emulator, nobody looks at
# OPTINC_FEAT_EMULATED, and nothing but the kernel's provider makes its system
# calls. Each check is tried on a line that it has to find.
set -u
cd "$(dirname "$0")/../.." || exit 1
n=0

# name, pattern, line that breaks the rule, files that may have it
check() {
	local name=$1 pattern=$2 bad=$3 found
	shift 3
	n=$((n + 1))
	found=$(grep -nE "$pattern" lib/*.c lib/*.h | grep -vE '^lib/(provider\.h|reference\.c):')
	for f in "$@"; do
		found=$(grep -v "^lib/$f:" <<<"$found")
	done
	if ! grep -qE "$pattern" <<<"$bad"; then
		echo "not ok $n - $name # the check finds nothing"
	elif [ -n "$found" ]; then
		echo "not ok $n - $name"
		sed 's/^/# /' <<<"$found"
	else
		echo "ok $n - $name"
	fi
}

check "nobody asks whether a card is emulated" 'FEAT_EMULATED' \
	'if (q->features & OPTINC_FEAT_EMULATED)'
check "only provider.c loads code" 'dl(open|sym|addr)\(|liboptinc-emu' 'dlopen(EMULATOR, 0)' provider.c
check "only provider.c compares schemes" '(->|\.)scheme\b|cmp\(.*"(emu|card|pci)' \
	'if (!strcmp(p->scheme, "emu"))' provider.c provider_kernel.c enumerate.c
check "only the kernel's provider calls ioctl and mmap on devices" \
	'[^_>a-z]ioctl\(|open\(.*O_RDWR|MAP_SHARED' 'ret = ioctl(fd, cmd, arg);' provider_kernel.c
check "nothing ends the caller's process" '[^_a-z](abort|exit|_exit|assert)\(' '	abort();'
check "nothing prints" '[^a-z_](printf|fprintf|perror|puts)\(' '	fprintf(stderr, "x");'
echo "1..$n"
