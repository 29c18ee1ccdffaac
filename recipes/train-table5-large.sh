#!/usr/bin/env bash
# Press & Wolf (2016), table 5: PTB with dropout. Trains one row and scores it on valid and test.
#
#   recipes/train-table5-large.sh ROW            # rows, the paper's figures, hardware, time: tables/table5.json
#
# Corpus     prepare-ptb.sh
# Expected   test within 2% of the paper
# Check      "Evaluated 82,430 tokens" and the perplexity, the last two lines
#
# The presets bring the whole recipe. The paper's highway networks are rows of the table of Zilly et al.'s repository: of
# depth 8 untied, of depth 9 tied; they are scored at the epoch that is best on valid, the LSTMs at their last one.
#
# A perplexity of valid above 500 after the first epoch of `large`: its first updates were too large; take another SEED.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
# Scoring the training set too (SPLITS="train valid test") takes hours on a CPU, as it is one stream.
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
WORK=${WORK:-$RUNS/ptb$of_work}
checkpoint=last preset=
case $1 in
    medium) preset=zaremba_lm_medium ;;
    medium-wt) preset=zaremba_lm_medium_wt ;;
    large) preset=zaremba_lm_large ;;
    large-wt) preset=zaremba_lm_large_wt ;;
    gal) preset=gal_lm_large ;;
    gal-wt) preset=gal_lm_large_wt ;;
    rhn) preset=highway_lm_8x890 checkpoint=best ;;
    rhn-wt) preset=highway_lm_9x860_wt checkpoint=best ;;
esac
folder=$WORK/$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" "$checkpoint" --arch "$preset"
record table5 "$1" "$folder"
