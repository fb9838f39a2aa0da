"""The exact theory of width exponents: no JAX, no NumPy, no floating point.

>>> from widthwise.theory import ADAM, FULL, STANDARD, solve
>>> [str(-c) for c in solve(STANDARD, ADAM, FULL).rates]  # exponents of n: embedding, hidden, readout
['0', '-1', '-1']
"""

from widthwise.theory.alignment import ALIGNMENTS as ALIGNMENTS
from widthwise.theory.alignment import FULL as FULL
from widthwise.theory.alignment import NONE as NONE
from widthwise.theory.alignment import TENSOR_PROGRAMS as TENSOR_PROGRAMS
from widthwise.theory.alignment import Alignment as Alignment
from widthwise.theory.alignment import LayerAlignment as LayerAlignment
from widthwise.theory.checker import Assessment as Assessment
from widthwise.theory.checker import Gradients as Gradients
from widthwise.theory.checker import Verdict as Verdict
from widthwise.theory.checker import check as check
from widthwise.theory.constraints import Bound as Bound
from widthwise.theory.constraints import Constraint as Constraint
from widthwise.theory.decay import ALIGNED_UPDATES as ALIGNED_UPDATES
from widthwise.theory.decay import COUPLED as COUPLED
from widthwise.theory.decay import DECAY_RULES as DECAY_RULES
from widthwise.theory.decay import INDEPENDENT as INDEPENDENT
from widthwise.theory.decay import INDEPENDENT_UPDATES as INDEPENDENT_UPDATES
from widthwise.theory.decay import INVERSE as INVERSE
from widthwise.theory.decay import SQRT as SQRT
from widthwise.theory.decay import DecayRule as DecayRule
from widthwise.theory.decay import Equilibrium as Equilibrium
from widthwise.theory.decay import equilibria as equilibria
from widthwise.theory.decay import read_decay_rule as read_decay_rule
from widthwise.theory.directions import DIRECTIONS as DIRECTIONS
from widthwise.theory.directions import Direction as Direction
from widthwise.theory.equivalence import Comparison as Comparison
from widthwise.theory.equivalence import EquivalenceClass as EquivalenceClass
from widthwise.theory.equivalence import compare as compare
from widthwise.theory.equivalence import move as move
from widthwise.theory.exact import Exact as Exact
from widthwise.theory.exact import exact as exact
from widthwise.theory.exact import power_of_n as power_of_n
from widthwise.theory.export import decay_to_json as decay_to_json
from widthwise.theory.export import to_json as to_json
from widthwise.theory.families import ADAFACTOR as ADAFACTOR
from widthwise.theory.families import ADAM as ADAM
from widthwise.theory.families import ALL_FAMILIES as ALL_FAMILIES
from widthwise.theory.families import FAMILIES as FAMILIES
from widthwise.theory.families import MUON as MUON
from widthwise.theory.families import MUON_FACTORS as MUON_FACTORS
from widthwise.theory.families import MUON_MAX as MUON_MAX
from widthwise.theory.families import MUON_OUT_IN as MUON_OUT_IN
from widthwise.theory.families import SGD as SGD
from widthwise.theory.families import Family as Family
from widthwise.theory.families import MixedFamily as MixedFamily
from widthwise.theory.families import OptimizerFamily as OptimizerFamily
from widthwise.theory.families import orthogonalized as orthogonalized
from widthwise.theory.families import with_adam as with_adam
from widthwise.theory.limits import limits as limits
from widthwise.theory.parameterization import MEAN_FIELD as MEAN_FIELD
from widthwise.theory.parameterization import MUP as MUP
from widthwise.theory.parameterization import NTK as NTK
from widthwise.theory.parameterization import PARAMETERIZATIONS as PARAMETERIZATIONS
from widthwise.theory.parameterization import STANDARD as STANDARD
from widthwise.theory.parameterization import Layer as Layer
from widthwise.theory.parameterization import Parameterization as Parameterization
from widthwise.theory.parameterization import Role as Role
from widthwise.theory.rates import RATE_RULES as RATE_RULES
from widthwise.theory.rates import Aligned as Aligned
from widthwise.theory.rates import Global as Global
from widthwise.theory.rates import Own as Own
from widthwise.theory.rates import RateRule as RateRule
from widthwise.theory.rates import read_rates as read_rates
from widthwise.theory.solver import solve as solve
from widthwise.theory.solver import solve_by_role as solve_by_role
from widthwise.theory.stored import move_case as move_case
from widthwise.theory.stored import without_multipliers as without_multipliers
