"""What sweep and tune show of their driver, and what they say when it ends."""

from widthwise.sweep.standing import Standing

FAILED = 1
INTERRUPTED = 130
STOPPED = "interrupted and saved: the same command goes on from here"


def line_for(standing: Standing) -> str:
    """Say where a driver stands, in a line."""
    parts = [f"{standing.done} of {standing.wanted} runs wanted so far", f"{standing.running} running"]
    if standing.elsewhere:
        parts.append(f"waiting for {standing.elsewhere} that another command computes")
    if standing.diverged:
        parts.append(f"{standing.diverged} diverged")
    if standing.best[1]:
        parts.append(f"best {standing.best[0]:.4f} at width {standing.best[1]}")
    if standing.running and standing.seconds_left is not None:
        parts.append(f"{duration(standing.seconds_left)} left for these")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> duration(3.4), duration(75), duration(7260), duration(200_000)
    ('3 s', '1:15 min', '2:01 h', '2.3 days')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}:{int(seconds % 60):02} min"
    hours = minutes // 60
    return f"{hours}:{minutes % 60:02} h" if hours < 48 else f"{hours / 24:.1f} days"
