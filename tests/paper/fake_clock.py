"""A clock whose times are set by the test."""

from lresnet_paper.bench.timing import Task


class FakeClock:
    """Returns :attr:`spent` for every task; a task may set it while it runs."""

    name = "fake"

    def __init__(self) -> None:
        self.spent = 1.0

    def seconds(self, task: Task) -> float:
        task()
        return self.spent
