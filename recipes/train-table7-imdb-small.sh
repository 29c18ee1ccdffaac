#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on IMDB reviews. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-imdb-small.sh ROW       # rows, the paper's figures, hardware, time: tables/table7-imdb.json
#   REVIEWS=6250 recipes/train-table7-imdb-small.sh ROW     # on a quarter of the reviews, in a quarter of the time
#
# Corpus     prepare-imdb-lm.sh
# Expected   the paper's pattern, but not its numbers, since its split and its vocabulary are not published
# Check      "Evaluated 286,397 tokens" and the perplexity, the last two lines
#
# REVIEWS: prepare-imdb-lm.sh. SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/imdb-lm${REVIEWS:+-$REVIEWS}$of_work}
small_row prepare-imdb-lm.sh table7-imdb "$@"
