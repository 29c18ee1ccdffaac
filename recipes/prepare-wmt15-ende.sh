#!/usr/bin/env bash
# WMT15 English to German: text, 89,500 joint BPE merges, fairseq's binary files.
#
#   recipes/prepare-wmt15-ende.sh                        # from statmt.org; newstest2013 to 2015 through sacrebleu
#   FROM=/path/to/archives recipes/prepare-wmt15-ende.sh # from a folder with de-en.tgz (Europarl v7),
#                                                        # training-parallel-{commoncrawl,nc-v10}.tgz
#   FROM=/path/to/text recipes/prepare-wmt15-ende.sh     # from a folder with {train,valid,test,test1}.{en,de}
#
# Makes      $WORK/text, $WORK/bpe, $WORK/joint (one dictionary, for three-way tying) and $WORK/bin (one of each
#            language), made anew; $WORK/bin appears last, when it is complete. Never run on the whole text
# Hardware   a CPU, hours; 16 GB of memory, 15 GB of disk, 1.2 GB to download
# Expected   some 4.5 million pairs; newstest2013 for validation, newstest2014 and newstest2015 for tests; dictionaries of
#            83,000 and 91,000 types, or of 94,000 together (the paper's table 1)
# Check      fairseq-preprocess prints pairs and types; measure-table1.sh, those that the languages share
#
# Moses' tokenisation (sacremoses), cased, without the truecasing, normalised punctuation and split hyphens of Sennrich
# et al. (2016), on whom the paper builds. Pairs of more than 80 words, or of a ratio above 9, are left out, as there.
#
# FROM    see above. No SHA-256 of the archives is published: the recipe prints those of the archives, and refuses a
#         damaged archive
# WORK    output folder
# JOBS, MERGES: dl4mt.sh. SMOKE, DRY_RUN, RUNS, RESULTS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/dl4mt.sh"

WORK=${WORK:-$RUNS/wmt15-ende$of_work}
made_up wmt-de
FROM=${FROM:-}

need python subword-nmt fairseq-preprocess sha256sum sacrebleu sacremoses
[[ $FROM && $FROM != *://* ]] || need curl
if [[ -f $FROM/train.en ]]; then need_files {train,valid,test,test1}.{en,de}; else need_files de-en.tgz training-parallel-{commoncrawl,nc-v10}.tgz; fi
begin_corpus "$WORK/raw" "$WORK/text" "$WORK/bpe" "$WORK/joint" "$WORK/bin" "$WORK/joint.partial" "$WORK/bin.partial"
run mkdir -p "$WORK/text" "$WORK/bpe"
if [[ -f $FROM/train.en ]]; then
    given_text de train valid test test1
else
    english_german https://www.statmt.org/wmt15/training-parallel-nc-v10.tgz valid=wmt13 test=wmt14/full test1=wmt15
fi
for split in train valid test test1; do
    for language in en de; do
        run mv "$WORK/text/$split.$language" "$WORK/text/$split.raw.$language"
        run_from "$WORK/text/$split.raw.$language" "$WORK/text/$split.$language" \
            sacremoses -q -l "$language" -j "$JOBS" tokenize
    done
done
binarize de train valid test test1
