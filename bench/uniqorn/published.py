"""The numbers in Uniqorn's text (section 4). No number is read off its plots."""

from bench.uniqorn.workload import Kind

# Table 1: p99 in ms, monolithic and Uniqorn with one shard.
TABLE_1 = {
    Kind.CREATE.value: (25, 75),
    Kind.CREATE_BARE.value: (16, 16),
    Kind.READ.value: (12, 16),
    Kind.UPDATE.value: (30, 85),
    Kind.UPDATE_VALUE.value: (25, 25),
    Kind.DELETE.value: (22, 27),
}
GARBAGE_RATIO_MAX = 3  # of figure 7
