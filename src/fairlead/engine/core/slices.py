"""The slices of one MIG device: which are cut, which are in use, and when another cut is possible.

A slice that is cut stays until it is destroyed. One of the right size that nobody uses can be taken at once. Places
that are not part of any slice can be cut at any time. Destroying slices to cut others needs a device on which nothing
runs or starts. Idle instances may hold slices; they never stand in the way, but who takes such a slice ends them.
A device that is fixed has the slices of its partition for good.
"""

from collections.abc import Iterable

from fairlead.model import Device
from fairlead.model.mig import MIG_PLACES, mig_layout


class Slices:
    """Places as bit masks: `cut` has the size of each slice, in thousandths of vGPUs; `busy` and `held` are unions."""

    __slots__ = ("_is_fixed", "_uncut", "busy", "cut", "held")

    def __init__(self, device: Device) -> None:
        places = mig_layout(device.partition)
        assert places is not None  # as the device has checked
        self.cut = {place: size * 1000 for place, size in zip(places, device.partition, strict=True)}
        self._is_fixed = device.is_fixed
        self._uncut = 0 if device.is_fixed else 0xFF & ~sum(places)
        self.busy = 0  # in use by what runs or starts
        self.held = 0  # kept by idle instances

    def fits(self, vgpus: int) -> bool:
        """Whether a slice of this size is there or can be cut now, idle instances out of the way."""
        if not self.busy and not self._is_fixed:
            return _places(vgpus) != ()
        return self.has_unused(vgpus) or self._cuttable(vgpus) != 0

    def fits_beside(self, vgpus: int) -> bool:
        """Whether a slice of this size that no idle instance holds is there, or can be cut without destroying one."""
        return self._free(vgpus) != 0 or self._cuttable(vgpus) != 0

    def has_unused(self, vgpus: int) -> bool:
        """Whether a slice of this size is cut and nothing runs or starts there."""
        return any(size == vgpus and not place & self.busy for place, size in self.cut.items())

    def has_free(self, vgpus: int) -> bool:
        """Whether there is even one that no idle instance holds."""
        return self._free(vgpus) != 0

    def take(self, vgpus: int, held: Iterable[int], *, may_cut: bool) -> tuple[int, bool]:
        """Use a slice of this size; gives its place, and whether it had to be cut. The caller has checked that it fits.

        In this order: one that is free, places that are part of no slice, one that an idle instance holds, and places
        of slices that are destroyed for it, as few as possible. Cutting comes before ending a warm instance, whose next
        cold start would usually take longer.

        Args:
            vgpus: The size, in thousandths.
            held: Places of slices of this size that idle instances hold, the first to be taken first.
            may_cut: False for an instance that is warm already, and so only takes what is there.
        """
        place = self._free(vgpus)
        is_cut = False
        if not place and may_cut:
            place = self._cuttable(vgpus)
            is_cut = place != 0
        if not place:
            place = next(iter(held), 0)
        if not place and may_cut and not self.busy:
            place, is_cut = min(_places(vgpus), key=self._loss), True
        assert place, "there is no slice of this size, and none can be cut"
        if is_cut:
            self._recut(place, vgpus)
        self.busy |= place
        return place, is_cut

    def _free(self, vgpus: int) -> int:
        """A slice of this size that nobody uses or holds; 0 if there is none."""
        taken = self.busy | self.held
        for place, size in self.cut.items():
            if size == vgpus and not place & taken:
                return place
        return 0

    def _cuttable(self, vgpus: int) -> int:
        """A place for this size that is part of no slice; 0 if there is none."""
        uncut = self._uncut
        for place in _places(vgpus):
            if place & uncut == place:
                return place
        return 0

    def _loss(self, place: int) -> tuple[int, int]:
        """What cutting here would destroy: slices that idle instances hold, and slices in all."""
        gone = [other for other in self.cut if other & place]
        return sum(other & self.held != 0 for other in gone), len(gone)

    def _recut(self, place: int, vgpus: int) -> None:
        """Cut a slice, destroying those in its way."""
        for other in [other for other in self.cut if other & place]:
            del self.cut[other]
            self._uncut |= other
        self.cut[place] = vgpus
        self._uncut &= ~place


def _places(vgpus: int) -> tuple[int, ...]:
    return MIG_PLACES.get(vgpus // 1000, ()) if vgpus % 1000 == 0 else ()
