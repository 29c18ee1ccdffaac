# shellcheck shell=bash
# Functions and settings of all recipes, which source this file; it runs nothing.
#
# DRY_RUN=1   print the commands, one per line, ready to be pasted, without running them
# SMOKE=1     a test that everything runs: the same commands in a minute, on a few lines and with tiny sizes. Without FROM the
#             text is made up, and nothing is downloaded
# RUNS        folder for corpora, checkpoints and logs; the default is runs/ of the checkout, which git ignores
# PLUGIN      value of --user-dir; the default is the checkout's plugin
# WORK        folder of the corpus and the trainings; the default is one of RUNS, by the corpus
# RESULTS     folder of recorded figures; the default is results/ beside this file. SMOKE=1 records only if it is set
# GPUS        0 trains on the CPU, N on N GPUs of this machine; the default is all GPUs that `nvidia-smi` lists, and the CPU
#             where there is none. The batch is the same, spread over them
# PRECISION   of training: float32, bf16 or fp16. The default is the recipe's, or float32 on the CPU and fp16 on GPUs
# NODES       the number of machines, by torchrun; the default is 1. On each, NODE is its number, from 0 on, and MASTER is
#             HOST:PORT of the first, which alone scores and records. Each needs the corpus: run the recipe's prepare-*.sh before
# OMP_NUM_THREADS  threads of torch; the default is the number of cores, at most 8. Recorded CPU minutes are those of 1
set -euo pipefail

recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$recipes")
DRY_RUN=${DRY_RUN:-}
SMOKE=${SMOKE:-}
GPUS=${GPUS:-}
NODES=${NODES:-1} NODE=${NODE:-0}
RUNS=${RUNS:-$repository/runs}
PLUGIN=${PLUGIN:-$repository/fairseq_tiedemb}

stop() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

# The recipe's command, for the record; settings that make its result another row than the paper's, such as
# ROW,UPDATES=100; and settings that give its training another folder.
recipe_command='' variant='' training_variant='' unread=''
of_corpus="REVIEWS MERGES CHECKSUMS COUNTS SHA256" of_scores="BEAM LENPEN SAMPLE OVERRIDES" of_training="EPOCHS UPDATES MAX_TOKENS LR DROPOUT EMBED HIDDEN"
of_training+=" WORDS INPUTS STATES OUTPUTS ANNEAL DECAY WEIGHT_DECAY PRECISION"
for setting in SMOKE PLUGIN GPUS NODES CORPUS ARCH SEED ROUNDS FROM SETS QUESTIONS SPLITS ORDERS $of_corpus $of_training $of_scores; do
    value=${!setting:-}
    [[ $value && $value != "$repository/fairseq_tiedemb" && $setting=$value != NODES=1 ]] || continue
    case $setting in FROM | SETS | QUESTIONS) value=$(basename "$value") ;; esac # which, not where on this machine
    printf -v recipe_command '%s%s=%q ' "$recipe_command" "$setting" "$value"
    [[ " $of_corpus $of_training $of_scores " != *" $setting "* ]] || variant+=",$setting=$value"
    [[ " $of_training " != *" $setting "* ]] || training_variant+="-$setting-$value"
    # A recipe's own settings stand in its first lines; those of corpus and scores in comments of scripts that it names.
    named=()
    if [[ " $of_corpus $of_scores " == *" $setting "* ]]; then
        mapfile -t named < <(grep -oE '(prepare|evaluate)[a-z0-9-]*\.sh' "$0" | sed "s|^|$recipes/|")
    fi
    [[ " $of_corpus $of_scores $of_training " != *" $setting "* || $setting == PRECISION || $(basename "$0") != train-* ]] ||
        grep -q "^#.*\b$setting\b" <(sed /^source/q "$0") "${named[@]}" || unread=$setting
    case $setting in
        UPDATES | EPOCHS | MAX_TOKENS | EMBED | HIDDEN | ANNEAL | SEED | MERGES)
            [[ $value =~ ^[1-9][0-9]*$ || $setting=$value == SEED=0 ]] ||
                stop "$setting: needs a whole number from 1 on; got $value. Use 1, say."
            ;;
    esac
