# The public names, for type checkers and for `__init__.py`, which imports them on first use.

from . import analysis as analysis
from . import checkpoints as checkpoints
from . import compat as compat
from . import criterions as criterions
from . import embedding as embedding
from . import losses as losses
from . import models as models
from . import modules as modules
from . import ngram as ngram
from . import optim as optim
from . import outputs as outputs
from . import plugin as plugin
from . import products as products
from . import regularizers as regularizers
from . import sharing as sharing
from . import tasks as tasks
from . import training as training
from . import vectors as vectors
from .embedding import SharedEmbedding as SharedEmbedding
from .huggingface import for_transformers as for_transformers
from .losses import LossOptions as LossOptions
from .losses import OutputLoss as OutputLoss
from .losses import output_loss as output_loss
from .outputs import CountedHead as CountedHead
from .outputs import Head as Head
from .outputs import OutputHead as OutputHead
from .outputs import OutputLayer as OutputLayer
from .outputs import register_output_layer as register_output_layer
from .products import fast_products as fast_products
from .regularizers import Regularizer as Regularizer
from .regularizers import register_regularizer as register_regularizer
from .sharing import SharingMethod as SharingMethod
from .sharing import register_sharing_method as register_sharing_method

__version__: str
