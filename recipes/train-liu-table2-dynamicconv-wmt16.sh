#!/usr/bin/env bash
# Liu, Zhai & Chen (2020), table 2: DynamicConv on WMT16 English to German. Trains one row and scores newstest2014.
#
#   recipes/train-liu-table2-dynamicconv-wmt16.sh METHOD    # rows, the paper's BLEU, hardware: tables/liu-table2.json
#
# Corpus     prepare-wmt16-ende.sh
# Expected   the paper's BLEU, one seed each: a few tenths are noise. Never run at full size
# Check      the last line: BLEU of tokenised text with compounds split, as multi-bleu.perl gives it
#
# fairseq's recipe for DynamicConv (Wu et al. 2019), 30,000 updates of 458,752 tokens with a cosine schedule; the last 10
# checkpoints averaged, beam 5, length penalty 0.5, as in the paper.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row METHOD "$@"
WORK=${WORK:-$RUNS/wmt16-ende$of_work}
folder=$WORK/dynamicconv-$1-$SEED$training_variant

prepared prepare-wmt16-ende.sh
train "$folder" 128 3584 --arch tied_lightconv_wmt_en_de_big --share-all-embeddings --sharing-method "$1" \
    --lr 0.001 --lr-scheduler cosine --warmup-updates 10000 --warmup-init-lr 1e-7 --min-lr 1e-7 \
    --lr-period-updates 20000 --t-mult 1 --lr-shrink 1 --encoder-glu 1 --decoder-glu 1 \
    --dropout 0.3 --attention-dropout 0.1 --weight-dropout 0.1 --weight-decay 0 \
    --max-update "${UPDATES:-30000}" --keep-last-epochs 10
average "$folder"
BEAM=${BEAM:-5} LENPEN=${LENPEN:-0.5} PIECES=sentencepiece COMPOUNDS=de \
    "$recipes/evaluate.sh" "$WORK/bin" "$folder/average.pt" test "$WORK/text/test.de"
record liu-table2 "$1" "$folder"
