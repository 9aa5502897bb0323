#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The tools as a user meets them: help, JSON, messages, exit statuses, numbers.
#
# $BUILD is the build tree whose bin/ is tested. Prints TAP. No real card is
# expected; what would depend on there being none is skipped where there is one.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
BIN=$BUILD/bin
unset OPTINC_CARD OPTINC_KEY OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE \
	SLURM_PROCID SLURM_NTASKS RANK WORLD_SIZE
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

ok() {	# ok STATUS NAME: one TAP line, and what the last run printed if it failed
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
		return
	fi
	echo "not ok $n - $2"
	sed 's/^/# out: /' "$tmp/out"
	sed 's/^/# err: /' "$tmp/err"
}

skip() {	# skip NAME WHY
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

run() {	# run TOOL ARGS: into $tmp/out, $tmp/err and $status, never for ever
	local tool=$1
	shift
	timeout -k 5 120 "$BIN/$tool" "$@" >"$tmp/out" 2>"$tmp/err"
	status=$?
}

out() { grep -qE -- "$1" "$tmp/out"; }
err() { [ "$(wc -l <"$tmp/err")" = 1 ] && grep -qE -- "$1" "$tmp/err"; }
quiet() { [ ! -s "$tmp/err" ]; }
silent() { [ ! -s "$tmp/out" ]; }

# query EXPRESSION: of Python, over the JSON object d that was printed; strict, no NaN
query() {
	python3 -c 'import json, sys
def constant(text):
    sys.exit(text + " is no JSON")
d = json.load(open(sys.argv[1]), parse_constant=constant)
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$tmp/out" "$1" 2>>"$tmp/err"
}

fails() {	# fails STATUS PATTERN TOOL ARGS: that status, one line on stderr, nothing on stdout
	local want=$1 pattern=$2
	shift 2
	run "$@"
	[ $status = "$want" ] && err "$pattern" && silent
	ok $? "$*: exit status $want, $pattern"
}

# --- help and versions

for tool in optinc optinc-bench optinc-demo optinc-emu; do
	run $tool --help
	[ $status = 0 ] && quiet && out "^usage: $tool " && out '--card' && out '--version'
	ok $? "$tool --help"
	run $tool --version
	[ $status = 0 ] && quiet && out "^$tool [0-9]+\.[0-9]+\.[0-9]+"
	ok $? "$tool --version"
	fails 2 "$tool: (invalid|unrecognized) option" $tool --frobnicate
	timeout 60 "$BIN/$tool" --help >/dev/full 2>"$tmp/err"
	[ $? = 1 ] && err 'cannot write to standard output'
	ok $? "$tool: a full device is an error"
done
for command in list info why version; do
	run optinc $command --help
	[ $status = 0 ] && quiet && out "^usage: optinc $command "
	ok $? "optinc $command --help"
done

# --- optinc

emu="emu:test-utils-$$?port=1&ports=3"
fails 2 'optinc: a command is wanted' optinc
fails 2 'optinc: frob: no such command' optinc frob
fails 2 'optinc: extra: list takes no argument' optinc list extra
fails 2 'optinc: -o xml: the formats are text and json' optinc list -o xml

run optinc version -o json
[ $status = 0 ] && query 'd["number_format"] == 1 and d["optinc"] == d["liboptinc"]'
ok $? "optinc version -o json"

if [ -e /sys/class/optinc/card0 ]; then
	skip "optinc list without cards" "there are cards"
	skip "optinc list -o json without cards" "there are cards"
	skip "optinc why without cards" "there are cards"
	skip "optinc info without cards" "there are cards"
else
	run optinc list
	[ $status = 0 ] && quiet && out '^no cards: .*modprobe optinc.*--card .emu:demo'
	ok $? "optinc list without cards says what to do"
	run optinc list -o json
	[ $status = 0 ] && quiet && query 'd == {"cards": []}'
	ok $? "optinc list -o json without cards"
	run optinc why
	[ $status = 1 ] && out '^used +no$' && out '^reason +no-driver$' && out 'modprobe optinc'
	ok $? "optinc why without cards: exit status 1, no-driver"
	fails 1 '^optinc: card:0: .*modprobe optinc' optinc info
fi

run optinc list -o json --card "$emu"
[ $status = 0 ] && quiet &&
	query 'len(d["cards"]) == 1 and d["cards"][0]["state"] == "idle" and
		d["cards"][0]["slot"] is None'
ok $? "optinc list --card emu:"

# A card's configuration space as sysfs has it, in a /sys of our own
in_sysfs() {	# in_sysfs BYTE WIDTH SPEED ARGS: of optinc; all bytes are the same
	# shellcheck disable=SC2016 # of the shell in there
	timeout -k 5 60 unshare -rm bash -c '
		set -e
		dir=/sys/bus/pci/devices/0000:5e:00.0
		mount -t tmpfs none /sys/bus/pci
		mkdir -p $dir
		head -c 256 /dev/zero | tr "\0" "\\$1" >$dir/config
		echo $2 >$dir/current_link_width
		echo $3 >$dir/current_link_speed
		echo 8 >$dir/max_link_width
		echo 16.0 GT/s PCIe >$dir/max_link_speed
		for file in vendor device class irq; do
			echo 0x1b36 >$dir/$file
		done
		yes "0x0 0x0 0x0" | head -n 13 >$dir/resource
		shift 3
		exec "$@"' - "$1" "$2" "$3" "$BIN/optinc" "${@:4}" >"$tmp/out" 2>"$tmp/err"
	status=$?
}

if unshare -rm mount -t tmpfs none /sys/bus/pci 2>/dev/null; then
	in_sysfs 377 63 Unknown list --card pci:0000:5e:00.0
	[ $status = 0 ] && out '^pci:0000:5e:00\.0 +0000:5e:00\.0 +gone +-'
	ok $? "optinc list of a card that was pulled out"
	in_sysfs 377 63 Unknown list --card pci:0000:5e:00.0 -o json
	[ $status = 0 ] && query 'd["cards"][0]["gone"] is True and d["cards"][0]["link"] is None'
	ok $? "optinc list -o json of a card that was pulled out"
	in_sysfs 000 4 16.0 list --card pci:0000:5e:00.0
	[ $status = 0 ] && out ' x4 16 GT/s \(degraded\) '
	ok $? "optinc list of a card with a narrow link"
	in_sysfs 000 8 16.0 list --card pci:0000:5e:00.0 -o json
	[ $status = 0 ] && query 'd["cards"][0]["gone"] is False and
		d["cards"][0]["link"]["width"] == 8'
	ok $? "optinc list -o json of a card that is there"
else
	skip "optinc list and a card's link" "no mount namespace"
fi

run optinc info -o json --card "$emu"
[ $status = 0 ] && quiet &&
	query 'd["port"] == 1 and d["ports"] == 3 and "emulated" in d["features"]["names"] and
		"f32" in d["dtypes"]["names"] and d["stats"]["tx_bytes"] == 0 and
		len(d["stats"]) == 11'
ok $? "optinc info -o json --card emu:"
OPTINC_CARD=$emu run optinc info
[ $status = 0 ] && quiet && out '^port +1 of a fabric of 3$' && out '^features .*emulated' &&
	out '800 Gb/s each' && out '^tx_bytes +0$'
ok $? "optinc info, card from OPTINC_CARD"

run optinc why -o json --card "$emu"
[ $status = 0 ] && query 'd["used"] is False and d["reason"] == "idle"'
ok $? "optinc why of an idle card: exit status 0"
run optinc why -o json --card nonsense
[ $status = 1 ] && query 'd["used"] is False and d["reason"] == "bad-uri" and d["why"]'
ok $? "optinc why of nonsense: exit status 1, bad-uri"
fails 1 '^optinc: nonsense: .*card:N' optinc info --card nonsense

# --- optinc-bench

for args in '-b 4x' '-b 0' '-f 1' '-n 0' '-c 3' '-g 1' '-g 17' '-d f8' '-o max' '--bits 4' \
	'-C gather' '--deadline-ms 0'; do
	# shellcheck disable=SC2086
	fails 2 'not a valid value' optinc-bench $args
done
fails 2 'no such reduction' optinc-bench -d bit -o mean
fails 2 'no such reduction' optinc-bench -d f32 -o vote
fails 2 'raw codes have the width' optinc-bench -d i8 --bits 16
fails 2 '%r is missing' optinc-bench --card card:0
fails 2 '-e is smaller than -b' optinc-bench -b 1M -e 1K
fails 2 'less than one element' optinc-bench -b 2
fails 2 'there are 2 ranks' optinc-bench -C broadcast -r 2 -g 2
fails 2 'not 32 hexadecimal digits' optinc-bench --key 123

run optinc-bench --card 'pci:dddd:dd:dd.%r' -g 2 -e 64
[ $status = 1 ] && err '^optinc-bench: rank [01]: pci:dddd:dd:dd\.[01]: '
ok $? "optinc-bench without such cards: exit status 1, rank and card named"

run optinc-bench -g 2 -e 64K -n 5
[ $status = 0 ] && quiet && head -n 1 "$tmp/out" | grep -q 'emulated cards' &&
	out '^# Wrong values +: 0 OK$' && [ "$(grep -cE '^ +[0-9]+ ' "$tmp/out")" = 7 ]
ok $? "optinc-bench: emulated cards named on the first line, a row for each size"

good='d["wrong"] == 0 and d["emulated"] and len(d["rows"]) > 0'
places='[r[p] for r in d["rows"] for p in ("out_of_place", "in_place") if r[p]]'
for ranks in 2 3; do
	run optinc-bench -J -g $ranks -e 1M -n 3 -w 1
	[ $status = 0 ] && quiet &&
		query "$good and d['ranks'] == $ranks and len(d['rows']) == 9 and
			len($places) == 18 and all(p['wrong'] == 0 for p in $places) and
			all(0 < p['p50_us'] <= p['p99_us'] for p in $places)"
	ok $? "optinc-bench -g $ranks: nothing wrong, out of place and in place"
	query 'all(abs(p["busbw_gbs"] / p["algbw_gbs"] - 2 * (d["ranks"] - 1) / d["ranks"]) < 1e-4
		for p in '"$places)"
	ok $? "optinc-bench -g $ranks: busbw is 2(n-1)/n algbw"
	query 'd["rows"][-1]["sent_bytes_per_element"] == 1.00391 and
		d["rows"][-1]["wire_us"] > 0 and 30 < d["rows"][-1]["snr_db"] < 45'
	ok $? "optinc-bench -g $ranks: bytes as counted, accuracy, wire time"
done

for args in '-d f16' '-d bf16 --bits 16' '-o sum' '-d f16 -o sum' '-d i8' '-d i8 -o sum' \
	'-d i16 -o sum' '-d bit' '-C broadcast -r 1' '-i 20001 -c 2' '--unregistered'; do
	# shellcheck disable=SC2086
	run optinc-bench -J -g 3 -b 64K -e 200K -n 20 -w 1 $args
	[ $status = 0 ] && quiet && query "$good and all(p['wrong'] == 0 for p in $places)"
	ok $? "optinc-bench $args: nothing wrong"
done
run optinc-bench -J -g 3 -C barrier -n 3
[ $status = 0 ] && query 'len(d["rows"]) == 1 and d["rows"][0]["out_of_place"]["time_us"] > 0'
ok $? "optinc-bench -C barrier"
run optinc-bench -J -g 2 -b 1K -e 1K -n 3 -c 0
[ $status = 0 ] && query 'd["rows"][0]["in_place"]["wrong"] is None'
ok $? "optinc-bench -c 0: not compared"
run optinc-bench -J -g 2 -b 1K -e 1K -n 3 -d i8 -o sum
[ $status = 0 ] && query 'd["rows"][0]["in_place"] is None and d["rows"][0]["exact"]'
ok $? "optinc-bench -d i8 -o sum: no in-place form, exact"

# A rank dies in the middle: the others end with it, soon and with its name.
"$BIN/optinc-bench" -g 3 -b 1M -e 1M -n 50000000 -c 0 >"$tmp/out" 2>"$tmp/err" &
parent=$!
for _ in $(seq 100); do
	grep -q '(us)' "$tmp/out" && break
	sleep 0.1
done
start=$SECONDS
victim=$(sed -n 's/^# *Rank *1 Pid *\([0-9]*\) .*/\1/p' "$tmp/out")
kill -KILL "$victim"
wait $parent
status=$?
[ $status = 1 ] && [ $((SECONDS - start)) -lt 30 ] && err 'rank 1 was ended by signal 9'
ok $? "optinc-bench: a rank that dies ends all, named, exit status 1"

# --- optinc-bench under a launcher

key=00112233445566778899aabbccddeeff
launch() {	# launch RANKVAR SIZEVAR ARGS: two processes, as a launcher starts them
	local rank=$1 size=$2
	shift 2
	env "$size=2" "$rank=1" timeout -k 5 120 "$BIN/optinc-bench" "$@" \
		>"$tmp/out1" 2>"$tmp/err1" &
	env "$size=2" "$rank=0" timeout -k 5 120 "$BIN/optinc-bench" "$@" \
		>"$tmp/out" 2>"$tmp/err"
	status=$?
	wait $!
	status1=$?
}

OPTINC_KEY=$key launch OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE -J -e 64K -n 3
[ $status = 0 ] && [ $status1 = 0 ] && quiet && [ ! -s "$tmp/out1" ] && [ ! -s "$tmp/err1" ] &&
	query "$good and d['ranks'] == 2"
ok $? "optinc-bench under Open MPI: two processes, rank 0 prints"
for vars in 'PMI_RANK PMI_SIZE' 'SLURM_PROCID SLURM_NTASKS' 'RANK WORLD_SIZE'; do
	# shellcheck disable=SC2086
	launch $vars -J -e 1K -n 3 --key $key
	[ $status = 0 ] && [ $status1 = 0 ] && query "$good and d['ranks'] == 2"
	ok $? "optinc-bench under a launcher that sets $vars"
done
PMI_RANK=0 PMI_SIZE=2 fails 2 'without a group key.*OPTINC_KEY=' optinc-bench
PMI_RANK=2 PMI_SIZE=2 fails 2 'PMI_RANK=2 and PMI_SIZE=2 are no rank and size' optinc-bench
OPTINC_KEY=$key PMI_RANK=0 PMI_SIZE=2 run optinc-bench --deadline-ms 300
[ $status = 1 ] && err 'rank 0: join: .*rank 1'
ok $? "optinc-bench whose peer does not come names it"
SLURM_PROCID=0 SLURM_NTASKS=8 run optinc-bench -J -g 2 -e 1K -n 3
[ $status = 0 ] && query "$good and d['ranks'] == 2"
ok $? "optinc-bench -g overrides a launcher's environment"

# --- optinc-demo

data=utils/demo/data
fails 2 'one directory' optinc-demo
fails 2 'one directory' optinc-demo a b
fails 2 '%r is missing' optinc-demo --card card:0 $data
fails 2 'formats are text and json' optinc-demo -o yaml $data

run optinc-demo --write "$tmp/mean" $data
[ $status = 0 ] && quiet && head -n 1 "$tmp/out" | grep -q 'emulated cards' &&
	[ "$(tail -n 1 "$tmp/out")" = "demo: PASS 2 tensors, every bit equal to the reference" ] &&
	[ "$(grep -c '^demo: PASS' "$tmp/out")" = 1 ]
ok $? "optinc-demo on the gradients of the repository"
run optinc-demo -o json $data
[ $status = 0 ] && query 'd["pass"] and all(t["sent_bytes_per_element"] < 1.01 and
	t["ring_bytes_per_element"] == 6 for t in d["tensors"])'
