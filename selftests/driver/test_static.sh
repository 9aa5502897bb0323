#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The driver without running it: compilers' and sparse's warnings on the kernels
# that it is for, checkpatch, coccinelle, holes in uapi structs. Prints TAP. Each
# tool is first given something bad, which it has to find.
set -u
HERE=$(dirname "$(readlink -f "$0")")
cd "$HERE/../.." || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tests=0 failed=0

# report DESCRIPTION FILE: nothing may be in the file
report_empty() {
	tests=$((tests + 1))
	if [ -s "$2" ]; then
		failed=$((failed + 1))
		echo "not ok $tests - $1"
		head -n 30 "$2" | sed 's/^/# /'
	else
		echo "ok $tests - $1"
	fi
}

# report_found DESCRIPTION PATTERN FILE: the planted defect was seen
report_found() {
	grep -qE "$2" "$3" && : >"$tmp/none" || { echo "not found: $2"; cat "$3"; } >"$tmp/none"
	report_empty "$1" "$tmp/none"
}

# The module for KDIR $1 with flags $2 from the tree $3; warnings into $4
build() {
	make --no-print-directory -C "$3" driver BUILD="$tmp/build" KDIR="$1" KFLAGS="$2" \
		>"$tmp/log" 2>&1 || echo "error: make failed" >>"$tmp/log"
	grep -E 'warning|error|undefined' "$tmp/log" >"$4"
	rm -rf "$tmp/build"
}

sources=$(selftests/driver/fetch-source) || exit 1
kernel=$(selftests/vm/fetch-kernel bookworm) || exit 1
backport=$(selftests/vm/fetch-headers bookworm-backports) || exit 1
jobs=-j$(nproc)
checks="W=1 C=2 CF=-D__CHECK_ENDIAN__ $jobs"

mkdir "$tmp/bad"
cp -r Makefile Kbuild driver uapi lib emulator utils selftests "$tmp/bad"
cat >>"$tmp/bad/driver/debugfs.c" <<'BAD'
int optinc_bad(__le32 x);
int optinc_bad(__le32 x) { int unused; return x + 1; }
BAD
build "$kernel/build" "$checks" "$tmp/bad" "$tmp/warnings"
report_found "sparse finds a byte order mixed up" 'warning: restricted __le32' "$tmp/warnings"
report_found "W=1 finds an unused variable" 'unused variable' "$tmp/warnings"
build "$kernel/build" "$checks" . "$tmp/warnings"
report_empty "W=1 and sparse with byte orders on $(cat "$kernel/release")" "$tmp/warnings"
build "$backport" "W=1 CONFIG_DEBUG_INFO_BTF_MODULES= $jobs" . "$tmp/warnings"
report_empty "W=1 on bookworm-backports" "$tmp/warnings"
if [ "$(gcc -dumpversion)" -ge 14 ]; then
	newest=$(selftests/vm/fetch-headers trixie-backports) &&
		build "$newest" "W=1 CONFIG_DEBUG_INFO_BTF_MODULES= $jobs" . "$tmp/warnings"
	report_empty "W=1 on trixie-backports" "$tmp/warnings"
else
	tests=$((tests + 1))
	echo "ok $tests - W=1 on trixie-backports # SKIP its headers want gcc 14"
fi

checkpatch() {
	perl "$sources/scripts/checkpatch.pl" --strict --no-tree --terse --quiet --file \
		--no-summary "$@"
}
printf '// SPDX-License-Identifier: GPL-2.0-only\nint f(int a){return(a);}\n' >"$tmp/bad.c"
checkpatch "$tmp/bad.c" >"$tmp/remarks"
report_found "checkpatch finds bad style" 'ERROR: (open|spac)' "$tmp/remarks"
# where it would be in the kernel: BIT() is not for users
mkdir "$tmp/include"
ln -s "$PWD/uapi" "$tmp/include/uapi"
{
	checkpatch driver/*.[ch]
	(cd "$tmp" && checkpatch include/uapi/linux/*.h)
} >"$tmp/remarks"
report_empty "checkpatch --strict" "$tmp/remarks"

# One pass for each semantic patch, as coccicheck makes. Those written in OCaml
# need its compiler; none of them is about drivers.
coccicheck() {
	local patch
	find "$sources/scripts/coccinelle" -name '*.cocci' | sort | while read -r patch; do
		grep -q '^virtual report' "$patch" && ! grep -q 'script:ocaml\|initialize:ocaml' "$patch" &&
			echo "$patch"
	done | xargs -P "$(nproc)" -I{} timeout 300 spatch -D report --very-quiet \
		--no-show-diff --no-includes --cocci-file {} "$@" 2>&1 | grep -v '^warning: line'
}
printf 'void f(struct a *p)\n{\n\tif (p)\n\t\tkfree(p);\n}\n' >"$tmp/bad.c"
coccicheck "$tmp/bad.c" >"$tmp/remarks"
report_found "coccinelle finds a check that is not needed" 'NULL check' "$tmp/remarks"
coccicheck driver/*.c >"$tmp/remarks"
report_empty "coccicheck" "$tmp/remarks"

# A variable of each struct, so that debug information has it
holes() {
	local header=$1 name
	{
		echo "#include \"$(readlink -f "$header")\""
		sed -n 's/^struct \([a-z0-9_]*\) {$/struct \1 the_\1;/p' "$header"
	} >"$tmp/holes.c"
	gcc -g -gdwarf-4 -c -Iuapi -Idriver -o "$tmp/holes.o" "$tmp/holes.c" 2>&1 &&
		pahole "$tmp/holes.o" | grep -E 'hole|padding|^struct' | grep -B 1 -E 'hole|padding'
}
printf 'struct bad {\n\tchar a;\n\tint b;\n};\n' >"$tmp/bad.h"
holes "$tmp/bad.h" >"$tmp/remarks"
report_found "pahole finds a hole" 'holes: 1' "$tmp/remarks"
for header in uapi/linux/*.h driver/optinc_hw.h; do
	holes "$header" >"$tmp/remarks"
	report_empty "no hole and no padding in structs of $header" "$tmp/remarks"
done

echo "1..$tests"
[ $failed = 0 ]
