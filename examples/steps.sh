# shellcheck shell=bash
# For the scripts of examples, which source it with their FOLDER (default .demo), $demo then: commands that are printed
# before they run, and can be copied. What is in FOLDER already is not made again; what a failed or interrupted command
# had begun is removed. $log is the file that has its output, if any.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$(cd "$(dirname "$0")" && pwd)")
demo=${1:-$root/.demo}
[[ $demo == /* ]] || demo=$PWD/$demo
demo=${demo#"$root"/}
if [[ $demo == *[[:space:]]* ]]; then
    echo "$name: FOLDER: needs a path without spaces, so that commands can be copied; got $demo. Use another." >&2
    exit 2
fi
cd "$root" || exit

# All cores, but not more than eight for models of this size. Threads spin while they wait for each other; without a
# bound, training becomes 20 times slower where other processes want the cores.
cores=$(nproc 2>/dev/null || echo 1)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores < 8 ? cores : 8))} GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
# Sorted the same everywhere, and UTF-8 whatever the machine's language.
export LC_ALL=C PYTHONUTF8=1

log=
unfinished=

clean_up() {
    status=$?
    if [[ $unfinished ]]; then
        rm -rf "$unfinished"
        if [[ -s $log ]]; then tail -n 3 "$log" >&2; fi
        echo "$name: the last command failed (status $status), for the reason above${log:+ or in $log}." >&2
        echo "$name: $unfinished, which it had begun, is removed. Run the example again to go on from there." >&2
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# make TARGET COMMAND: prints a command line and runs it, unless its target is there.
make() {
    local target=$1 command=$2
    if [[ -e $target ]]; then return; fi
    printf '\n$ %s\n' "$command"
    unfinished=$target
    eval "$command"
    unfinished=
}

title() {
    printf '\n== %s\n' "$1"
}
