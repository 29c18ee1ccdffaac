#!/usr/bin/env bash
# Liu, Zhai & Chen (2020), table 4: DynamicConv on IWSLT 2014 German to English. Trains one row and scores the test set.
#
#   recipes/train-liu-table4-dynamicconv-iwslt14.sh METHOD  # rows, the paper's BLEU, hardware: tables/liu-table4.json
#
# Corpus     prepare-iwslt14.sh
# Expected   the paper's BLEU, one seed each: a few tenths are noise. Never run at full size
# Check      the last line: BLEU of tokenised lower-case text, as multi-bleu.perl gives it
#
# fairseq's recipe for DynamicConv on IWSLT (Wu et al. 2019), which shares nothing; here all three embeddings are one. The
# paper averages checkpoints on WMT only: the best one on valid, beam 4, length penalty 1.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row METHOD "$@"
WORK=${WORK:-$RUNS/iwslt14-de$of_work}
folder=$WORK/dynamicconv-$1-$SEED$training_variant

prepared prepare-iwslt14.sh de
train "$folder" 1 4000 --arch tied_lightconv_iwslt_de_en --share-all-embeddings --sharing-method "$1" \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 --stop-min-lr 1e-9 \
    --dropout 0.3 --attention-dropout 0.1 --weight-dropout 0.1 --encoder-glu 0 --decoder-glu 0 --weight-decay 1e-4 \
    --max-update "${UPDATES:-50000}" --no-epoch-checkpoints
BEAM=${BEAM:-4} LENPEN=${LENPEN:-1} "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$WORK/text/test.en"
record liu-table4 "$1" "$folder"
