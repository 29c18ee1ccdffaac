#!/usr/bin/env bash
# Press & Wolf (2016), table 7: the small model on text8. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table7-text8-small.sh ROW      # rows, the paper's figures, hardware, time: tables/table7-text8.json
#
# Corpus     prepare-text8.sh
# Expected   the paper's pattern, but not its numbers: its split and vocabulary are those of Mikolov et al. (2014). Never run
#            on the whole text
# Check      "Evaluated ... tokens" and the perplexity, the last two lines
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/text8$of_work}
small_row prepare-text8.sh table7-text8 "$@"
