#!/usr/bin/env bash
# Press & Wolf (2016), table 1: subwords that two languages share in the training text after joint BPE.
#
#   recipes/measure-table1.sh CORPUS
#
#   CORPUS                            paper: only English / only the other / both
#   wmt14-enfr                        2K / 7K / 85K
#   wmt15-ende                        3K / 11K / 80K
#   wmt16-ende                        the same languages with 32,000 merges instead of 89,500
#   iwslt14-de, iwslt14-es, iwslt14-ro
#   multi30k
#   tatoeba-de, tatoeba-es, tatoeba-ro
#
# Hardware   one core of a CPU, a minute after the corpus is prepared
# Expected   more merges on the same text give a smaller shared part: small corpora differ from the paper's WMT
# Check      the line "all": the size of the dictionary, or a few types less
#
# Corpus: its prepare- recipe, which runs first if its result is missing (FROM: see its header).
#
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rows="wmt14-enfr, wmt15-ende, wmt16-ende, iwslt14-{de,es,ro}, multi30k or tatoeba-{de,es,ro}"
(($# == 1)) || stop "needs one CORPUS; got $# arguments. Use $rows."
case $1 in
    wmt14-enfr) prepare=("prepare-$1.sh") other=fr ;;
    wmt15-ende | wmt16-ende | multi30k) prepare=("prepare-$1.sh") other=de ;;
    iwslt14-de | iwslt14-es | iwslt14-ro | tatoeba-de | tatoeba-es | tatoeba-ro)
        other=${1#*-}
        prepare=("prepare-${1%-*}.sh" "$other")
        ;;
    *) stop "CORPUS: needs $rows; got $1." ;;
esac
WORK=${WORK:-$RUNS/$1${SMOKE:+-smoke}}

need python
prepared "${prepare[@]}"
log=$WORK/overlap.log
log_tiedemb "$log" overlap "$WORK/bin"
run cat "$log"

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
