"""Executors compute packs of runs: in this process, in several on this machine, or on a Ray cluster."""

from widthwise.sweep.executors.contract import Completion as Completion
from widthwise.sweep.executors.contract import Done as Done
from widthwise.sweep.executors.contract import Executor as Executor
from widthwise.sweep.executors.contract import Failed as Failed
from widthwise.sweep.executors.contract import Tell as Tell
from widthwise.sweep.executors.contract import Work as Work
from widthwise.sweep.executors.inline import Inline as Inline
from widthwise.sweep.executors.processes import Processes as Processes
from widthwise.sweep.executors.ray_cluster import RayCluster as RayCluster
