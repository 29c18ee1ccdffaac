#!/usr/bin/env bash
# The Large Movie Review Dataset (Maas et al. 2011), the second corpus of Press & Wolf's table 7: text, and fairseq's
# binary files.
#
#   recipes/prepare-imdb-lm.sh                                # from its publisher
#   FROM=/path/to/aclImdb.tar.xz recipes/prepare-imdb-lm.sh   # from a local copy
#
# Makes      $WORK/text and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 2 minutes, 200 MB of disk, 84 MB to download
# Expected   7035223 / 265847 / 286397 tokens in train / valid / test, with one <eos> a line; 9998 lines in dict.txt.
#            With REVIEWS=6250 there are 1783104 in train
# Check      the recipe checks these counts, and the archive's SHA-1, which many projects give
#
# The paper splits the archive itself, and uses the vocabulary of Miyamoto & Cho (2016); neither is published.
# imdb_lm_text.py documents our choices: training on the labelled reviews of train, validation and test on 1000 reviews
# each of test. Perplexities are comparable with one another, not with the paper's.
#
# FROM     the archive, or its address; SHA256: of another archive; SECOND: another address, for where FROM fails
# REVIEWS  how many of the 25000 reviews to train on, for corpora that one CPU core trains sooner; the default is all
# COUNTS   tokens of train, valid and test, and lines of dict.txt, for another archive or another REVIEWS; none where it
#          is empty
# WORK     output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

REVIEWS=${REVIEWS:-}
[[ $REVIEWS =~ ^([1-9][0-9]*)?$ ]] || stop "REVIEWS: needs a positive number; got $REVIEWS. Use 6250, or nothing for all."
WORK=${WORK:-$RUNS/imdb-lm${REVIEWS:+-$REVIEWS}$of_work}
made_up imdb aclImdb.tar.gz
SECOND=${SECOND:-${FROM:-http://d2l-data.s3-accelerate.amazonaws.com/aclImdb_v1.tar.gz}}
FROM=${FROM:-https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz}
[[ $FROM != */aclImdb_v1.tar.gz ]] || SHA256=${SHA256-01ada507287d82875905620988597833ad4e0903}
case $REVIEWS in
    '') known='7035223 265847 286397 9998' ;;
    6250) known='1783104 265847 286397 9998' ;;
    *) known='' ;;
esac
COUNTS=${COUNTS-$known}

reviews=${REVIEWS:-${SMOKE:+40}}

need python fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl
read -ra counts <<<"$COUNTS"
((${#counts[@]} % 4 == 0)) || stop "COUNTS: needs tokens of train, valid and test, and types; got $COUNTS."

fetch "$FROM" "$RUNS/download" "${SHA256:-}" "$SECOND"
begin_corpus "$WORK/all" "$WORK/text" "$WORK/bin"
run mkdir -p "$WORK/all" "$WORK/text"
run python "$recipes/imdb_lm_text.py" "$fetched" "$WORK/all" \
    ${reviews:+--reviews "$reviews"} ${SMOKE:+--held-out 10}
for split in train valid test; do
    text_of "$split" "$WORK/all/$split.txt"
done
run rm -rf "$WORK/all"
binarize "${counts[@]}"
