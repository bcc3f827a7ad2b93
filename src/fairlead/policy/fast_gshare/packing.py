"""Rectangles packed into one rectangle: all free places are kept as the largest rectangles that are free.

The *maximal rectangles* method (J. Jylänki, A Thousand Ways to Pack the Bin, 2010). Numbers are whole, so that what is
freed is exactly what was taken. Nothing is turned: the two sides are different things, a quota of time and a share of
space.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rectangle:
    """A place: its lower left corner and its two sides."""

    x: int
    y: int
    width: int
    height: int

    @property
    def area(self) -> int:
        """What it covers."""
        return self.width * self.height

    def covers(self, other: "Rectangle") -> bool:
        """Whether the other lies within it."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def meets(self, other: "Rectangle") -> bool:
        """Whether the two have more than an edge in common."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def without(self, other: "Rectangle") -> list["Rectangle"]:
        """The largest rectangles that are left of it beside one that meets it: at most four, which may overlap."""
        right, top = self.x + self.width, self.y + self.height
        left = [
            Rectangle(self.x, self.y, other.x - self.x, self.height),
            Rectangle(other.x + other.width, self.y, right - other.x - other.width, self.height),
            Rectangle(self.x, self.y, self.width, other.y - self.y),
            Rectangle(self.x, other.y + other.height, self.width, top - other.y - other.height),
        ]
        return [each for each in left if each.width > 0 and each.height > 0]


class Packing:
    """One rectangle and what lies in it. `free` are the largest free rectangles; they overlap."""

    def __init__(self, width: int, height: int) -> None:
        self._whole = Rectangle(0, 0, width, height)
        self.free: list[Rectangle] = [self._whole]
        self.taken: list[Rectangle] = []

    def best(self, width: int, height: int) -> Rectangle | None:
        """The free rectangle that leaves the least area beside these sides (best area fit); None if none is enough.

        Among equals the one that is tightest in one direction, then the lowest and leftmost.
        """
        fitting = [each for each in self.free if each.width >= width and each.height >= height]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(
            fitting,
            key=lambda each: (each.area, min(each.width - width, each.height - height), each.y, each.x),
        )

    def take(self, width: int, height: int) -> Rectangle:
        """Put a rectangle of these sides into the corner of the best place."""
        place = self.best(width, height)
        if place is None:
            raise ValueError(f"there is no free place of {width} x {height}.")
        taken = Rectangle(place.x, place.y, width, height)
        self.taken.append(taken)
        self._cut(taken)
        return taken

    def give_back(self, taken: Rectangle) -> None:
        """Free a place. The free rectangles are found anew, as the place may join several of them."""
        self.taken.remove(taken)
        self.free = [self._whole]
        for each in self.taken:
            self._cut(each)

    def _cut(self, taken: Rectangle) -> None:
        """Take a place out of the free rectangles, and drop those that lie within others."""
        found: list[Rectangle] = []
        for each in self.free:
            found += each.without(taken) if each.meets(taken) else [each]
        found = list(dict.fromkeys(found))
        self.free = [each for each in found if not any(other.covers(each) for other in found if other != each)]
