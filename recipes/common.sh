# shellcheck shell=bash
# What the recipes have in common. They source it; it runs nothing.
#
# DRY_RUN=1   print the commands, ready to be pasted, and run none of them
# SMOKE=1     the same commands in a minute, on a few lines and tiny sizes: does everything run?
# RUNS        folder for corpora, checkpoints and logs; the default is runs/ of the checkout, which git ignores
# PLUGIN      what --user-dir gets; the default is the plugin of the checkout
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DRY_RUN=${DRY_RUN:-}
SMOKE=${SMOKE:-}
RUNS=${RUNS:-$repository/runs}
PLUGIN=${PLUGIN:-$repository/fairseq_tiedemb}

# The environment of `make venv`, unless another one is active.
if [[ -z ${VIRTUAL_ENV:-} && -d $repository/.venv/bin ]]; then
    PATH=$repository/.venv/bin:$PATH
fi
# With two threads on a machine that has other work, torch becomes many times slower than with one.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

stop() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

# need COMMAND...: stops if one of them is missing, before anything is done.
need() {
    local name
    [[ $DRY_RUN ]] && return
    for name in "$@"; do
        command -v "$name" >/dev/null || stop "$name: no such command. Use \`make venv\`, or activate your environment."
    done
}

# run COMMAND...: prints the command, then runs it.
run() {
    printf '+'
    printf ' %q' "$@"
    printf '\n'
    [[ $DRY_RUN ]] || "$@"
}

# run_to FILE COMMAND...: the same, and what the command prints goes to FILE.
run_to() {
    local file=$1
    shift
    printf '+'
    printf ' %q' "$@"
    printf ' > %q\n' "$file"
    [[ $DRY_RUN ]] || "$@" >"$file"
}

# need_lines FILE COUNT REMEDY: stops if FILE has another number of lines. Translations are compared line by line.
need_lines() {
    local lines
    [[ $DRY_RUN ]] && return
    lines=$(wc -l <"$1")
    ((lines == $2)) || stop "$1: needs $2 lines; got $((lines)). $3"
}
