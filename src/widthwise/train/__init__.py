"""The training engine: programs and lanes, the loop, checkpoints."""

from widthwise.train.checkpoints import Checkpoints as Checkpoints
from widthwise.train.inputs import Inputs as Inputs
from widthwise.train.inputs import load_inputs as load_inputs
from widthwise.train.inputs import vocabulary_of as vocabulary_of
from widthwise.train.lanes import Lanes as Lanes
from widthwise.train.loop import Point as Point
from widthwise.train.loop import Progress as Progress
from widthwise.train.loop import Result as Result
from widthwise.train.loop import train as train
from widthwise.train.program import Lane as Lane
from widthwise.train.program import Program as Program
from widthwise.train.program import State as State
from widthwise.train.sharding import make_mesh as make_mesh
from widthwise.train.spec import Run as Run
from widthwise.train.spec import Spec as Spec
from widthwise.train.spec import resolve as resolve
from widthwise.train.subject import subject_of as subject_of
