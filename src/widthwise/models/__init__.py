"""The paper's transformer and the theory's MLP. Each declares the roles of its own parameters."""

from widthwise.models.depth import deepen as deepen
from widthwise.models.mlp import MLP as MLP
from widthwise.models.model import Model as Model
from widthwise.models.model import draw as draw
from widthwise.models.model import layout as layout
from widthwise.models.model import prescribe as prescribe
from widthwise.models.sizes import ParameterCount as ParameterCount
from widthwise.models.sizes import compute_optimal_steps as compute_optimal_steps
from widthwise.models.sizes import count_parameters as count_parameters
from widthwise.models.transformer import Transformer as Transformer
