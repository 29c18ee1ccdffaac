#!/usr/bin/env bash
# WMT16 English to German: text, 32,000 joint sentencepiece BPE pieces, fairseq's binary files.
#
#   recipes/prepare-wmt16-ende.sh                              # from statmt.org; newstest2013 and 2014 through sacrebleu
#   FROM=/path/to/archives recipes/prepare-wmt16-ende.sh       # from a folder with de-en.tgz (Europarl v7),
#                                                              # training-parallel-{commoncrawl,nc-v11}.tgz
#   FROM=/path/to/text recipes/prepare-wmt16-ende.sh           # from a folder with {train,valid,test}.{en,de}
#
# Makes      $WORK/text, $WORK/pieces and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, hours; 16 GB of memory to learn the pieces, 10 GB of disk, 1.2 GB to download
# Expected   about 4.5 million pairs to train on, 3,000 (newstest2013) and 3,003 (newstest2014) held out; one dictionary
# Check      fairseq-preprocess prints the pairs and the types
#
# Liu et al. (2020): 4.5 million pairs, newstest2013 for validation, newstest2014 for the test, 32,000 symbols of
# sentencepiece's BPE. The file that Ott et al. (2018) trained on, wmt16_en_de.tar.gz, is gone; this is the text it was made
# from (Europarl v7, Common Crawl, News Commentary v11), without tokenisation, which sentencepiece does not need. Pairs of
# more than 250 pieces or of a ratio above 1.5 are left out, as in fairseq's scripts for WMT; the paper does not say.
#
# FROM    see above. No SHA-256 of the archives is published: the recipe prints those of the archives, and refuses a
#         damaged archive
# WORK    output folder
# MERGES  pieces of sentencepiece; the default is 32000
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

WORK=${WORK:-$RUNS/wmt16-ende$of_work}
made_up wmt-de
FROM=${FROM:-}
pieces=${MERGES:-${SMOKE:+400}} pieces=${pieces:-32000}

need python fairseq-preprocess sha256sum sacrebleu
[[ $FROM ]] || need curl
text=$WORK/text
if [[ -f $FROM/train.en ]]; then need_files {train,valid,test}.{en,de}; else need_files de-en.tgz training-parallel-{commoncrawl,nc-v11}.tgz; fi
begin_corpus "$WORK/raw" "$text" "$WORK/pieces" "$WORK/bin" "$WORK/bin.partial"
run mkdir -p "$text" "$WORK/pieces"

if [[ -f $FROM/train.en ]]; then
    given_text de train valid test
else
    english_german https://data.statmt.org/wmt16/translation-task/training-parallel-nc-v11.tgz valid=wmt13 test=wmt14/full
fi

run python "$recipes/pieces.py" learn "$WORK/pieces/model" "$pieces" "$text/train.en" "$text/train.de"
for language in en de; do
    for split in valid test; do
        run python "$recipes/pieces.py" cut "$WORK/pieces/model" "$text/$split.$language" "$WORK/pieces/$split.$language"
    done
    run python "$recipes/pieces.py" cut "$WORK/pieces/model" "$text/train.$language" "$WORK/pieces/train.all.$language"
done
run python "$recipes/clean_pairs.py" "$WORK/pieces/train.all" "$WORK/pieces/train" en de --longest 250 --ratio 1.5
run fairseq-preprocess --source-lang en --target-lang de --joined-dictionary \
    --trainpref "$WORK/pieces/train" --validpref "$WORK/pieces/valid" --testpref "$WORK/pieces/test" \
    --destdir "$WORK/bin.partial"
run mv "$WORK/bin.partial" "$WORK/bin"
