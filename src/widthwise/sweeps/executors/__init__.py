"""Executors compute packs of runs: in this process, in several on this machine, or on a Ray cluster."""

from widthwise.sweeps.executors.contract import Completion as Completion
from widthwise.sweeps.executors.contract import Done as Done
from widthwise.sweeps.executors.contract import Executor as Executor
from widthwise.sweeps.executors.contract import Failed as Failed
from widthwise.sweeps.executors.contract import Tell as Tell
from widthwise.sweeps.executors.contract import Work as Work
from widthwise.sweeps.executors.inline import Inline as Inline
from widthwise.sweeps.executors.processes import Processes as Processes
from widthwise.sweeps.executors.ray_cluster import RayCluster as RayCluster
