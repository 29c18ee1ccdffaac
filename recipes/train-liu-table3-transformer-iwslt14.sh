#!/usr/bin/env bash
# Liu, Zhai & Chen (2020), table 3: Transformer on IWSLT 2014 to English. Trains one row and scores the test set.
#
#   recipes/train-liu-table3-transformer-iwslt14.sh LANGUAGE METHOD    # rows, the paper's BLEU: tables/liu-table3.json
#
# Corpus     prepare-iwslt14.sh
# Expected   the paper's BLEU, one seed each: a few tenths are noise. Never run at full size
# Check      the last line: BLEU of tokenised lower-case text, as multi-bleu.perl gives it
#
# German shares all three embeddings, Spanish and Romanian the decoder's two. The paper trains "almost" as on WMT, with
# weight decay 1e-4; its batches of 458K tokens would be a tenth of this corpus, so batch, learning rate and dropout are
# those of fairseq's recipe for IWSLT. That has no end: 50,000 updates are those of its recipe for DynamicConv. The best
# checkpoint on valid, no average, beam 5, length penalty 1.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row "LANGUAGE METHOD" "$@"
share=--share-decoder-input-output-embed
[[ $1 != de ]] || share=--share-all-embeddings
WORK=${WORK:-$RUNS/iwslt14-$1$of_work}
folder=$WORK/transformer-$2-$SEED$training_variant

prepared prepare-iwslt14.sh "$1"
train "$folder" 1 4096 --arch tied_transformer_iwslt_de_en "$share" --sharing-method "$2" \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 \
    --dropout 0.3 --weight-decay 1e-4 --max-update "${UPDATES:-50000}" --no-epoch-checkpoints
BEAM=${BEAM:-5} LENPEN=${LENPEN:-1} "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$WORK/text/test.en"
record liu-table3 "$1-$2" "$folder"
