#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a user of the installed library sees: what it depends on, pkg-config, and
# README's own example, built and run from its very text.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
CC=${CC:-gcc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

ok() {	# ok STATUS NAME: one TAP line
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}

# An install of its own, staged, so that nothing of the build tree is found.
prefix=$tmp/usr
make -s install DESTDIR= PREFIX="$prefix" BUILD="$BUILD" CC="$CC" >"$tmp/install.log" 2>&1
ok $? "make install PREFIX="
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib

for header in optinc/optinc.h linux/optinc.h; do
	echo "#include <$header>" >"$tmp/h.c"
	cp "$tmp/h.c" "$tmp/h.cc"
	gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c -o /dev/null "$tmp/h.c"
	ok $? "$header compiles alone as C11"
	g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c -o /dev/null "$tmp/h.cc"
	ok $? "$header compiles alone as C++17"
done

[ "$(LD_LIBRARY_PATH='' "$prefix/bin/optinc-emu" --version)" = \
	"optinc-emu $(pkg-config --modversion liboptinc), card interface 1.0" ]
ok $? "optinc-emu is installed, needs no library of ours, and tells its version"
missing=
for tool in "$prefix"/bin/*; do
	[ -e "$prefix/share/man/man1/${tool##*/}.1" ] || missing+=" ${tool##*/}"
done
[ -z "$missing" ]
ok $? "every tool has its manual page$missing"

so=$(readlink -f "$prefix/lib/liboptinc.so")
needed=$(readelf -d "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' |
	grep -vE '^(libc\.so|libm\.so|libnl-|libnl-genl-|ld-linux)')
[ -z "$needed" ]
ok $? "liboptinc.so needs libc, libm, libnl only (else: $needed)"

[ "$(nm -D --defined-only "$prefix/lib/optinc/liboptinc-emu.so" | awk '{ print $3 }' | sort)" = optinc_provider ]
ok $? "liboptinc-emu.so exports the provider only"

awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code' README.md >"$tmp/example.c"
[ "$(wc -l <"$tmp/example.c")" -le 60 ] && grep -q '<optinc/optinc.h>' "$tmp/example.c"
ok $? "README shows a program of at most 60 lines"
# shellcheck disable=SC2046
$CC -Wall -Wextra -Werror -o "$tmp/example" "$tmp/example.c" $(pkg-config --cflags --libs liboptinc)
ok $? "README's program builds with pkg-config"
timeout 60 "$tmp/example" >"$tmp/out" 2>&1
ok $? "README's program runs: $(tail -n 1 "$tmp/out")"
echo "1..$n"
