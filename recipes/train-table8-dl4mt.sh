#!/usr/bin/env bash
# Press & Wolf (2016), table 8: attention translation, DL4MT, on WMT. Trains one row and scores validation and test sets.
#
#   recipes/train-table8-dl4mt.sh PAIR ROW       # rows, the paper's BLEU, hardware, time: tables/table8.json
#
# Corpus     prepare-wmt14-enfr.sh or prepare-wmt15-ende.sh
# Expected   the paper's pattern: three-way tying as good as the baseline, with half the parameters. Never run at full size
# Check      the last line: BLEU of tokenised text. For en-de it is newstest2015's, before it is newstest2014's: the paper
#            names both and has one column
#
# The preset brings the training (fairseq_tiedemb/config/recipe/dl4mt.yaml); GPUS=N spreads each update over N of them, in
# half precision. Beam 5; the checkpoint is the best one on the validation set. The paper does not name batch, lengths,
# beam or the program that computes BLEU.
#
# SEED     the default is 1
# UPDATES  the default is the preset's
# SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_row "PAIR ROW" "$@"
case $1 in
    en-fr) corpus=wmt14-enfr tests=(test) ;;
    en-de) corpus=wmt15-ende tests=(test test1) ;;
esac
data=bin
case $2 in
    untied) preset=dl4mt ;;
    wt) preset=dl4mt_wt ;;
    twwt) preset=dl4mt_twwt data=joint ;;
esac
target=${1#en-}
WORK=${WORK:-$RUNS/$corpus$of_work}
SEED=${SEED:-1}
folder=$WORK/$2-$SEED$training_variant
# The preset's batch, spread over the GPUs.
batch=80 changes=()
use_devices
if [[ $SMOKE ]]; then
    : "${UPDATES:=10}"
    batch=20
    changes=(--encoder-embed-dim 16 --decoder-embed-dim 16 --decoder-out-embed-dim 16)
    changes+=(--encoder-hidden-size 16 --decoder-hidden-size 16)
fi
((batch == 80 && processes == 1)) || changes+=(--batch-size "$(((batch + processes - 1) / processes))")
[[ -z ${UPDATES:-} ]] || changes+=(--max-update "$UPDATES")

need fairseq-train python
prepared "prepare-$corpus.sh"
run_training "$folder" "$WORK/$data" --source-lang en --target-lang "$target" --arch "$preset" "${changes[@]}" \
    --no-epoch-checkpoints
for split in valid "${tests[@]}"; do
    # The test set has longer sentences than training.
    OVERRIDES="{'max_source_positions': 1024, 'max_target_positions': 1024}" \
        "$recipes/evaluate.sh" "$WORK/$data" "$folder/checkpoint_best.pt" "$split" "$WORK/text/$split.$target"
done
record table8 "$1,$2" "$folder"
