# shellcheck shell=bash
# What the recipes for word embeddings have in common: figures for `record` out of what `fairseq-tiedemb` printed. They
# source it after common.sh; it runs nothing.
#
# SETS       folder with sets of scored pairs, `word word score` a line. They have terms of their own, and are not
#            downloaded; the files named as in github.com/mfaruqui/eval-word-vectors, EN-MEN-TR-3k.txt, are recorded
# QUESTIONS  file of analogies, questions-words.txt of word2vec

SETS=${SETS:-}
QUESTIONS=${QUESTIONS:-}
recorded_sets="EN-SIMLEX-999 EN-VERB-143 EN-MEN-TR-3k EN-RW-STANFORD EN-MTurk-771 EN-WS-353-ALL"

# find_sets: makes `sets` of the files of SETS; stops if there are none.
find_sets() {
    shopt -s nullglob
    sets=("$SETS"/*.txt)
    shopt -u nullglob
    if [[ -z $SETS ]] || ((${#sets[@]} == 0)); then
        stop "SETS: needs a folder with sets of scored pairs, NAME.txt; got '$SETS'. Use SETS=... with the folder of yours."
    fi
}

# set_figures LOG N: SET=RHO for each set that is recorded, of the N-th table that `similarity` had.
set_figures() {
    [[ $DRY_RUN ]] || awk -v n="$2" -v sets=" $recorded_sets " '
        index(sets, " " $1 " ") { gsub(/\([^)]*\)/, ""); if ($(3 + n) != "-") print $1 "=" $(3 + n) }' "$1"
}

# set_note LOG N: of how many pairs each is, and the intervals.
set_note() {
    [[ $DRY_RUN ]] || awk -v n="$2" -v sets=" $recorded_sets " '
        index(sets, " " $1 " ") && split($0, parts, /[()]/) >= 2 * n {
            printf "%s%s: %s of %s pairs, %s", (count++ ? "; " : ""), $1, $2, $3, parts[2 * n] }' "$1"
}

# correlation_figures LOG A-B A-C B-C: rho between the tables A, B and C that `correlation` had, under these names.
correlation_figures() {
    [[ $DRY_RUN ]] || awk -v ab="$2" -v ac="$3" -v bc="$4" '
        $1 == "[1]" && NF == 3 { print ab "=" $2; print ac "=" $3 }
        $1 == "[2]" && NF == 2 { print bc "=" $2 }' "$1"
}

# with_log FILE COMMAND...: runs a command of `fairseq-tiedemb`, and shows what it printed, which FILE has.
with_log() {
    log_tiedemb "$@"
    run cat "$1"
}