ok $? "optinc-demo -o json: bytes as counted against a ring's"
cp "$tmp/out" "$tmp/table"
selftests/lib/demo_check.py $data --written "$tmp/mean" --table "$tmp/table" >"$tmp/out" 2>"$tmp/err"
ok $? "optinc-demo: an independent computation gives the same bits and SNR"
cp "$tmp/mean/embed-mean.f32" "$tmp/copy"
printf '\001' | dd of="$tmp/mean/embed-mean.f32" bs=1 seek=1000 conv=notrunc status=none
cmp -s "$tmp/copy" "$tmp/mean/embed-mean.f32"
changed=$?
selftests/lib/demo_check.py $data --written "$tmp/mean" >"$tmp/out" 2>"$tmp/err"
[ $? = 1 ] && [ $changed = 1 ] && out '^FAILED: .*1 elements differ'
ok $? "and it notices one changed byte"

run optinc-demo "$tmp/nowhere"
[ $status = 1 ] && out '^demo: FAIL cannot read .*nowhere'
ok $? "optinc-demo without its directory: demo: FAIL, exit status 1"
mkdir "$tmp/odd"
head -c 400 $data/embed-rank0.f32 >"$tmp/odd/x-rank0.f32"
head -c 404 $data/embed-rank1.f32 >"$tmp/odd/x-rank1.f32"
run optinc-demo "$tmp/odd"
[ $status = 1 ] && out '^demo: FAIL .*101 elements, rank 0 has 100'
ok $? "optinc-demo with ranks of different length"
run optinc-demo --card 'pci:dddd:dd:dd.%r' -o json $data
[ $status = 1 ] && query 'not d["pass"] and "rank" in d["why"] and d["tensors"] == []'
ok $? "optinc-demo -o json without such cards says why"

