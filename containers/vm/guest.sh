# What test scripts in the guest share; they source it. Devices, exports, disks, and the form of a test.
# shellcheck shell=bash
set -euo pipefail
target=/sys/kernel/config/target
core=$target/core
kept=$(mktemp -d /run/test-XXXXXX)

# ---- tests: every function test_NAME of the script, in the order of writing; NAME is a sentence with underscores ----

# Each test runs in a subshell of its own, within its limit, after which everything it made in the kernel is taken down.
run_tests() {
  local names name failed=0 began
  kernel_modules
  mapfile -t names < <(grep -oE '^test_[a-z0-9_]+' "$0")
  printf 'PLAN %s\n' "${names[@]#test_}"
  for name in "${names[@]}"; do
    if [ -n "${ONLY:-}" ] && [[ ${name#test_} != *$ONLY* ]]; then continue; fi
    began=${EPOCHREALTIME/[.,]/}
    dmesg -C
    # In the background and with a clock beside it, for a shell cannot be interrupted in a call that the kernel holds.
    (set -e; "$name"; quiet_kernel) >"$kept/said" 2>&1 &
    if wait_for_test $!; then
      printf 'PASS %s %d ms\n' "${name#test_}" $(((${EPOCHREALTIME/[.,]/} - began) / 1000))
    else
      failed=$((failed + 1))
      sed 's/^/  | /' "$kept/said"
      dmesg | tail -n 40 | sed 's/^/  kernel| /'
      printf 'FAIL %s %d ms\n' "${name#test_}" $(((${EPOCHREALTIME/[.,]/} - began) / 1000))
    fi
    take_down >"$kept/down" 2>&1 || { sed 's/^/  take down| /' "$kept/down"; echo "NOT CLEAN after ${name#test_}"; exit 1; }
  done
  [ $failed -eq 0 ]
}

wait_for_test() { # PID
  local limit=$((SECONDS + ${TEST_LIMIT:-120}))
  while kill -0 "$1" 2>/dev/null; do
    if [ $SECONDS -ge $limit ]; then
      echo "not done after ${TEST_LIMIT:-120} s" >>"$kept/said"
      ps axo pid,stat,wchan:30,args | grep -vE '\[.*\]$' >>"$kept/said"
      kill -KILL "$1"
      return 1
    fi
    sleep 0.05
  done
  wait "$1"
}

die() { printf 'FAILED: %s\n' "$*"; exit 1; }

# Succeeds when the command fails and says the words (an extended regular expression).
fails_with() { # WORDS COMMAND…
  local words=$1 said; shift
  if said=$("$@" 2>&1); then die "succeeded: $*: $said"; fi
  grep -qE "$words" <<<"$said" || die "$* failed, and not with \"$words\": $said"
}

# Waits until the command succeeds, 10 seconds at most.
until_ok() {
  local limit=$((SECONDS + ${WAIT:-10}))
  until "$@" >"$kept/until" 2>&1; do
    [ $SECONDS -lt $limit ] || die "not after ${WAIT:-10} s: $*: $(<"$kept/until")"
    sleep 0.1
  done
}

# The kernel complained of nothing.
quiet_kernel() {
  ! dmesg | grep -E 'BUG|WARNING:|Oops|general protection|blocked for more than|ring is broken|Invalid addr' ||
    die "the kernel complained"
}

# ---- the kernel's objects ----

kernel_modules() {
  modprobe -a target_core_user tcm_loop iscsi_target_mod iscsi_tcp sd_mod
  mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
}

# A backstore whose ring nobody serves yet. More settings as KEY=VALUE, as the kernel's control file takes them.
backstore() { # NAME CONFIG BYTES [SETTING…]
  local folder=$core/user_0/$1 setting
  mkdir -p "$folder"
  for setting in "dev_config=$2" "dev_size=$3" hw_block_size=512 hw_max_sectors=2048 max_data_area_mb=8 "${@:4}"; do
    printf %s "$setting" >"$folder/control"
  done
  printf %s "$1" >"$folder/wwn/vpd_unit_serial"
  echo 1 >"$folder/enable"
}

# Exports a backstore through tcm_loop; the number tells the targets apart. Sets $disk.
loop() { # NAME NUMBER
  local folder address
  folder=$(printf '%s/loopback/naa.50014050000%05x/tpgt_1' "$target" "$2")
  mkdir -p "$folder"
  cat "$folder/nexus" >/dev/null 2>&1 || printf 'naa.50014051000%05x' "$2" >"$folder/nexus"
  mkdir "$folder/lun/lun_0"
  ln -s "$core/user_0/$1" "$folder/lun/lun_0/$1"
  address=$(<"$folder/address")
  disk_at "$address"
}

# The block device of the LUN 0 at HOST:CHANNEL:ID, once it has read its size. Sets $disk.
disk_at() {
  local found=()
  local limit=$((SECONDS + 15))
  while :; do
    found=(/sys/class/scsi_disk/"$1":0/device/block/*)
    if [ -e "${found[0]}" ] && [ -b "/dev/${found[0]##*/}" ] && [ "$(<"${found[0]}/size")" != 0 ]; then break; fi
    [ $SECONDS -lt $limit ] || die "no disk at $1"
    sleep 0.05
  done
  disk=/dev/${found[0]##*/}
}

# Starts a program in a session of its own, with its output in FILE; sets $started. It ends with the test.
start() { # FILE COMMAND…
  setsid "${@:2}" >"$1" 2>&1 </dev/null &
  started=$!
  echo $! >>"$kept/pids"
}

null_consumer() { # NAME CONFIG BYTES [memory]
  start "/run/null-$1" "$BINARIES/examples/null-consumer" "tcm-user/0/$1/$2" "${@:3}"
  until_ok grep -q '^uio' "/run/null-$1"
}

# Everything that a test left in the kernel, in the order in which the kernel lets it go.
take_down() {
  local pid folder
  if command -v iscsiadm >/dev/null && [ -e /run/iscsid.pid ]; then iscsiadm -m node -u >/dev/null 2>&1 || true; fi
  for folder in "$target"/*/*/tpgt_*; do
    [ -d "$folder" ] || continue
    if [ -e "$folder/enable" ]; then echo 0 >"$folder/enable" || true; fi
    find "$folder" -maxdepth 4 -type l -path '*/acls/*' -exec rm {} +
    find "$folder/acls" -mindepth 2 -maxdepth 2 -name 'lun_*' -exec rmdir {} + 2>/dev/null || true
    find "$folder/acls" -mindepth 1 -maxdepth 1 -type d -exec rmdir {} + 2>/dev/null || true
    find "$folder/lun" -mindepth 2 -maxdepth 2 -type l -exec rm {} +
    find "$folder/lun" -mindepth 1 -maxdepth 1 -type d -exec rmdir {} +
    find "$folder/np" -mindepth 1 -maxdepth 1 -type d -exec rmdir {} + 2>/dev/null || true
    rmdir "$folder"
    rmdir "${folder%/*}"
  done
  if [ -e "$kept/pids" ]; then
    while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$kept/pids"
    rm "$kept/pids"
  fi
  # A daemon that is gone answers no netlink: the kernel must not wait for it.
  echo 1 >/sys/module/target_core_user/parameters/block_netlink 2>/dev/null || true
  echo 1 >/sys/module/target_core_user/parameters/reset_netlink 2>/dev/null || true
  for folder in "$core"/user_*/*/; do
    [ -e "$folder/enable" ] || continue
    find "$folder/alua" -mindepth 1 -maxdepth 1 -type d ! -name default_tg_pt_gp -exec rmdir {} + 2>/dev/null || true
    rmdir "$folder"
  done
  echo 0 >/sys/module/target_core_user/parameters/block_netlink 2>/dev/null || true
  for folder in "$core"/user_* "$core"/rd_mcp_*/*/ "$core"/rd_mcp_*; do
    if [ -d "$folder" ]; then rmdir "$folder"; fi
  done
  nothing_left
}

nothing_left() {
  local left
  left=$(find "$core" -mindepth 1 -maxdepth 2 -path '*/user_*'; find /sys/class/uio -mindepth 1 2>/dev/null;
    find "$target/loopback" "$target/iscsi" -mindepth 1 -maxdepth 1 ! -name discovery_auth ! -name cpus_allowed_list -type d 2>/dev/null || true)
  [ -z "$left" ] || die "left behind: $left"
}
