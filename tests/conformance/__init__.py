"""Are our decisions the stock scheduler's?

features, draft, cases: random clusters and pods, drawn by Hypothesis. stock: what the oracle decides on them. deciding,
judge: what we decide, and every difference. answered: cases with their answers for machines without Go, and named
ones that were once decided otherwise. reduction: what a failing case comes down to.
"""
