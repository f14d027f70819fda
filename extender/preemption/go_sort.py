"""The order in which Go's sort.Slice leaves equal elements.

The scheduler sorts a node's pods by importance with it, and it is not stable: its swaps decide which of two equally
important pods is evicted. To evict the same pods, this sorts in the same steps: pattern-defeating quicksort,
https://arxiv.org/abs/2106.05123, with the constants of Go's library.
"""

from __future__ import annotations

from collections.abc import Sequence

STABLE_UP_TO = 12
"""Go sorts slices of up to this length by insertion, which is stable."""
_NINTHER_FROM = 50
_MAX_SWAPS = 12
_MAX_STEPS = 5
_UINT64 = 2**64 - 1


def slice_order(ranks: Sequence[int]) -> list[int]:
    """The positions of `ranks` in the order that sort.Slice brings them into by ascending rank."""
    slice_ = _Slice(ranks)
    slice_.sort(0, len(ranks), len(ranks).bit_length())
    return slice_.positions


class _Slice:
    """Ranks that are being sorted, and the positions that they came from. Ranges are half open."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = list(ranks)
        self.positions = list(range(len(ranks)))

    def sort(self, begin: int, end: int, bad_pivots_left: int) -> None:
        balanced = partitioned = True
        while end - begin > STABLE_UP_TO and bad_pivots_left:
            if not balanced:
                self._break_patterns(begin, end)
                bad_pivots_left -= 1
            pivot, swaps = self._choose_pivot(begin, end)
            if swaps == _MAX_SWAPS:
                self._reverse(begin, end)
                pivot = begin + end - 1 - pivot
            if balanced and partitioned and swaps in (0, _MAX_SWAPS) and self._is_nearly_sorted(begin, end):
                return
            if begin > 0 and not self.ranks[begin - 1] < self.ranks[pivot]:
                begin = self._partition_equal(begin, end, pivot)
                continue
            middle, partitioned = self._partition(begin, end, pivot)
            balanced = min(middle - begin, end - middle) >= (end - begin) // 8
            if middle - begin < end - middle:
                self.sort(begin, middle, bad_pivots_left)
                begin = middle + 1
            else:
                self.sort(middle + 1, end, bad_pivots_left)
                end = middle
        self._insertion_sort(begin, end)

    def _swap(self, i: int, j: int) -> None:
        ranks, positions = self.ranks, self.positions
        ranks[i], ranks[j] = ranks[j], ranks[i]
        positions[i], positions[j] = positions[j], positions[i]

    def _reverse(self, begin: int, end: int) -> None:
        self.ranks[begin:end] = self.ranks[begin:end][::-1]
        self.positions[begin:end] = self.positions[begin:end][::-1]

    def _insertion_sort(self, begin: int, end: int) -> None:
        # Stable, as sorted() is. Go goes over to a heap after too many bad pivots; no node's pods are that unlucky.
        pairs = sorted(zip(self.ranks[begin:end], self.positions[begin:end], strict=True), key=lambda pair: pair[0])
        self.ranks[begin:end] = [rank for rank, _ in pairs]
        self.positions[begin:end] = [position for _, position in pairs]

    def _partition(self, begin: int, end: int, pivot: int) -> tuple[int, bool]:
        """Moves smaller ranks to the left of the pivot; returns its place, and whether they were there before."""
        self._swap(begin, pivot)
        i, j = self._next_pair(begin + 1, end - 1, self.ranks[begin])
        already = i > j
        while i <= j:
            self._swap(i, j)
            i, j = self._next_pair(i + 1, j - 1, self.ranks[begin])
        self._swap(j, begin)
        return j, already

    def _next_pair(self, i: int, j: int, pivot: int) -> tuple[int, int]:
        """The next two elements on the wrong sides."""
        while i <= j and self.ranks[i] < pivot:
            i += 1
        while i <= j and not self.ranks[j] < pivot:
            j -= 1
        return i, j

    def _partition_equal(self, begin: int, end: int, pivot: int) -> int:
        """Moves ranks equal to the pivot, the smallest, to the left; returns where the greater ones begin."""
        self._swap(begin, pivot)
        rank = self.ranks[begin]
        i, j = begin + 1, end - 1
        while True:
            while i <= j and not rank < self.ranks[i]:
                i += 1
            while i <= j and rank < self.ranks[j]:
                j -= 1
            if i > j:
                return i
            self._swap(i, j)
            i, j = i + 1, j - 1

    def _is_nearly_sorted(self, begin: int, end: int) -> bool:
        """Moves a few misplaced elements; returns whether all are in order then."""
        ranks = self.ranks
        i = begin + 1
        for _ in range(_MAX_STEPS):
            while i < end and not ranks[i] < ranks[i - 1]:
                i += 1
            if i == end:
                return True
            if end - begin < _NINTHER_FROM:
                return False
            self._swap(i, i - 1)
            self._shift(i, begin, end)
        return False

    def _shift(self, i: int, begin: int, end: int) -> None:
        """Moves the smaller of two that were swapped further left, and the greater further right."""
        left, right = i - 1, i + 1
        while i - begin >= 2 and left >= 1 and self.ranks[left] < self.ranks[left - 1]:
            self._swap(left, left - 1)
            left -= 1
        while end - i >= 2 and right < end and self.ranks[right] < self.ranks[right - 1]:
            self._swap(right, right - 1)
            right += 1

    def _break_patterns(self, begin: int, end: int) -> None:
        """Swaps three in the middle with others, by a generator of random numbers that is seeded with the length."""
        length = random = end - begin
        middle = begin + length // 4 * 2
        for index in (middle - 1, middle, middle + 1):
            random ^= random << 13 & _UINT64
            random ^= random >> 7
            random ^= random << 17 & _UINT64
            other = random & (1 << length.bit_length()) - 1
            self._swap(index, begin + (other if other < length else other - length))

    def _choose_pivot(self, begin: int, end: int) -> tuple[int, int]:
        """The median of three, or of three medians; and the number of swaps needed to find it."""
        quarter = (end - begin) // 4
        chosen, swaps = [begin + quarter, begin + quarter * 2, begin + quarter * 3], 0
        if end - begin >= _NINTHER_FROM:
            for n, at in enumerate(chosen):
                chosen[n], more = self._median(at - 1, at, at + 1)
                swaps += more
        pivot, more = self._median(*chosen)
        return pivot, swaps + more

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        """The index with the median rank of three, and the number of swaps needed to find it."""
        ranks, swaps = self.ranks, 0
        if ranks[b] < ranks[a]:
            a, b, swaps = b, a, swaps + 1
        if ranks[c] < ranks[b]:
            b, c, swaps = c, b, swaps + 1
        if ranks[b] < ranks[a]:
            a, b, swaps = b, a, swaps + 1
        return b, swaps
