#!/usr/bin/env bash
# Liu, Zhai & Chen (2020), section 3.2.2, on a small scale: the methods at several widths, on Multi30k. Trains one row and
# scores test_2016_flickr.
#
#   recipes/train-liu-dimensions.sh METHOD D     # rows, hardware, time: tables/liu-dimensions.json
#
# Row        the paper explains by dimension that l2-input is best at 1,024 units and square-output at 512. Here the model of
#            train-liu-small.sh has D units, with inner layers of 4 D
# Corpus     prepare-multi30k.sh
# Expected   seeds of one row differ by more than methods do; tables/liu-dimensions.json says how many it takes to tell
# Check      the last line: BLEU of tokenised text, as multi-bleu.perl gives it
#
# The peak learning rate falls with the square root of D, as that of Vaswani et al. (2017) does: 2e-3 at 128. At D = 128 the
# commands are those of train-liu-small.sh.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row "METHOD D" "$@"
case $2 in
    64) rate=2.83e-3 ;;
    128) rate=2e-3 ;;
    256) rate=1.41e-3 ;;
    512) rate=1e-3 ;;
esac
WORK=${WORK:-$RUNS/multi30k$of_work}
folder=$WORK/transformer-$1-$2-$SEED$training_variant
UPDATES=${UPDATES:-2500}

prepared prepare-multi30k.sh
train_small "$folder" "$2" "$rate" --arch tied_transformer --sharing-method "$1"
"$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$WORK/text/test_2016_flickr.en"
record liu-dimensions "$1-$2" "$folder"