python3 - "$tmp/odd" <<'PYTHON'
import array, random, sys
random.seed(1)
for k in range(5):
    a = array.array("f", (random.gauss(0, 1) * 2.0 ** random.randint(-150, 20) for _ in range(1357)))
    a[256:512] = array.array("f", [-0.0] * 256)
    a[512:768] = array.array("f", (random.gauss(0, 1) * 2.0**-148 for _ in range(256)))
    a[9], a[10] = -255.2, 255.99
    if k == 2:
        a[900] = float("nan")
    if k == 3:
        a[1025] = float("inf")
    open(f"{sys.argv[1]}/x-rank{k}.f32", "wb").write(a.tobytes())
PYTHON
run optinc-demo --write "$tmp/mean2" -o json "$tmp/odd"
cp "$tmp/out" "$tmp/table"
[ $status = 0 ] && query 'd["ranks"] == 5 and d["tensors"][0]["nonfinite_blocks"] == 2' &&
	selftests/lib/demo_check.py "$tmp/odd" --written "$tmp/mean2" --table "$tmp/table" >"$tmp/out"
ok $? "optinc-demo: five ranks, NaN, infinity, zeros, subnormals, a short block"
utils/demo/make_gradients.py --check >"$tmp/out" 2>"$tmp/err"
ok $? "make_gradients.py makes the gradients of the repository again"

