-- The traceback of an attempt that is tried again. It is a column of its own, because each lease reads `record`.

ALTER TABLE fairlead.items ADD COLUMN traceback bytea;  -- of the last attempt, in UTF-8; NULL: none failed with one

-- Its arguments or answers have become longer; see the third migration.
DROP FUNCTION IF EXISTS fairlead.requeue(uuid[], uuid[], bigint[], bytea[], int[]);
DROP FUNCTION IF EXISTS fairlead.inspect(uuid[], pg_snapshot, int);
-- No program has called it.
DROP FUNCTION IF EXISTS fairlead.tenant_depth(text, text, int);
