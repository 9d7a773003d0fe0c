"""Histories of metrics for tests of alerts: what is scraped every ten seconds, and whether an alert fires at the end."""

from dataclasses import dataclass

STEP_S = 10
HOUR = 3600


@dataclass(frozen=True)
class Case:
    """`series` has for each series its notation for promtool."""

    name: str
    series: dict
    seconds: int
    fires: bool


def steps(seconds):
    return round(seconds / STEP_S)


def level(*phases):
    """A gauge: pairs of seconds and value."""
    return " ".join(f"{value}+0x{steps(seconds) - 1}" for seconds, value in phases)


def counter(*phases):
    """A counter from 0: pairs of seconds and rate."""
    told, value = ["0"], 0.0
    for seconds, rate in phases:
        value += rate * STEP_S
        told.append(f"{value:.6f}+{rate * STEP_S:.6f}x{steps(seconds) - 1}")
        value += rate * STEP_S * (steps(seconds) - 1)
    return " ".join(told)


@dataclass(frozen=True)
class Burn:
    """An alert on a share: the same limit over a short and a long window, and a floor under the rate.

    `series` makes series of phases: seconds, the rate of what is bad, and the rate of the whole. A whole that does not move
    is a gauge, of which only the last value counts.
    """

    limit: float
    floor: float
    series: object
    short: float = 300
    long: float = HOUR
    moves: bool = True

    def cases(self):
        short, long = self.short, self.long
        past = 4 * long
        # What the rest of the long window may have had, so that it is just below the limit with twice the limit now.
        before = (0.9 * long - 2 * short) / (long - short)
        cases = [
            self.of_limit("over the limit for the long window", True, (3 * long, 0), (long, 1.1)),
            self.of_limit("just below the limit", False, (past, 0.9)),
            self.of_limit("just below the limit by now", False, (past, 2), (short * 1.2, 0.9)),
            self.of_limit("just below the limit over the long window", False, (past, before), (short, 2)),
            self.of_limit("only now", False, (past, 0), (long / 6, 2)),
            self.of_limit("no more", False, (past, 2), (short * 1.2, 0)),
            self.of_limit("until a moment ago", True, (past, 4), (short / 2, 0)),
            self.of_floor("over the floor", True, (past, 1.1)),
            self.of_floor("just below the floor", False, (past, 0.9)),
            self.of_floor("below the floor by now", False, (past, 3), (short * 1.1, 0.5)),
            self.of_floor("over the floor until a moment ago", True, (past, 3), (short / 2, 0.1)),
        ]
        whole_moves = [
            self.of_limit("of less than before", True, (past, 1.1, 3), (long, 1.1, 1)),
            self.of_limit("of less now", True, (past, 3.3, 3), (short, 1.1, 1)),
            self.of_limit("of more for a moment", True, (past, 2.4, 1), (short / 2, 2.4, 3)),
            self.of_limit("of less for a while", False, (past, 2, 3), (long / 6, 2, 1)),
        ]
        return cases + (whole_moves if self.moves else [])

    def of_limit(self, name, fires, *phases):
        """Shares in limits, and times as much as is usual; the floor is far below."""
        usual = 40 * self.floor
        told = [(seconds, rate * usual, (*times, 1)[0] * usual / self.limit) for seconds, rate, *times in phases]
        return self.case(name, fires, told)

    def of_floor(self, name, fires, *phases):
        """Rates in floors; the share is always just over the limit."""
        whole = self.floor / (1.15 * self.limit)
        return self.case(name, fires, [(seconds, times * self.floor, times * whole) for seconds, times in phases])

    def case(self, name, fires, phases):
        return Case(name, self.series(phases), sum(seconds for seconds, *_ in phases), fires)


def evenly(names, phases):
    """What is bad, in so many series."""
    return dict.fromkeys(names, counter(*[(seconds, bad / len(names)) for seconds, bad, _ in phases]))


def many(names, phases):
    """Much that is no part of it."""
    return dict.fromkeys(names, counter(*[(seconds, 5000) for seconds, *_ in phases]))


def share(bad, rest, others=()):
    """`bad` and `rest` are the whole."""

    def series(phases):
        left = counter(*[(seconds, max(0.0, whole - part)) for seconds, part, whole in phases])
        return {**evenly(bad, phases), rest: left, **many(others, phases)}

    return series


def beside(bad, whole, others=(), per_minute=False):
    """`whole` is something else: a counter, or a gauge of which `limit` is the share in a minute."""

    def series(phases):
        if per_minute:
            measure = level((sum(seconds for seconds, *_ in phases) + STEP_S, 60 * phases[-1][2]))
        else:
            measure = counter(*[(seconds, all_) for seconds, _, all_ in phases])
        return {**evenly(bad, phases), whole: measure, **many(others, phases)}

    return series


def slower(bucket, count, others=()):
    """Bad is what is in no such bucket."""

    def series(phases):
        within = [(seconds, whole - part) for seconds, part, whole in phases]
        whole = [(seconds, whole) for seconds, _, whole in phases]
        return {bucket: counter(*within), count: counter(*whole), **many(others, phases)}

    return series
