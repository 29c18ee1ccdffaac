#!/usr/bin/env bash
# Press & Wolf (2016), table 1: subwords that two languages share in the training text after joint BPE.
#
#   recipes/measure-table1.sh CORPUS             # corpora, the paper's counts, hardware, time: tables/table1.json
#
# Corpus     its prepare- recipe
# Expected   more merges on the same text give a smaller shared part: small corpora differ from the paper's WMT
# Check      the line "all": the size of the dictionary, or a few types less
#
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_row CORPUS "$@"
case $1 in
    wmt14-enfr) prepare=("prepare-$1.sh") other=fr ;;
    wmt* | multi30k) prepare=("prepare-$1.sh") other=de ;;
    *) prepare=("prepare-${1%-*}.sh" "${1#*-}") other=${1#*-} ;;
esac
WORK=${WORK:-$RUNS/$1$of_work}

need python
prepared "${prepare[@]}"
log=$WORK/overlap.log
shown_tiedemb "$log" overlap "$WORK/bin"

# types WHERE: prints the number of types in this row of the output.
types() {
    [[ $DRY_RUN ]] || sed -n "s/^$1 *\\([0-9,]*\\) .*/\\1/p" "$log" | tr -d ,
}
# shared: prints the share of types in both languages.
shared() {
    [[ $DRY_RUN ]] || sed -n 's/^in both .* \([0-9.]*\)%$/\1/p' "$log"
}
SEED='' record table1 "$1" --figure "english=$(types 'only in en')" "other=$(types "only in $other")" \
    "both=$(types 'in both')" "shared=$(shared)"
