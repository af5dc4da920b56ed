"""Tests of the benchmarks: the writes of the floor, the computation of figures, and the output of the commands."""
