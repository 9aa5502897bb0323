#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What the library exports is what its header declares: no more, no less, and
# each in a version node. Headers compile alone, in C and C++.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build} CC=${CC:-gcc} CXX=${CXX:-g++}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0

result() {	# status, name, file to show on failure
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		[ $# = 3 ] && sed 's/^/# /' "$3"
	fi
}

# Declarations only: comments name functions as well.
"$CC" -E -P -Iuapi -Ilib/include -include lib/include/optinc/optinc.h -x c /dev/null |
	grep -oE '\boptinc_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u >"$tmp/header"
sed -n '/global:/,/local:/s/^\t\(optinc_.*\);$/\1/p' lib/liboptinc.map | sort >"$tmp/map"
nm -D --defined-only "$BUILD"/lib/liboptinc.so | awk '$2 != "A" { print $3 }' |
	sed 's/@@.*//' | sort >"$tmp/exported"
nm -D --defined-only "$BUILD"/lib/liboptinc.so | awk '$2 != "A" { print $3 }' |
	grep -v '@@OPTINC_' >"$tmp/unversioned"

[ -s "$tmp/header" ]
result $? "the header declares functions"
diff "$tmp/header" "$tmp/map" >"$tmp/diff"
result $? "the version script lists what the header declares" "$tmp/diff"
diff "$tmp/header" "$tmp/exported" >"$tmp/diff"
result $? "the library exports what the header declares" "$tmp/diff"
[ ! -s "$tmp/unversioned" ]
result $? "every exported symbol has a version" "$tmp/unversioned"

for h in lib/include/optinc/*.h uapi/linux/*.h; do
	"$CC" -std=c11 -pedantic -Wall -Wextra -Werror -Iuapi -Ilib/include -fsyntax-only \
		-include "$h" -x c /dev/null 2>"$tmp/err"
	result $? "$h compiles alone as C11" "$tmp/err"
	command -v "$CXX" >/dev/null || continue
	"$CXX" -std=c++17 -Wall -Wextra -Werror -Iuapi -Ilib/include -fsyntax-only \
		-include "$h" -x c++ /dev/null 2>"$tmp/err"
	result $? "$h compiles alone as C++17" "$tmp/err"
done
echo "1..$n"
