"""Limits for checkpoints: sizes, counts and depths of nesting. fairseq's own checkpoints stay far below."""

# Of all tensors of a file together: how many bytes for a byte of it, and how many for nothing. Tied weights are stored
# once, and so are those of all layers of some models.
TENSOR_BYTES, FEW_TENSOR_BYTES = 32, 2**27
REPEATED_NUMBERS = 2**24  # of a tensor that says its storage's numbers several times, as `expand` does
DIMENSION = 2**48  # torch multiplies them
TENSOR_DIMENSIONS, ARRAY_DIMENSIONS = 64, 32  # numpy 1 has no more

# Of the entries that a pickle's calls are given: how many bytes for a byte of the pickle, and how many for nothing.
GIVEN_BYTES, FEW_GIVEN_BYTES = 8, 2**24
KEY = 2**63  # Python's numbers of more digits can have the same hash, all of them
TUPLES = 10_000  # that are keys, for the same reason
DEPTH = 100  # of entries

SETTINGS = 100_000  # a checkpoint of fairseq's has about 1,000
SETTINGS_DEPTH = 50
SETTINGS_TEXT = 1_000_000  # characters of all