done
# shellcheck disable=SC2034 # the end of a corpus's folder, for recipes
of_work=${MERGES:+-$MERGES}${SMOKE:+-smoke}
recipe_command+=recipes/$(basename "$0")
(($# == 0)) || printf -v recipe_command '%s%s' "$recipe_command" "$(printf ' %q' "$@")"

# The environment of `make venv`, unless another one is active.
if [[ -z ${VIRTUAL_ENV:-} && -d $repository/.venv/bin ]]; then
    PATH=$repository/.venv/bin:$PATH
fi
# All cores, but not more than eight for models of this size. Threads spin while they wait for each other; without a
# bound, training becomes 20 times slower where other processes want the cores.
cores=$(nproc 2>/dev/null || echo 1)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores < 8 ? cores : 8))} GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
# Freed memory of large tensors is kept: up to 13 % less time of a step, and up to a third more memory.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.mmap_max=0}

[[ -z $unread ]] || stop "$unread: needs a recipe that has this setting; got ${!unread}. Leave it out; the first lines of $0 name its own."

# rows: prints the words that this recipe accepts: those that stand after its name in the commands of tables/*.json.
rows() {
    sed -n "s|.*\"command\": \"\(.* \)\{0,1\}recipes/$(basename "$0") \(.*\)\".*|\2|p" "$recipes"/tables/*.json
}

# need_row NAMES WORD...: stops unless each of the words stands in its place in one of the rows. NAMES are what the words
# are called, such as "PAIR ROW".
need_row() {
    local names columns=() choices=() place given
    read -ra names <<<"$1"
    shift
    given=$*
    for place in "${!names[@]}"; do
        columns[place]=$(rows | cut -d ' ' -f $((place + 1)) | awk '!seen[$0]++')
        choices[place]=$(awk 'NR > 1 { line = line (NR > 2 ? ", " : "") last } { last = $0 }
            END { print line (NR > 1 ? " or " : "") last }' <<<"${columns[place]}")
    done
    (($# == ${#names[@]})) || stop "needs ${names[*]}; got $# arguments. Use $(printf '%s; then ' "${choices[@]}" | sed 's/; then $//')."
    for place in "${!names[@]}"; do
        grep -qxF -e "$1" <<<"${columns[place]}" || stop "${names[place]}: needs ${choices[place]}; got $1."
        shift
    done
    rows | grep -qxF -e "$given" || stop "${names[*]}: needs a row of recipes/tables; got $given."
}

# is_trained FOLDER: whether it has the model of a training that has ended.
is_trained() {
    [[ -f $1/checkpoint_last.pt ]] && { [[ ! -f $1/train.log ]] || grep -q 'done training' "$1/train.log"; }
}

# use_devices: translates GPUS, PRECISION and NODES for fairseq-train: the array launch, the number of all processes, which share
# the recipe's batch, and options in the array device.
use_devices() {
    local each=$GPUS precision=${PRECISION:-float32}
    [[ $GPUS ]] || each=$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)
    [[ $each =~ ^(0|[1-9][0-9]*)$ ]] || stop "GPUS: needs a number; got $GPUS. Use 0 for the CPU."
    device=() launch=(fairseq-train)
    if ((each > 0)); then
        on_gpu=1 precision=${PRECISION:-fp16}
    elif [[ $GPUS ]]; then
        device=(--cpu)
    fi
    processes=$((each > 0 ? each : 1))
    case $precision in
        float32) ;;
        bf16 | fp16) device+=("--$precision") ;;
        *) stop "PRECISION: needs float32, bf16 or fp16; got $precision. Use bf16 on a CPU that has its products." ;;
    esac
    [[ $NODES =~ ^[1-9][0-9]*$ ]] || stop "NODES: needs a number from 1 on; got $NODES. Use 1 for one machine."
    [[ $NODE =~ ^(0|[1-9][0-9]*)$ && $NODE -lt $NODES ]] || stop "NODE: needs 0 to $((NODES - 1)), of NODES=$NODES; got $NODE. Use 0 on the first machine."
    [[ $NODES != 1 ]] || return 0
    [[ ${MASTER:-} =~ ^.+:[0-9]+$ ]] || stop "MASTER: needs HOST:PORT of the first machine; got '${MASTER:-}'. Use MASTER=\$HOSTNAME:29500 there."
    launch=(torchrun --nnodes "$NODES" --node-rank "$NODE" --nproc-per-node "$processes"
        --master-addr "${MASTER%:*}" --master-port "${MASTER##*:}" -m fairseq_cli.train)
    processes=$((processes * NODES))
}

# run_training FOLDER DATA OPTION...: trains on DATA with these options into FOLDER, after use_devices. An interrupted training
# resumes. Of several machines the first one goes on.
run_training() {
    local folder=$1
    [[ "$*" == *" --arch "[^\ -]* ]] || stop "ROW: needs settings in this recipe; got a row without. Add them to its case."
    run mkdir -p "$folder"
    run_measured "$folder/usage.jsonl" "${launch[@]}" "$2" --user-dir "$PLUGIN" "${@:3}" --seed "$SEED" \
        --distributed-world-size "$processes" "${device[@]}" \
        --save-dir "$folder" --log-file "$folder/train.log" --log-format simple
    ((NODE == 0)) || exit 0
}

# need COMMAND...: stops if a command is missing, before any work.
need() {
    local name
    [[ $DRY_RUN ]] && return
    for name in "$@"; do
        command -v "$name" >/dev/null || stop "$name: no such command. Use $(remedy "$name")."
    done
}

# remedy COMMAND: prints how to get a command that is missing.
remedy() {
    local package=$1
    case $1 in
        curl | sha256sum)
            echo "your system's package ${1/sha256sum/coreutils}"
            return
            ;;
        fairseq-* | python) package=$repository ;;
        sacremoses) package=sacremoses==0.2.0 ;; # that of setup.py
    esac
    if [[ ${VIRTUAL_ENV:-} && ! $VIRTUAL_ENV -ef $repository/.venv ]]; then
        echo "\`pip install $package\` in the active environment, $VIRTUAL_ENV; or \`make venv\`, and deactivate that one"
    elif [[ -e $repository/.venv/.ready ]]; then
        echo "\`make clean venv\`"
    else
        echo "\`make venv\`, or \`pip install $package\`"
    fi
}

# show REDIRECTIONS COMMAND...: prints a command, quoted, after a prompt unless DRY_RUN is set.
show() {
    local line
    printf -v line '%q ' "${@:2}"
    if [[ $DRY_RUN ]]; then
        printf '%s\n' "${line% }$1"
    else
        printf '\n$ %s\n' "${line% }$1"
    fi
}

# run COMMAND...: prints the command, then runs it.
run() {
    show "" "$@"
    [[ $DRY_RUN ]] || "$@"
}

# The command fairseq-tiedemb, from the checkout if it is not installed.
tiedemb=(fairseq-tiedemb)
command -v fairseq-tiedemb >/dev/null || tiedemb=(env PYTHONPATH="$repository" python -m fairseq_tiedemb.cli)

# run_tiedemb COMMAND...: the same for `fairseq-tiedemb`.
run_tiedemb() {
    run "${tiedemb[@]}" "$@"
}

# own_python SCRIPT...: runs a program of this folder with the checkout's package, which knows its commit; what it runs gets
# an unchanged environment.
own_python() {
    python -c 'import runpy, sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[:3]; runpy.run_path(sys.argv[0], run_name="__main__")' \
        "$recipes" "$repository" "$recipes/$1" "${@:2}"
}

# run_measured FILE COMMAND...: the same as run, and adds the command's CPU seconds and peak memory to FILE.
run_measured() {
    local file=$1
    shift
    show "" "$@"
    [[ $DRY_RUN ]] || own_python measure.py "$file" "$@"
}

# run_to FILE COMMAND...: the same, with the command's output in FILE.
run_to() {
    local file=$1
    shift
    show "$(printf ' > %q' "$file")" "$@"
    [[ $DRY_RUN ]] || "$@" >"$file"
}

# run_from IN OUT COMMAND...: the same, and the command reads IN.
run_from() {
    local input=$1 file=$2
    shift 2
    show "$(printf ' < %q > %q' "$input" "$file")" "$@"
    [[ $DRY_RUN ]] || "$@" <"$input" >"$file"
}

# run_shown FILE COMMAND...: the same, and shows FILE.
run_shown() {
    run_to "$@"
    [[ $DRY_RUN ]] || cat "$1"
}

# run_log FILE COMMAND...: the same, also for stderr, and shows FILE if the command fails.
run_log() {
    local file=$1
    shift
    show "$(printf ' > %q 2>&1' "$file")" "$@"
    [[ $DRY_RUN ]] || "$@" >"$file" 2>&1 || {
        tail -n 5 "$file" >&2
        stop "the last command failed, for the reason above; all it said is in $file."
    }
}

# log_tiedemb FILE COMMAND...: as run_tiedemb and run_log.
log_tiedemb() {
    run_log "$1" "${tiedemb[@]}" "${@:2}"
}

# shown_tiedemb FILE COMMAND...: the same, and shows FILE.
shown_tiedemb() {
    log_tiedemb "$@"
    run cat "$1"
}

# record TABLE ROW [FOLDER] [OPTION...]: records the recipe's figures in recipes/results/TABLE/ROW-SEED.json: those in
# files of FOLDER (names: `python recipes/record.py --help`), and those in options such as --figure COLUMN=VALUE. An empty
# SEED gives a result without seed. Prints only the recorded result, on stderr.
record() {
    local table=$1 row=$2$variant results=${RESULTS:-} options=()
    shift 2
    [[ -z $DRY_RUN ]] || return 0
    if [[ -z $results ]]; then
        [[ -z $SMOKE ]] || return 0
        results=$recipes/results
    fi
    [[ -z $variant ]] || options+=(--if-known)
    [[ -z ${SEED:-} ]] || options+=(--seed "$SEED")
    [[ -z ${on_gpu:-} ]] || options+=(--gpu)
    if (($#)) && [[ $1 != --* ]]; then
        options+=(--folder "$1")
        shift
    fi
    own_python record.py "$table" "$row" --command "$recipe_command" --tables "$recipes/tables" --results "$results" \
        "${options[@]}" "$@"
}

# made_up CORPUS [FILE]: with SMOKE=1 and no FROM, makes up a small corpus in the form of the real one, and sets FROM to its
# folder or a file in it: nothing is downloaded.
is_made_up=''
made_up() {
    [[ $SMOKE && -z ${FROM:-} ]] || return 0
    is_made_up=1 FROM=$WORK/made-up${2:+/$2}
    run python "$recipes/made_up.py" "$1" "$WORK/made-up"
}

# need_sum FILE SUMS: stops if FILE has none of these SHA-256 or SHA-1; prints FILE's SHA-256 if SUMS is empty.
need_sum() {
    local found sum
    [[ $DRY_RUN || $is_made_up ]] && return
    [[ -f $1 ]] || stop "FROM: needs the file $1; found none. Use FROM=... with the place where it is."
    if [[ -z $2 ]]; then
        found=$(sha256sum <"$1")
        echo "$1: no SHA-256 of it is published; this one has ${found%% *}" >&2
        return
    fi
    for sum in $2; do
        if ((${#sum} == 64)); then found=$(sha256sum <"$1"); else found=$(sha1sum <"$1"); fi
        [[ ${found%% *} != "$sum" ]] || return 0
    done
    stop "$1: needs the checksum ${2// / or }; got ${found%% *}. Remove it, and get the whole file."
}

# fetch SOURCE FOLDER SUMS [SECOND]: sets $fetched to a file with one of these checksums: SOURCE itself, or, where it is an
# address, its download in FOLDER, from the address SECOND if that fails. An interrupted download resumes, and is not
# repeated.
fetch() {
    local source=$1 target=$2/${1##*/} sums=$3 second=${4:-} status=0
    fetched=$source
    if [[ $source == *://* ]]; then
        fetched=$target
        # Another address of the same name is another file; downloads of older versions have no address beside them.
        [[ ! -f $target.from || $(<"$target.from") == "$source" ]] || rm -f "$target" "$target.part"
        if [[ $DRY_RUN || ! -f $target ]]; then
            run mkdir -p "$2"
            [[ $DRY_RUN ]] || printf '%s\n' "$source" >"$target.from"
            run curl --fail --silent --show-error --location --retry 3 --continue-at - --output "$target.part" "$source" ||
                status=$?
            # 22: the address has no such file, or no more of it. 33: it cannot go on in the middle.
            ((status != 22 && status != 33)) || rm -f "$target.part"
            if ((status != 0)) && [[ $second == *://* && $second != "$source" ]]; then
                echo "$source: curl stopped with status $status; from $second" >&2
                rm -f "$target.part"
                status=0
                run curl --fail --silent --show-error --location --retry 3 --output "$target.part" "$second" || status=$?
            fi
            ((status == 0)) || stop "$source: curl stopped with status $status. Run this again, or use FROM=... with a local copy."
            run mv "$target.part" "$target"
        fi
    fi
    need_sum "$fetched" "$sums"
}

# archive NAME ADDRESS: unpacks an archive, from FROM or from the address, to $WORK/raw/NAME.
archive() {
    fetch "${FROM:-${2%/*}}/${2##*/}" "$RUNS/download/$1" ""
    run python "$recipes/unpack.py" "$fetched" "$WORK/raw/$1"
}

# given_text TARGET SPLIT...: takes $FROM/SPLIT.{en,TARGET} as $WORK/text/SPLIT.*.
given_text() {
    local target=$1 split language
    shift
    for split in "$@"; do
        for language in en "$target"; do
            run cp "$FROM/$split.$language" "$WORK/text/$split.$language"
        done
    done
}

# english_german NEWS SPLIT=SET...: makes $WORK/text/train.{en,de} of Europarl, Common Crawl and the News Commentary with
# this address, and each SPLIT of one of sacrebleu's test sets.
english_german() {
    local name language part
    name=$(basename "$1" .tgz)
    archive europarl https://www.statmt.org/europarl/v7/de-en.tgz
    archive commoncrawl https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz
    archive news "$1"
    for language in en de; do
        run_to "$WORK/text/train.$language" cat "$WORK/raw/europarl/europarl-v7.de-en.$language" \
            "$WORK/raw/commoncrawl/commoncrawl.de-en.$language" "$WORK/raw/news/$name/news-commentary-${name##*-}.de-en.$language"
    done
    run rm -rf "$WORK/raw"
    for part in "${@:2}"; do
        run_to "$WORK/text/${part%=*}.en" sacrebleu --test-set "${part#*=}" --language-pair en-de --echo src
        run_to "$WORK/text/${part%=*}.de" sacrebleu --test-set "${part#*=}" --language-pair en-de --echo ref
    done
}

# need_files NAME...: stops if FROM is a place on this machine without one of these files, before begin_corpus.
need_files() {
    local name
    [[ ! $DRY_RUN && $FROM && $FROM != *://* ]] || return 0
    for name in "$@"; do
        [[ -f $FROM/$name ]] || stop "FROM: needs the file $FROM/$name; found none. Use a folder with $*."
    done
}

# begin_corpus FOLDER...: removes what an earlier preparation left, if FROM is an address or there.
begin_corpus() {
    [[ $DRY_RUN || -z ${FROM:-} || $FROM == *://* || -e $FROM ]] ||
        stop "FROM: needs an address, a file or a folder; got $FROM, which is none. Use the place where the corpus is."
    run rm -rf "$@"
    [[ $DRY_RUN ]] && return
    mkdir -p "$WORK"
    if [[ $SMOKE ]]; then touch "$WORK/.smoke"; else rm -f "$WORK/.smoke"; fi
}

# prepared SCRIPT ARGUMENT...: runs the script that makes $WORK/bin, unless $WORK/bin exists.
prepared() {
    local script=$1
    shift
    if [[ -d $WORK/bin ]]; then
        [[ $SMOKE || ! -e $WORK/.smoke ]] ||
            stop "WORK: needs a folder without a corpus of SMOKE=1; got $WORK. Use another, or $script."
        return
    fi
    [[ $NODES == 1 ]] || stop "NODES: needs $WORK/bin on every machine; got none. Use $script before."
    WORK=$WORK "$recipes/$script" "$@"
}

# need_lines FILE COUNT REMEDY: stops if FILE has another number of lines. Translations are compared line by line.
need_lines() {
    local lines
    [[ $DRY_RUN ]] && return
    lines=$(wc -l <"$1")
    ((lines == $2)) || stop "$1: needs $2 lines; got $((lines)). $3"
}

# lowercase IN OUT
lowercase() {
    run_from "$1" "$2" python -c 'import sys; sys.stdout.write(sys.stdin.read().lower())'
}

# binarize SOURCE MERGES VALID TEST [OPTION...]: makes $WORK/bpe and, as the last thing and whole, $WORK/bin from the
# tokenised texts $WORK/text/train.SOURCE, train.en, VALID.SOURCE, ... with BPE that is learned on both languages together.
# The options are fairseq-preprocess's.
binarize() {
    local source=$1 merges=$2 valid=$3 test=$4 split language
    shift 4
    run mkdir -p "$WORK/bpe"
    run_to "$WORK/bpe/train.both" cat "$WORK/text/train.$source" "$WORK/text/train.en"
    run subword-nmt learn-bpe --symbols "$merges" --input "$WORK/bpe/train.both" --output "$WORK/bpe/codes"
    for split in train "$valid" "$test"; do
        for language in "$source" en; do
            run subword-nmt apply-bpe --codes "$WORK/bpe/codes" \
                --input "$WORK/text/$split.$language" --output "$WORK/bpe/$split.$language"
        done
    done
    run fairseq-preprocess --source-lang "$source" --target-lang en "$@" --trainpref "$WORK/bpe/train" \
        --validpref "$WORK/bpe/$valid" --testpref "$WORK/bpe/$test" --destdir "$WORK/bin.partial"
    run mv "$WORK/bin.partial" "$WORK/bin"
}
