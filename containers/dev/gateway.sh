# shellcheck shell=bash
# Sourced by the scripts that test a running rbdgate: starts one, asks it, stops it, and keeps score.
#
#   work     a folder of the script's own; made here, removed by gateway_done unless something failed
#   rbdgate  the binary under test
#
# A gateway is known by its pid in `pid`, its output in `log`, its control socket in `RBDGATE_CONTROL`.

export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/rbdgate-${0##*/}-XXXXXX")
# A demo puts its control socket here, so that it does not meet another demo on the same machine.
export XDG_RUNTIME_DIR=$work
rbdgate=${CARGO_TARGET_DIR:-$root/target}/release/rbdgate
own_ceph="" pid="" log="" good=0 bad=0

# ---- keeping score ----

# check WORDS COMMAND...: one assertion. Shows what the command said only when it fails. The command runs in this shell.
check() {
  local words=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    good=$((good + 1))
    printf 'ok    %s\n' "$words"
  else
    bad=$((bad + 1))
    printf 'FAIL  %s\n      from: %s\n' "$words" "$*"
    head -c 4000 "$work/said" | sed 's/^/      /'
  fi
}

not() { ! "$@"; }

# says TEXT COMMAND...: the command's output has the text in it, whatever its exit status.
says() {
  local want=$1 said
  shift
  said=$("$@" 2>&1) || true
  [[ $said == *"$want"* ]] || { printf 'expected "%s", got:\n%s\n' "$want" "$said"; return 1; }
}

# within SECONDS COMMAND...: the command succeeds before the time is over. Says what it said last.
within() {
  local end=$((SECONDS + $1)) said
  shift
  until said=$("$@" 2>&1); do
    if [ $SECONDS -ge $end ]; then
      printf '%s\n' "$said"
      return 1
    fi
    sleep 0.2
  done
}

# at_most LIMIT NUMBER, at_least LIMIT NUMBER
at_most() { [ "$2" -le "$1" ] || { echo "$2 is more than $1"; return 1; }; }
at_least() { [ "$2" -ge "$1" ] || { echo "$2 is less than $1"; return 1; }; }

# ---- a gateway ----

# A loopback port that nothing listens on now.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

gateway_start() { # NAME ARGUMENTS...
  log=$work/$1.log
  shift
  : >"$log" # now, so that nobody reads what an earlier gateway of this name has said
  "$rbdgate" "$@" >>"$log" 2>&1 </dev/null &
  pid=$!
}

# Whether the gateway's process is there (a child that has ended stays a zombie until it is waited for).
gateway_runs() { [[ -n $pid && $(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null) == [^Z] ]]; }

# Waits until the gateway has said a line that matches; prints the match.
gateway_says() { # SECONDS PATTERN
  local end=$((SECONDS + $1))
  until grep -oEm1 "$2" "$log"; do
    if [ $SECONDS -ge $end ] || ! gateway_runs; then
      echo "the gateway did not say $2; it said:" >&2
      cat "$log" >&2
      return 1
    fi
    sleep 0.1
  done
}

# Asks the gateway to end; its exit status. Kills it when it has not ended after the time.
gateway_stop() { # SECONDS
  local status=0
  [ -n "$pid" ] || return 0
  kill -TERM "$pid" 2>/dev/null || true
  within "$1" not gateway_runs || { echo "still there $1 s after SIGTERM"; kill -KILL "$pid"; }
  wait "$pid" || status=$?
  pid=""
  return $status
}

figures() { "$rbdgate" status --output json; }
figure() { figures | jq -r "$1"; }
resident_kib() { awk '/^VmRSS:/ { print $2 }' "/proc/$pid/status"; }
open_files() { find "/proc/$pid/fd" -mindepth 1 | wc -l; }

# Whether nothing is under way: no session, no command, no block of a data area.
gateway_is_idle() {
  [ "$(figure '[(.sessions | length), .memory.in_use, .luns[].in_flight, .luns[].waiting, .luns[].data_area_in_use] | add')" = 0 ]
}

http_get() { # PORT PATH
  exec 9<>"/dev/tcp/127.0.0.1/$1"
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&9
  cat <&9
  exec 9>&-
}

# ---- Ceph ----

# Sets CEPH_CONF: the cluster that RBDGATE_TEST_CEPH_CONF names, else one of the script's own.
ceph_start() {
  CEPH_CONF=${RBDGATE_TEST_CEPH_CONF:-${own_ceph:+$own_ceph/ceph.conf}}
  if [ -z "$CEPH_CONF" ]; then
    "$here/ceph" up "$work/ceph" >/dev/null
    own_ceph=$work/ceph
    CEPH_CONF=$work/ceph/ceph.conf
  fi
  export CEPH_CONF
}

# ---- the end ----

# Stops what the script started, tells the score, and ends the script.
gateway_done() {
  local status=$?
  trap - EXIT
  if [ -n "$pid" ]; then
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  [ -z "$own_ceph" ] || "$here/ceph" down "$own_ceph" || true
  if [ $status -ne 0 ] && [ $bad -eq 0 ]; then
    bad=1
    echo "FAIL  ${0##*/} ended early, with status $status"
  fi
  if [ $bad -eq 0 ]; then
    rm -rf "$work"
  else
    find "$work" -type f -size +16M -delete # disks; what was said is worth keeping, they are not
    echo "logs: $work"
  fi
  printf '%d passed, %d failed\n' $good $bad
  [ $bad -eq 0 ] && [ $status -eq 0 ]
  exit
}
trap gateway_done EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
