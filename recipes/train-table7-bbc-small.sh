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
#            72.9: the paper's pattern, but not its numbers, since its split and its vocabulary are not published (see
#            prepare-bbc.sh)
# Check      "Evaluated 42,301 tokens" and the perplexity, the last two lines
#
# Corpus: prepare-bbc.sh, which runs first if its result is missing (FROM: see its header). An interrupted training
# resumes; to train anew, remove its folder, $WORK/ROW-SEED.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/bbc${SMOKE:+-smoke}}
small_row prepare-bbc.sh table7-bbc "$@"
