"""The front door: plan how any JAX model changes with its width, in one call."""

from widthwise.planning.plan import Plan as Plan
from widthwise.planning.plan import plan as plan
from widthwise.planning.stored import Stored as Stored
