#!/usr/bin/env bash
# A language model of at most 5 million parameters on Penn Treebank, as good as it gets without dynamic evaluation. Trains
# one row, chooses between its weights and their moving average on the validation set, and scores the chosen ones.
#
#   recipes/train-small-record.sh ROW            # rows, published figures, hardware, time: tables/small-record.json
#   recipes/train-small-record.sh INGREDIENTS    # awd-dropout with one ingredient less or more: tables/ingredients.json
#   WEIGHT_DECAY=6e-5 PRECISION=bf16 recipes/train-small-record.sh awd-dropout    # the lowest perplexity
#
# Corpus     prepare-ptb.sh
# Expected   tied rows below Inan et al.'s (2017) 85.1 with tying alone, untied below their 87.3; measured: RESULTS.md
# Check      the last two lines: "Evaluated 82,430 tokens" and the perplexity, of the test set, which is read once a row
#
# Rows of ingredients train for 16 epochs in bfloat16, and are scored on the validation set alone: "Evaluated 73,760 tokens".
# Those without tying, or with a mixture, have more than 5 million parameters.
#
# The presets bring the whole recipe: 2 x 200 units, variational dropout (Gal & Ghahramani 2016), unroll 35, rate 1 and after
# 11 epochs less by 1.15 with each. The rates of dropout, those of Gal's large model divided by three or so, were not tuned:
# do it on the validation set, with SPLITS=valid, which leaves the test set alone.
#
# WORDS, INPUTS, STATES, OUTPUTS   rates of dropout; the presets have 0.1, 0.2, 0.1, 0.2
# DECAY                            of the moving average: 0.999; rows awd* and of ingredients 0.9995
# WEIGHT_DECAY                     0; rows awd* and of ingredients 3e-5
# EPOCHS, ANNEAL                   how many, and the first of them at a lower rate; the presets have 40 and 12, rows awd* 40
#                                  and 21, those of ingredients 16 and 9
# SEED, SPLITS: language-model.sh, of valid and test. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
asked=${SPLITS:-} default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
table='small-record'
case $1 in
    untied) options=(--arch gal_lm_small) ;;
    wt) options=(--arch gal_lm_small_wt) ;;
    wt-pr) options=(--arch gal_lm_small_wt --projection --projection-bias --projection-regularization 0.15) ;;
    wt-pr-no-bias) options=(--arch gal_lm_small_wt --projection --projection-regularization 0.15) ;;
    *) # Merity et al.'s (2018) ingredients at this size
        arch=gal_lm_small_wt
        [[ $1 != without-tying ]] || arch=gal_lm_small
        options=(--arch "$arch" --decoder-embed-dim 256 --decoder-hidden-size 390 --init-range 0.05
            --clip-norm 7 --weight-decay 3e-5 --activation-regularization 1 --temporal-activation-regularization 0.5)
        [[ $1 == without-projection ]] || options+=(--projection)
        [[ $1 == without-random-length ]] || options+=(--random-length)
        if [[ $1 == awd ]]; then
            options+=(--dropout-words 0.05 --dropout-inputs 0.2 --dropout-states 0 --dropout-outputs 0.3 --weight-dropout 0.2)
        else
            options+=(--dropout-words 0.08 --dropout-inputs 0.3 --dropout-states 0.1 --dropout-outputs 0.4 --weight-dropout 0.35)
        fi
        DECAY=${DECAY:-0.9995}
        if [[ $1 == awd* ]]; then
            EPOCHS=${EPOCHS:-40} ANNEAL=${ANNEAL:-21}
        else
            [[ ${asked:-valid} == valid ]] ||
                stop "SPLITS: needs valid with the row of an ingredient; got $asked. The test set is read once, by the best."
            table='ingredients' PRECISION=${PRECISION:-bf16} EPOCHS=${EPOCHS:-16} ANNEAL=${ANNEAL:-9} SPLITS=valid
        fi
        ;;
esac
case $1 in
    without-projection) options+=(--decoder-embed-dim 322 --decoder-hidden-size 322) ;; # nearly as many parameters
    without-weight-dropout) options+=(--weight-dropout 0) ;;
    without-state-dropout) options+=(--dropout-states 0) ;;
    without-activation-regularization) options+=(--activation-regularization 0 --temporal-activation-regularization 0) ;;
    without-weight-decay) options+=(--weight-decay 0) ;;
    with-augmented-loss) options+=(--augmented-loss 10 --augmented-temperature 20) ;;
    with-projection-regularization) options+=(--projection-regularization 0.15) ;;
    with-cosine-regularization) options+=(--cosine-regularization 1) ;;
    with-scaled-cosine) options+=(--sharing-method scaled-cosine) ;;
    with-mixture) options+=(--output-layer mixture --clip-norm 2) ;; # with 7 it diverges in the first 100 updates
esac
case $SPLITS in
    valid | 'valid test') ;;
    *) stop "SPLITS: needs valid, or valid and test; got $SPLITS. The validation set chooses the weights." ;;
esac
for place in WORDS INPUTS STATES OUTPUTS; do
    [[ -z ${!place:-} ]] || options+=("--dropout-${place,,}" "${!place}")
done
options+=(${WEIGHT_DECAY:+--weight-decay "$WEIGHT_DECAY"})
options+=(${EPOCHS:+--max-epoch "$EPOCHS"} ${ANNEAL:+--force-anneal "$ANNEAL"})
WORK=${WORK:-$RUNS/ptb$of_work}
folder=$WORK/record-$1-$SEED$training_variant
if [[ $SMOKE ]]; then
    : "${DECAY:=0.5}" # of a few updates
fi
splits=$SPLITS SPLITS=''

train_and_score prepare-ptb.sh "$folder" last "${options[@]}" --store-ema --ema-fp32 --ema-decay "${DECAY:-0.999}"
run python "$recipes/ema.py" "$folder/checkpoint_last.pt" "$folder/checkpoint_ema.pt"

# perplexity LOG
perplexity() {
    sed -n 's/.*Perplexity: \([0-9.]*\).*/\1/p' "$1"
}

for weights in best ema; do
    score "$folder/checkpoint_$weights.pt" valid "$folder/$weights.log"
done
chosen=ema
if [[ -z $DRY_RUN ]]; then
    python -c 'import sys; sys.exit(float(sys.argv[1]) > float(sys.argv[2]))' \
        "$(perplexity "$folder/ema.log")" "$(perplexity "$folder/best.log")" || chosen=best
fi
run cp "$folder/$chosen.log" "$folder/score-valid.log"
run tail -n 2 "$folder/score-valid.log"
if [[ $splits == *test ]]; then
    score "$folder/checkpoint_$chosen.pt" test "$folder/score-test.log"
    run tail -n 2 "$folder/score-test.log"
fi
if [[ $splits == *test || $table == ingredients ]]; then
    record "$table" "$1" "$folder" --note "scored weights: checkpoint_$chosen.pt"
fi
