"""Unit tests of the parts that the engines are made of."""
