#!/usr/bin/env bash
# Press & Wolf (2016), tables 3 and 4 and section 3, on PTB: what the embeddings of table 6's models `small` and `wt` know,
# how alike they are, and how training changes them.
#
#   SETS=folder/with/sets recipes/measure-tables3-4.sh
#
# Table 3, Spearman's rho, paper:  SimLex-999 .02 / .13 / .14, Verb-143 .12 / .37 / .32, MEN .11 / .21 / .26,
#            (in / out / tied)     RareWord .28 / .38 / .36, MTurk-771 .17 / .28 / .30
# Table 4, Spearman's rho, paper:  in-out .13, in-tied .31, out-tied .65
#
# Hardware   one core of a CPU, minutes; an hour before it for each of the two models that is not trained yet
# Expected   table 3: output and tied above input in every set; table 4: out-tied above in-tied above in-out. PTB has a
#            third of MEN's pairs and 7% of RareWord's: the intervals beside each number say what it is worth
# Check      10,000 words and 49,995,000 pairs in table 4; 232 rows of 10,000 a batch
#
# The sets (SimLex-999, Verb-143, MEN, RareWord, MTurk-771, ...) have terms of their own, and are not downloaded: SETS is a
# folder with a .txt file each, `word word score` a line. The models are those of train-table6-small.sh, which trains them
# where $WORK/small-SEED/checkpoint_last.pt or $WORK/wt-SEED/checkpoint_last.pt is missing (FROM: see there).
#
# SEED: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

(($# == 0)) || stop "needs no argument; got $#. Use SETS=... with the folder of the sets."
SETS=${SETS:-}
WORK=${WORK:-$RUNS/ptb${SMOKE:+-smoke}}
shopt -s nullglob
sets=("$SETS"/*.txt)
if [[ -z $SETS ]] || ((${#sets[@]} == 0)); then
    stop "SETS: needs a folder with sets of scored pairs, NAME.txt; got '$SETS'. Use SETS=... with the folder of yours."
fi
need python

checkpoints=()
for row in small wt; do
    checkpoint=$WORK/$row-$SEED/checkpoint_last.pt
    [[ -f $checkpoint ]] || WORK=$WORK SEED=$SEED "$recipes/train-table6-small.sh" "$row"
    checkpoints+=("$checkpoint")
done
run_tiedemb similarity "${checkpoints[@]}" --dict "$WORK/bin/dict.txt" --sets "${sets[@]}"
run_tiedemb correlation "${checkpoints[@]}" --dict "$WORK/bin/dict.txt"
run_tiedemb updates "$WORK/bin" --checkpoint "${checkpoints[@]}"
# The gradients of single words, of which the paper's equations are.
run_tiedemb updates "$WORK/bin" --checkpoint "${checkpoints[@]}" --batch-size 1 --tokens-per-sample 1 --batches 2000 \
    --train-subset valid --gen-subset valid
