"""What training leaves behind, read safely by fairseq's commands and by ours, and without fairseq.

files          a checkpoint, and nothing but a checkpoint: with `stand_ins` and `settings`
reading        the model in it, its settings, finite weights        averages     the mean of several
meaning        options by which the same numbers mean another model  table_names  which entries are tables
dictionaries   whether the words of a dictionary are those of the training
text           lines of a text in UTF-8, the words and counts of a dict.txt, JSON of any origin
word_vectors   what word2vec and GloVe write
"""
