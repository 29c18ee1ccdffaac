#!/usr/bin/env bash
# WMT14 English to French as Cho et al. (2014) selected it: text, 89,500 joint BPE merges, fairseq's binary files.
#
#   recipes/prepare-wmt14-enfr.sh                        # from its publisher, H. Schwenk
#   FROM=/path/to/archives recipes/prepare-wmt14-enfr.sh # from a folder with bitexts.tgz and dev+test.tgz
#   FROM=/path/to/text recipes/prepare-wmt14-enfr.sh     # from a folder with {train,valid,test}.{en,fr}, tokenised
#
# Makes      $WORK/text, $WORK/bpe, $WORK/joint (one dictionary, for three-way tying) and $WORK/bin (one of each
#            language), made anew; $WORK/bin appears last, when it is complete. Never run on the whole text
# Hardware   one CPU core, hours; 32 GB of memory, 30 GB of disk
# Expected   some 12 million pairs; newstest2013 for validation, newstest2014 for the test; dictionaries of 87,000 and 92,000
#            types, or of 94,000 together (the paper's table 1)
# Check      fairseq-preprocess prints pairs and types; measure-table1.sh, those that the languages share
#
# The archives are tokenised and cased, and are left so, but for pairs of more than 80 words or of a ratio above 9.
# newstest2013 is the last 3,000 lines of their development set.
#
# FROM    see above. Other mirrors: http://www-lium.univ-lemans.fr/~schwenk/nnmt-shared-task/data. No SHA-256 of the
#         archives is published: the recipe prints those of the archives, and refuses a damaged archive
# WORK    output folder
# LARGEST_TEXT  KiB that the text of a language may fill, by default 10,000,000
# MERGES: dl4mt.sh. SMOKE, DRY_RUN, RUNS, RESULTS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/dl4mt.sh"

WORK=${WORK:-$RUNS/wmt14-enfr$of_work}
made_up wmt-fr
FROM=${FROM:-}
address=http://www-lium.univ-lemans.fr/~schwenk/cslm_joint_paper/data
held_out=3000

need python subword-nmt fairseq-preprocess sha256sum
[[ $FROM && $FROM != *://* ]] || need curl
if [[ -f $FROM/train.en ]]; then need_files {train,valid,test}.{en,fr}; else need_files bitexts.tgz dev+test.tgz; fi
begin_corpus "$WORK/raw" "$WORK/text" "$WORK/bpe" "$WORK/joint" "$WORK/bin" "$WORK/joint.partial" "$WORK/bin.partial"
run mkdir -p "$WORK/text" "$WORK/bpe"
if [[ -f $FROM/train.en ]]; then
    given_text fr train valid test
else
    archive bitexts "$address/bitexts.tgz"
    archive sets "$address/dev+test.tgz"
    for language in en fr; do
        files=()
        for name in ep7_pc45 nc9 dev08_11 crawl ccb2_pc30 un2000_pc34; do
            files+=("$WORK/raw/bitexts/bitexts.selected/$name.$language.gz")
        done
        # In KiB, as many as unpack.py allows an archive: a small file may hold any number of zeros.
        (ulimit -f "${LARGEST_TEXT:-10000000}" && run_to "$WORK/text/train.$language" gzip --decompress --stdout "${files[@]}") ||
            stop "bitexts.tgz: needs at most 10 GB of text for $language; got more, or a damaged file. Use the publisher's archive."
        run_to "$WORK/text/valid.$language" tail -n "$held_out" "$WORK/raw/sets/dev/ntst1213.$language"
        run cp "$WORK/raw/sets/dev/ntst14.$language" "$WORK/text/test.$language"
    done
    run rm -rf "$WORK/raw"
fi
binarize fr train valid test
