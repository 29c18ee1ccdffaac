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

# find_sets: makes `sets` of the files of SETS; stops if none of them is one that is recorded.
find_sets() {
    local file
    shopt -s nullglob
    sets=("$SETS"/*.txt)
    shopt -u nullglob
    for file in "${sets[@]}"; do
        [[ " $recorded_sets " != *" $(basename "$file" .txt) "* ]] || return 0
    done
    stop "SETS: needs a folder with one or more of ${recorded_sets// /.txt, }.txt; got '$SETS'. Use SETS=... with yours."
}

# set_figures LOG N: SET=RHO for each set that is recorded, of the N-th table that `similarity` had.
set_figures() {
    set_cells "$@" | awk '{ print $1 "=" $4 }'
}

# set_note LOG N: of how many pairs each is, and the intervals.
set_note() {
    set_cells "$@" | awk '{ printf "%s%s: %s of %s pairs, %s to %s", (NR > 1 ? "; " : ""), $1, $2, $3, $5, $6 }'
}

# set_cells LOG N: set, pairs found, pairs, rho and the ends of its interval, of the N-th table and the sets that it has.
set_cells() {
    [[ $DRY_RUN ]] || awk -v n="$2" -v sets=" $recorded_sets " '
        { gsub(/ +\(/, "("); gsub(/ to /, ":") } # rho (low to high): one field
        index(sets, " " $1 " ") && split($(3 + n), cell, /[(:)]/) > 3 { print $1, $2, $3, cell[1], cell[2], cell[3] }' "$1"
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
