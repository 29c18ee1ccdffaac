#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on BBC news. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-bbc-small.sh ROW        # rows, the paper's figures, hardware, time: tables/table7-bbc.json
#
# Corpus     prepare-bbc.sh
# Expected   the paper's pattern, but not its numbers, since its split and its vocabulary are not published
# Check      "Evaluated 42,301 tokens" and the perplexity, the last two lines
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/bbc$of_work}
small_row prepare-bbc.sh table7-bbc "$@"
