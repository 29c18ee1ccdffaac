#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on text8. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-text8-small.sh ROW
#
#   ROW    the paper's column   paper: train / valid / test   command
#   small  Small                90.4 / none / 195.3           --arch zaremba_lm_small
#   wt     S+WT                 95.6 / none / 187.1           --arch zaremba_lm_small_wt
#   pr     S+PR                 92.6 / none / 199.0           --arch zaremba_lm_small_pr
#   wt-pr  S+WT+PR              95.3 / none / 183.2           --arch zaremba_lm_small_wt_pr
#
# Hardware   a GPU; 15 million words and some 45,000 types are days a row on one core of a CPU. Never run on the whole
# Expected   the paper's pattern, but not its numbers: its split and vocabulary are those of Mikolov et al. (2014), and not
#            the ones here (prepare-text8.sh says which)
# Check      "Evaluated ... tokens" and the perplexity, the last two lines
#
# Corpus: prepare-text8.sh, which runs first if its result is missing (FROM: see its header). An interrupted training
# resumes; to train anew, remove its folder, $WORK/ROW-SEED.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/text8${SMOKE:+-smoke}}
small_row prepare-text8.sh table7-text8 "$@"
