"""Who holds a lease: told apart by name, and known to be dead as soon as that can be known.

A process id means something only where it was given: on the same machine, since the same boot, in the same namespace of
processes. A container that shares its host's name must not take the work of a live process for a dead one's.
"""

import os
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path


def _place() -> str:
    """Name where process ids of this process mean what they say."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux: the name has to do
        pass
    return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process with a study open.

    Attributes:
        name: Different for every opening of a study.
        place: Where its process id means something.
        pid: Its process id.
    """

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    place: str = field(default_factory=_place)
    pid: int = field(default_factory=os.getpid)

    @property
    def known_dead(self) -> bool:
        """Whether its process is gone for certain; elsewhere, and where one cannot tell, it counts as alive."""
        if os.name != "posix" or self.place != _place():  # elsewhere than on POSIX, os.kill kills
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state == "Z"  # killed, and its parent has not asked yet
