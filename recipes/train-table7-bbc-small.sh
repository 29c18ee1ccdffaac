#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on BBC news. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-bbc-small.sh ROW
#
#   ROW    the paper's column   paper: train / valid / test   command
#   small  Small                28.6 / 103.6 / 110.8          --arch zaremba_lm_small
#   wt     S+WT                 30.1 / 99.4 / 106.8           --arch zaremba_lm_small_wt
#   pr     S+PR                 42.5 / 104.9 / 108.7          --arch zaremba_lm_small_pr
#   wt-pr  S+WT+PR              45.7 / 96.4 / 98.9            --arch zaremba_lm_small_wt_pr
#
# Hardware   one core of a CPU, about an hour a row for its 13 epochs; minutes on a GPU
# Expected   with SEED=1 small 28.8 / 90.6 / 81.0, wt 28.8 / 87.6 / 79.6, pr 42.5 / 89.7 / 80.4, wt-pr 43.3 / 81.2 /
#            72.9: the paper's pattern, but not its numbers, since its split and its vocabulary are not published
#            (prepare-bbc.sh says what is done)
# Check      "Evaluated 42,301 tokens" and the perplexity, the last two lines
#
# The corpus comes from prepare-bbc.sh, which is run first where its result is missing (FROM: see there). A training that
# was interrupted goes on where it stopped; remove its folder, $WORK/ROW-SEED, to train again.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

rows="small, wt, pr or wt-pr"
(($# == 1)) || stop "needs one ROW; got $# arguments. Use $rows."
WORK=${WORK:-$RUNS/bbc${SMOKE:+-smoke}}
case $1 in
    small) preset=zaremba_lm_small ;;
    wt | pr | wt-pr) preset=zaremba_lm_small_${1//-/_} ;;
    *) stop "ROW: needs $rows; got $1." ;;
esac
train_and_score prepare-bbc.sh "$WORK/$1-$SEED" last --arch "$preset"
record table7-bbc "$1" "$WORK/$1-$SEED"
