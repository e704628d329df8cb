"""A simulated person who is asked about images of a stage, and answers from their labels."""

from goal.common.arrays import IntArray
from goal.common.errors import GoalError


class SimulatedPerson:
    """Answers so many questions about a stage's images, and not one more.

    Attributes:
        asked: Positions that were asked about, in order.
    """

    def __init__(self, labels: IntArray, questions: int) -> None:
        """Take the classes of the stage's images, as positions in the class order."""
        self._labels = labels
        self._questions = questions
        self.asked: list[int] = []

    @property
    def left(self) -> int:
        """Questions that may still be asked."""
        return self._questions - len(self.asked)

    def says(self, position: int) -> int:
        """The class of the image at a position in the stage."""
        if self.left < 1:
            raise GoalError(f"The person has answered all of {self._questions} questions.")
        self.asked.append(position)
        return int(self._labels[position])
