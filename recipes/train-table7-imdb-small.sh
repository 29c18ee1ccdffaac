#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on IMDB reviews. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-imdb-small.sh ROW
#   REVIEWS=6250 recipes/train-table7-imdb-small.sh ROW     # on a quarter of the reviews, in a quarter of the time
#
#   ROW    the paper's column   paper: train / valid / test   command
#   small  Small                71.3 / 94.1 / 94.3            --arch zaremba_lm_small
#   wt     S+WT                 75.4 / 94.6 / 94.8            --arch zaremba_lm_small_wt
#   pr     S+PR                 72.0 / 94.0 / 94.4            --arch zaremba_lm_small_pr
#   wt-pr  S+WT+PR              72.9 / 91.2 / 91.5            --arch zaremba_lm_small_wt_pr
#
# Hardware   one core of a CPU: an epoch of 7.0 million tokens is half an hour at 3,600 tokens a second, a row of 13
#            epochs 7 hours; with REVIEWS=6250 2 hours
# Expected   the paper's pattern, but not its numbers, since its split and its vocabulary are not published (see
#            prepare-imdb-lm.sh)
# Check      "Evaluated 286,397 tokens" and the perplexity, the last two lines
#
# Corpus: prepare-imdb-lm.sh, which runs first if its result is missing (FROM: see its header). An interrupted training
# resumes; to train anew, remove its folder, $WORK/ROW-SEED.
#
# REVIEWS: prepare-imdb-lm.sh. SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/imdb-lm${REVIEWS:+-$REVIEWS}${SMOKE:+-smoke}}
small_row prepare-imdb-lm.sh table7-imdb "$@"
