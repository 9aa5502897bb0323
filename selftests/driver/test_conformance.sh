#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The report of "conformance", from what tests might have said, and the check of
# its table. No card is needed. Prints TAP.
set -u
HERE=$(dirname "$(readlink -f "$0")")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

ok() {	# ok STATUS NAME
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" && return
	echo "not ok $n - $2"
	sed 's/^/# /' "$tmp/out"
}

conformance() {	# into $tmp/out and $status
	timeout 60 "$HERE/conformance" "$@" >"$tmp/out" 2>&1
	status=$?
}

# with_table SED-COMMAND PATTERN: such a change is found, and nothing else is
with_table() {
	sed "$1" "$HERE/clauses" >"$tmp/clauses"
	conformance --check "$tmp/clauses"
	[ $status = 1 ] && [ "$(grep -c . "$tmp/out")" = 1 ] && grep -qE "$2" "$tmp/out"
	ok $? "a wrong table: $2"
}

conformance --check
[ $status = 0 ] && grep -q '^116 clauses' "$tmp/out"
ok $? "each clause has a test or a reason, each test exists"
with_table '/^CI-DB-1\t/d' 'CI-DB-1: neither tested nor said why not'
with_table 's/^CI-COL-16\t.*/&\nCI-COL-17\t-- no/' 'CI-COL-17: there is no such clause'
with_table 's/^CI-COL-16\t.*/&\n&/' 'CI-COL-16: 2 lines'
with_table 's/request\.clock/request.clack/' 'CI-TIM-2: there is no test request_test:request.clack'
with_table 's/test_api:barrier_2/test_apt:barrier_2/' 'CI-COL-7: there is no test test_apt:barrier_2'
with_table 's/^CI-REG-7\t.*/CI-REG-7/' 'CI-REG-7 has neither a test nor a reason'

# A log in which all tests of the table passed
kselftest() {	# kselftest PROGRAM TEST...
	local number=0 test
	printf '## begin %s\nTAP version 13\n1..%s\n' "$1" $(($# - 1))
	shift
	for test; do
		number=$((number + 1))
		printf '#  RUN           %s ...\n#            OK  %s\nok %s %s\n' \
			"$test" "$test" $number "$test"
	done
	printf '\n## end 0\n'
}
tests() { grep -oE "\\b$1:[A-Za-z0-9_.]+" "$HERE/clauses" | sed 's/.*://' | sort -u; }
for program in $(grep -oE '\b\w+:' "$HERE/clauses" | tr -d : | grep test | sort -u); do
	# shellcheck disable=SC2046
	kselftest "$program" $(tests "$program") |
		if [ "$program" = test_api ]; then
			sed '/^#  /d;s/^\(ok [0-9]*\) /\1 - /'
		else
			cat
		fi
done >"$tmp/good"

# row CLAUSE: its line of the text report
row() { sed -n "s/^$1  *//p" "$tmp/out" | tr -s ' '; }

# replay SED-COMMAND: of a log that was changed by that
replay() {
	sed "$1" "$tmp/good" >"$tmp/log"
	conformance --replay "$tmp/log" "${@:2}"
}

replay ''
[ $status = 0 ] && [ "$(row CI-DB-1)" = passed ] && [[ $(row CI-DB-2) == "in part a page"* ]] &&
	[ "$(row CI-REG-1)" = "not tested register level" ] && grep -q ', 0 failed, ' "$tmp/out"
ok $? "all pass: passed, in part, not tested"

replay '/^ok .* two.doorbells$/{s/^/not /;i# selftests/driver/isolation_test.c:1:doorbells:it went wrong
}'
[ $status = 1 ] && [[ $(row CI-DB-1) == "failed isolation_test:two.doorbells: "*"it went wrong" ]] &&
	[[ $(row CI-DB-5) == "failed "* ]] && [ "$(row CI-DB-6)" = passed ]
ok $? "a failed test: its clauses, with what it said"

replay 's/^ok \([0-9]*\) - barrier_2$/rank 1 of 2: here: no\nnot ok \1 - barrier_2\n# other.c:2: more/'
[ $status = 1 ] && [ "$(row CI-COL-7)" = "failed test_api:barrier_2: rank 1 of 2: here: no" ] &&
	[ "$(row CI-COL-1)" = passed ]
ok $? "a failed test of the library"

replay '/^## begin test_api/,$s/^ok \([0-9]*\) - \(.*_4\)$/# needs 4 cards\nnot ok \1 # SKIP \2/'
[ $status = 0 ] && [ "$(row CI-COL-7)" = "in part test_api:barrier_4: needs 4 cards" ] &&
	[ "$(row CI-GRP-4)" = passed ]
ok $? "a test that is skipped: in part"

replay 's/^\(ok [0-9]*\) two.doorbells$/#      SKIP     the card does not isolate\n\1 # SKIP unknown/
s/^\(ok [0-9]*\) two.doorbells_of_another_user$/# needs 2 cards\n\1 # SKIP unknown/'
[ $status = 0 ] &&
	[ "$(row CI-DB-1)" = "not tested isolation_test:two.doorbells: the card does not isolate" ]
ok $? "all of a clause's tests are skipped: not tested"

replay '/^ok .* two.doorbells$/,/^$/d'
[ $status = 1 ] && [[ $(row CI-DB-1) == "failed isolation_test:two.doorbells: the program ended early"* ]] &&
	grep -q '^besides *failed *isolation_test: ended early' "$tmp/out"
ok $? "a program that died"

replay '/^## begin pci_test/,/^## end/d'
[ $status = 0 ] && [ "$(row CI-PCI-1)" = "not tested pci_test:pci.identity: pci_test was not run" ]
ok $? "a program that was not run"

replay '/^## begin reduce_test/,/^## end/{s/^1\.\.\([0-9]*\)/1..\1\n1..1/;s/^\(ok 1 ranks\)\.\(.*\)/not \1.width16.\2\n\1.width8.\2/}'
[ $status = 1 ] && [[ $(row CI-COL-6) == "failed reduce_test:ranks.bytes"* ]]
ok $? "one variant of a test failed"

replay '/^## begin pci_test/,/^## end/{s/^1\.\.\([0-9]*\)/1..\1\n1..1/;s/^ok 1/not ok 9 pci.unnamed\n&/}'
[ $status = 1 ] && grep -q '^besides *failed *pci_test:pci.unnamed' "$tmp/out" &&
	grep -q ', 0 failed, ' "$tmp/out"
ok $? "a failure that no clause names"

replay '' -o json
python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
c = {c["clause"]: c for c in d["clauses"]}
assert len(c) == 116 == sum(d["counts"].values()) and d["counts"]["failed"] == 0
assert c["CI-TIM-2"]["tests"] == {"request_test:request.clock": "passed"}
assert c["CI-TIM-2"]["requires"].endswith("never decreases. (11)")' "$tmp/out"
ok $? "as JSON"

conformance
[ $status = 2 ] && grep -q 'a card is wanted' "$tmp/out"
ok $? "no card is named"
conformance pci:ffff:ff:1f.7
[ $status = 1 ] && grep -q 'pci:ffff:ff:1f.7: the driver has no such card' "$tmp/out"
ok $? "there is no such card"
echo "1..$n"
