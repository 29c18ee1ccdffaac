# shellcheck shell=bash
# Functions of the recipes for word embeddings, which source this file after common.sh: they read the figures for
# `record` from the output of `fairseq-tiedemb`.
#
# SETS       folder with sets of scored pairs, `word word score` lines. They have their own licences, and are not
#            downloaded; files with the names of github.com/mfaruqui/eval-word-vectors, EN-MEN-TR-3k.txt, are recorded
# QUESTIONS  file of analogies, such as questions-words.txt of word2vec

SETS=${SETS:-}
QUESTIONS=${QUESTIONS:-}
recorded_sets="EN-SIMLEX-999 EN-VERB-143 EN-MEN-TR-3k EN-RW-STANFORD EN-MTurk-771 EN-WS-353-ALL"

# find_sets: sets `sets` to the files of SETS; stops if no file is one of the recorded sets.
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

# set_figures LOG N: prints SET=RHO for all recorded sets, of the N-th table in `similarity`'s log.
set_figures() {
    set_cells "$@" | awk '{ print $1 "=" $4 }'
}

# set_note LOG N: prints the sets' numbers of pairs, and the intervals.
set_note() {
    set_cells "$@" | awk '{ printf "%s%s: %s of %s pairs, %s to %s", (NR > 1 ? "; " : ""), $1, $2, $3, $5, $6 }'
}

# set_cells LOG N: prints set, pairs with both words, pairs, rho and interval, of the N-th table.
set_cells() {
    [[ $DRY_RUN ]] || awk -v n="$2" -v sets=" $recorded_sets " '
        { gsub(/ +\(/, "("); gsub(/ to /, ":") } # rho (low to high): one field
        index(sets, " " $1 " ") && split($(3 + n), cell, /[(:)]/) > 3 { print $1, $2, $3, cell[1], cell[2], cell[3] }' "$1"
}

# correlation_figures LOG A-B A-C B-C: prints NAME=RHO for the pairs of tables in `correlation`'s log.
correlation_figures() {
    [[ $DRY_RUN ]] || awk -v ab="$2" -v ac="$3" -v bc="$4" '
        $1 == "[1]" && NF == 3 { print ab "=" $2; print ac "=" $3 }
        $1 == "[2]" && NF == 2 { print bc "=" $2 }' "$1"
}

