"""Parameterize any model: find the roles of its parameters, and the scalars that exponents prescribe for them."""

from widthwise.parameterize.axes import Convention as Convention
from widthwise.parameterize.axes import equinox as equinox
from widthwise.parameterize.axes import flax as flax
from widthwise.parameterize.explain import Explanation as Explanation
from widthwise.parameterize.explain import explain as explain
from widthwise.parameterize.prescription import Constants as Constants
from widthwise.parameterize.prescription import Prescription as Prescription
from widthwise.parameterize.prescription import prescribe as prescribe
from widthwise.parameterize.prescription import prescribe_layout as prescribe_layout
from widthwise.parameterize.roles import Layout as Layout
from widthwise.parameterize.roles import Leaf as Leaf
from widthwise.parameterize.roles import find_roles as find_roles
from widthwise.parameterize.scales import Scales as Scales
from widthwise.parameterize.scales import ones_like as ones_like
from widthwise.parameterize.scales import stack as stack
from widthwise.scaling import UNSCALED as UNSCALED
from widthwise.scaling import Axes as Axes
from widthwise.scaling import Rule as Rule
from widthwise.trace.paths import PyTree as PyTree
