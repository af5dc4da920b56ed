"""The numbers in the paper's text (Setty et al., Olive, OSDI '16, sections 7.1 to 7.3).

No number is read off its plots. Its text has none for figures 9 and 10.
"""

# Figure 11: the first update of an object after a snapshot, of a normal update.
FIRST_UPDATE = 5.0
FIRST_UPDATE_OF_AZURE_SQL = 2.0

# Figure 12: an update by the transaction library, of one by intents; "roughly".
UPDATE_BY_TRANSACTIONS = 6.0

# Section 7.3: 1,000 objects with ten attributes of 100 bytes each.
DATA_MB = 1.0  # "roughly"
BEFORE_MB, AFTER_MB = 2.6, 5.5
OVERHEAD_AFTER_COLLECTION_PERCENT = 8.0  # Of the data; "less than".
