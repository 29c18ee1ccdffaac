#!/usr/bin/env bash
# Press & Wolf (2016), table 8: attention translation, DL4MT, on WMT. Trains one row and scores validation and test sets.
#
#   recipes/train-table8-dl4mt.sh PAIR ROW     # en-fr en-de
#
#   ROW     the paper's row             paper: en-fr valid / test; en-de valid / test   command
#   untied  Baseline                    29.49 / 33.13; 20.96 / 16.79                    --arch dl4mt
#   wt      Decoder WT                  29.47 / 33.26; 21.09 / 16.54                    --arch dl4mt_wt
#   twwt    TWWT, three-way             29.43 / 33.46; 21.02 / 17.15                    --arch dl4mt_twwt
#
# Hardware   a GPU of 16 GB or more, days: 300,000 updates of 80 sentences; GPUS=N spreads each over N of them, in half
#            precision. Never run at full size
# Expected   the paper's pattern: three-way tying as good as the baseline, with half the parameters
# Check      the last line: BLEU of tokenised text. For en-de it is newstest2015's, before it is newstest2014's: the paper
#            names both and has one column
#
# Hidden size 1,000, embeddings 500, Adadelta (which the paper names), gradients clipped at 1, sentences of fewer than 50
# subwords (DL4MT's published setups). Beam 5; the checkpoint is the best one on the validation set. The paper does not
# name batch, lengths, beam or the program that computes BLEU.
# Corpus: prepare-wmt14-enfr.sh or prepare-wmt15-ende.sh, which runs first if its result is missing (FROM: see its
# header). An interrupted training resumes.
#
# SEED, UPDATES: 1 and 300000. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($# == 2)) || stop "needs PAIR and ROW; got $# arguments. Use en-fr or en-de; then untied, wt or twwt."
case $1 in
    en-fr) corpus=wmt14-enfr tests=(test) ;;
    en-de) corpus=wmt15-ende tests=(test test1) ;;
    *) stop "PAIR: needs en-fr or en-de; got $1." ;;
esac
data=bin
case $2 in
    untied) preset=dl4mt ;;
    wt) preset=dl4mt_wt ;;
    twwt) preset=dl4mt_twwt data=joint ;;
    *) stop "ROW: needs untied, wt or twwt; got $2." ;;
esac
target=${1#en-}
WORK=${WORK:-$RUNS/$corpus${SMOKE:+-smoke}}
SEED=${SEED:-1}
folder=$WORK/$2-$SEED$training_variant
batch=80 sizes=()
use_gpus
if [[ $SMOKE ]]; then
    : "${UPDATES:=10}"
    batch=20
    sizes=(--encoder-embed-dim 16 --decoder-embed-dim 16 --decoder-out-embed-dim 16)
    sizes+=(--encoder-hidden-size 16 --decoder-hidden-size 16)
fi

need fairseq-train python
prepared "prepare-$corpus.sh"
run mkdir -p "$folder"
run_measured "$folder/usage.jsonl" fairseq-train "$WORK/$data" --user-dir "$PLUGIN" --source-lang en --target-lang "$target" \
    --arch "$preset" "${sizes[@]}" --criterion tied_cross_entropy --label-smoothing 0 \
    --optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1 --lr-scheduler fixed --clip-norm 1 --sentence-avg \
    --batch-size "$(((batch + processes - 1) / processes))" --max-source-positions 50 --max-target-positions 50 \
    --skip-invalid-size-inputs-valid-test --max-update "${UPDATES:-300000}" --seed "$SEED" \
    --distributed-world-size "$processes" "${device[@]}" --save-interval-updates 10000 --keep-interval-updates 1 \
    --save-dir "$folder" --no-epoch-checkpoints --log-file "$folder/train.log" --log-format simple
for split in valid "${tests[@]}"; do
    # The test set has longer sentences than training.
    OVERRIDES="{'max_source_positions': 1024, 'max_target_positions': 1024}" \
        "$recipes/evaluate.sh" "$WORK/$data" "$folder/checkpoint_best.pt" "$split" "$WORK/text/$split.$target"
done
record table8 "$1,$2" "$folder"