# --- optinc-emu

fails 2 '--fabric is missing' optinc-emu
fails 2 '--port is missing' optinc-emu --fabric a --ports 2
fails 2 '--socket is missing' optinc-emu --fabric a --ports 2 --port 1
fails 2 'x: not an option' optinc-emu --fabric a x
fails 2 'requires an argument' optinc-emu --fabric
fails 2 'port=2: a fabric with ports=2 has ports 0 to 1' \
	optinc-emu --fabric a --ports 2 --port 2 --socket "$tmp/s"
fails 2 'two cards at port 0' \
	optinc-emu --fabric a --ports 2 --card port=0,socket=a --card port=0,socket=b
fails 2 'two cards at a' \
	optinc-emu --fabric a --ports 2 --card port=0,socket=a --card port=1,socket=a
fails 2 'no parameter "frob"' optinc-emu --fabric a --ports 2 --card port=0,socket=a,frob=1
fails 2 'no such fault' optinc-emu --fabric a --ports 2 --port 0 --socket a --hostile frob:identify
fails 2 'a status' optinc-emu --fabric a --ports 2 --card port=0,socket=a,fail-admin=mr-reg:x
fails 2 '1 to 255' optinc-emu --fabric a --ports 2 --port 0 --socket a --timeout 256
fails 1 'port 0: .*nowhere' optinc-emu --fabric=emu-$$ --ports=2 --port=0 --socket "$tmp/nowhere/s"

