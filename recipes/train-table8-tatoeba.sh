#!/usr/bin/env bash
# Press & Wolf (2016), table 8, on a small scale: attention translation with GRU cells on Tatoeba. Trains one row and scores
# validation and test set.
#
#   recipes/train-table8-tatoeba.sh PAIR ROW     # rows, hardware, time: tables/table8-tatoeba.json
#
# Row        does the paper's pattern hold: is three-way tying as good as the baseline at fewer parameters?
# Corpus     prepare-tatoeba.sh
# Expected   measured: RESULTS.md. Seeds differ: take three
# Check      the last line; the one before it is of the validation set
#
# DL4MT's shape at half and a quarter of its sizes: embeddings and deep output 256, hidden 256. Its Adadelta needs more
# updates than this has (train-multi30k.sh), so that optimiser and initial weights are those of the LSTM rows there. With
# narrower ones the model knew nothing but the words' frequencies (8.3 bits a word; their entropy is 8.2) after 1,900 updates
# at 64 and after 350 at 128, where at 256 it had 5.1 bits after 400.
#
# SEED, UPDATES (6000), MAX_TOKENS, LR, DROPOUT (0.1), EMBED, HIDDEN: nmt.sh
# SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/nmt.sh"

need_row "PAIR ROW" "$@"
source=${1%-en} preset=lstm_nmt
[[ $2 == untied ]] || preset+=_$2
WORK=${WORK:-$RUNS/tatoeba-$source$of_work}
: "${UPDATES:=6000}" "${DROPOUT:=0.1}"
PRECISION=${PRECISION:-float32} # so small a model does not fill a GPU
folder=$WORK/gru-$2-$SEED$training_variant

need fairseq-train python
prepared prepare-tatoeba.sh "$source"
train_small_nmt "$folder" "$source" --arch "$preset" --cell gru --encoder-layers 1 --decoder-layers 1 \
    --criterion tied_cross_entropy --optimizer adam --lr "${LR:-3e-3}"
for split in valid test; do
    "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" "$split" "$WORK/text/$split.en"
done
record table8-tatoeba "$1,$2" "$folder"
