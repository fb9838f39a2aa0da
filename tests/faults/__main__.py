"""The cases of the fault campaign: two hundred kills, and damage and full disks besides."""

import sys

from tests.faults import damage
from tests.faults.campaign import main
from tests.faults.disk import FullDisk
from tests.faults.hosts import Pairs
from tests.faults.kills import Killed
from tests.faults.nodes import Nodes
from tests.faults.subjects import InStudy, Train

SWEEP = ("sweep", "--steps", "100", "--widths", "16", "32", "--settings", "global", "--grid", "0.0039", "0.011")
TUNE = ("tune", "--steps", "100", "--trials", "4", "--at-a-time", "2", "--extensions", "0")
EXPERIMENT = ("experiment", "transfer", "--scale", "smoke", "--parameterizations", "mup", "--settings", "global")

CASES = [
    Killed("train", Train(), 80),
    Killed("sweep", InStudy(*SWEEP, "--processes", "2"), 40, workers=True),
    Killed("tune", InStudy(*TUNE), 40),
    Killed("experiment", InStudy(*EXPERIMENT, spec=False), 20),
    Pairs(12),
    Nodes(SWEEP, 8),
    *damage.CASES,
    FullDisk("full disk, train", Train(), 10, room=600_000),
    FullDisk("full disk, sweep", InStudy(*SWEEP), 10, room=300_000),
]

if __name__ == "__main__":
    sys.exit(main(CASES))