# Two cards with what is said of all and of one; they end at SIGTERM, and clean up.
"$BIN/optinc-emu" --fabric emu-$$ --ports=3 --dead-lane 1 --impair wifi \
	--card "port=0,socket=$tmp/s0,dead-lane=2" --card "port=1,socket=$tmp/s1,impair=clean" \
	>"$tmp/out" 2>"$tmp/err" &
emu=$!
for _ in $(seq 100); do
	out '^optinc-emu: ready$' && break
	sleep 0.1
done
out '^optinc-emu: ready$' && quiet && [ "$(stat -c %a:%F "$tmp/s0" "$tmp/s1")" = "600:socket
600:socket" ]
ok $? "optinc-emu: ready, its sockets are for this user"
run optinc info --card "emu:emu-$$?port=1&ports=3"
[ $status = 1 ] && err "port 1.* process $emu"
ok $? "optinc-emu: its ports are taken"
kill -TERM $emu
wait $emu
[ $? = 0 ] && [ ! -e "$tmp/s0" ] && [ ! -e "$tmp/s1" ] && [ ! -e /dev/shm/optinc-$(id -u)-emu-$$ ]
ok $? "optinc-emu: SIGTERM ends it, and nothing is left"

# --- manual pages and completions

for page in Documentation/man/*.1; do
	if ! command -v groff >/dev/null; then
		skip "${page##*/}" "no groff"
		continue
	fi
	groff -ww -man -Tutf8 -P-c -P-b -P-u "$page" >"$tmp/out" 2>"$tmp/err" && quiet
	ok $? "${page##*/} has no warnings"
	tool=$(basename "$page" .1)
	missing=
	for option in $("$BIN/$tool" --help | grep -oE '(^|[ ,])--[a-z_-]+' | grep -oE -- '--[a-z_-]+'); do
		grep -qF -- "$option" "$tmp/out" || missing="$missing $option"
	done
	[ -z "$missing" ]
	ok $? "${page##*/} has every option of --help$missing"
done
for file in packaging/completions/*; do
	tool=$(basename $file)
	bash -n $file 2>"$tmp/err" && missing= || missing=' (syntax)'
	for option in $("$BIN/$tool" --help | grep -oE '(^|[ ,])--[a-z_-]+' | grep -oE -- '--[a-z_-]+'); do
		grep -qF -- "$option" $file || missing="$missing $option"
	done
	[ -z "$missing" ]
	ok $? "completion of $tool has every option of --help$missing"
done

echo "1..$n"
