#!/usr/bin/env bash
# A small Transformer language model, Penn Treebank, with its tables shared in each way, and with tables in bands (adaptive
# input and softmax, Baevski & Auli 2019). Trains one row and scores valid and test.
#
#   recipes/train-transformer-lm.sh ROW          # rows, hardware, time: tables/transformer-lm.json
#
# Row        untied, or a sharing method; adaptive and adaptive-tied have bands of 2,000, 4,000 and 4,002 types;
#            input-gradient-S is plain with the gradient of the table as input times S (Lopardo et al. 2026)
# Corpus     prepare-ptb.sh
# Expected   no published figures
# Check      the last line: the perplexity of the test set
#
# 3 layers of 256 units, norms before the sublayers, blocks of 256 tokens, 12 epochs in bfloat16. The learning rate falls in
# a straight line to 0 at the last update. Scoring gives every token but the first 128 a context of 128 words at least.
#
# UPDATES, LR, DROPOUT   how many updates, the highest learning rate, and the rate of dropout. SEED, SPLITS: language-model.sh.
# SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
PRECISION=${PRECISION:-bf16}
UPDATES=${UPDATES:-5460}
text_rows=8
scoring=(--task language_modeling --tokens-per-sample 256 --context-window 128)
small=(--decoder-embed-dim 32 --decoder-input-dim 32 --decoder-output-dim 32 --decoder-ffn-embed-dim 32)
cutoffs=2000,6000
[[ -z $SMOKE ]] || cutoffs=10,30
bands=(--adaptive-input --adaptive-input-cutoff "$cutoffs" --adaptive-softmax-cutoff "$cutoffs")
case $1 in
    untied) options=() ;;
    adaptive) options=("${bands[@]}") ;;
    adaptive-tied) options=("${bands[@]}" --tie-adaptive-weights) ;;
    input-gradient-*) options=(--share-decoder-input-output-embed --input-gradient-scale "${1##*-}") ;;
    *) options=(--share-decoder-input-output-embed --sharing-method "$1") ;;
esac
WORK=${WORK:-$RUNS/ptb$of_work}
folder=$WORK/transformer-lm-$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" last --task language_modeling --arch tied_transformer_lm "${options[@]}" \
    --criterion tied_cross_entropy \
    --decoder-layers 3 --decoder-embed-dim 256 --decoder-input-dim 256 --decoder-output-dim 256 \
    --decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 --decoder-normalize-before --dropout "${DROPOUT:-0.3}" \
    --optimizer adam --adam-betas "(0.9, 0.98)" --clip-norm 1 \
    --lr "${LR:-2e-3}" --lr-scheduler polynomial_decay --warmup-updates "$((UPDATES / 10))" --total-num-update "$UPDATES" \
    --max-update "$UPDATES" --tokens-per-sample 256 --batch-size "$text_rows"
record transformer-lm "$1" "$folder"
