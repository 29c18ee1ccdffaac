#!/usr/bin/env bash
# Liu, Zhai & Chen (2020), table 1: Transformer-big on WMT16 English to German. Trains one row and scores newstest2014.
#
#   recipes/train-liu-table1-transformer-wmt16.sh METHOD    # rows, the paper's BLEU, hardware: tables/liu-table1.json
#
# Corpus     prepare-wmt16-ende.sh
# Expected   the paper's BLEU, one seed each: a few tenths are noise. Never run at full size
# Check      the last line: BLEU of tokenised text with compounds split, as multi-bleu.perl gives it
#
# 458,752 tokens an update (128 batches of 3,584), learning rate 1e-3, half precision, the last 10 checkpoints
# averaged, beam 4, length penalty 0.6, as in the paper. It does not give the number of updates; 30,000 is that of fairseq's
# recipe for DynamicConv with the same batches.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row METHOD "$@"
WORK=${WORK:-$RUNS/wmt16-ende$of_work}
folder=$WORK/transformer-$1-$SEED$training_variant

prepared prepare-wmt16-ende.sh
train "$folder" 128 3584 --arch tied_transformer_vaswani_wmt_en_de_big --share-all-embeddings --sharing-method "$1" \
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 \
    --dropout 0.3 --weight-decay 0 --max-update "${UPDATES:-30000}" --keep-last-epochs 10
average "$folder"
BEAM=${BEAM:-4} LENPEN=${LENPEN:-0.6} PIECES=sentencepiece COMPOUNDS=de \
    "$recipes/evaluate.sh" "$WORK/bin" "$folder/average.pt" test "$WORK/text/test.de"
record liu-table1 "$1" "$folder"
