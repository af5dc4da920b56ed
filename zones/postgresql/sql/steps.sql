-- Steps of workflows whose effects are in this database. Entry, fence and FLOOR mean what they do on a shard: see
-- fairlead.zones.workflow.participants. Which rows each function locks, and why, is in fairlead.zones.postgresql.step_store.

-- What the numbers of this database are worth: another epoch after a promotion or a restore, which may have lost some.
CREATE OR REPLACE FUNCTION fairlead.epoch() RETURNS bigint LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
  RETURN hashtextextended(concat_ws(':', (SELECT c.system_identifier FROM pg_control_system() c),
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), (SELECT s.id FROM fairlead.store s)), 0) & 9007199254740991;

-- Begin a step in the transaction of its effects, which ends with `end_step`. `answer` says what is to be done:
-- run    the body, and then `end_step` with `place`: the step is this transaction's
-- done   nothing: `entry` is its answer
-- ask    roll back, and ask again: `known_epoch` or `known_floor` is not that of now
-- lost   roll back: a later attempt has raised the fence
-- ended  roll back: the run has ended
CREATE OR REPLACE FUNCTION fairlead.begin_step(
  this_run uuid, lease_number bigint, known_epoch bigint, known_floor bigint, this_segment int, this_name text, nth int,
  OUT answer text, OUT entry bytea, OUT place tid
) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  fence fairlead.fences;
  floor_now bigint;
BEGIN
  -- The fence is locked before anything is read. A row that this transaction has inserted is locked by that.
  INSERT INTO fairlead.fences (run, number) VALUES (this_run, 0) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    -- None: a tombstone was cleared just now, together with FLOOR.
    SELECT f.* INTO fence FROM fairlead.fences f WHERE f.run = this_run FOR SHARE;
  END IF;
  -- Above READ COMMITTED a plain read would see FLOOR as it was before the lock.
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f;
  ELSE
    SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f FOR SHARE;
  END IF;
  IF floor_now <> known_floor OR fairlead.epoch() <> known_epoch THEN
    answer := 'ask';
  ELSIF fence.ended_under IS NOT NULL THEN
    answer := 'ended';
  ELSIF fence.number > lease_number THEN
    answer := 'lost';
  ELSE
    -- A second executor waits here for the end of the first one.
    INSERT INTO fairlead.steps AS s (run, segment, name, occurrence, entry) VALUES (this_run, this_segment, this_name, nth, '')
      ON CONFLICT DO NOTHING RETURNING s.ctid INTO place;
    IF FOUND THEN
      answer := 'run';
    ELSE
      answer := 'done';
      SELECT s.entry INTO STRICT entry FROM fairlead.steps s
        WHERE (s.run, s.segment, s.name, s.occurrence) = (this_run, this_segment, this_name, nth);
    END IF;
  END IF;
END $$;

-- Write the answer of a step at its `place`. Clears the entries from before the last checkpoint.
-- No index is read: two SERIALIZABLE transactions that read and write one page of an index would conflict.
CREATE OR REPLACE FUNCTION fairlead.end_step(place tid, this_run uuid, this_segment int, answer bytea) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  UPDATE fairlead.steps s SET entry = answer WHERE s.ctid = place AND s.run = this_run;
  IF NOT FOUND THEN
    RAISE 'fairlead: the body of a step has ended its transaction' USING ERRCODE = 'invalid_transaction_termination';
  END IF;
  IF this_segment > 0 THEN
    DELETE FROM fairlead.steps s WHERE s.run = this_run AND s.segment < this_segment;
  END IF;
END $$;

-- Let no attempt with a lower lease number act here any more. Waits for steps that are under way. Answers 'raised', or 'ask':
-- there was no fence, and perhaps a tombstone; or 'lost', 'ended', as `begin_step` does.
CREATE OR REPLACE FUNCTION fairlead.raise_fence(this_run uuid, lease_number bigint, known_epoch bigint, known_floor bigint)
  RETURNS text LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  fence fairlead.fences;
  is_new boolean;
  floor_now bigint;
BEGIN
  INSERT INTO fairlead.fences (run, number) VALUES (this_run, 0) ON CONFLICT DO NOTHING;
  is_new := FOUND;
  SELECT f.* INTO fence FROM fairlead.fences f WHERE f.run = this_run FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'ask';
  ELSIF fence.ended_under IS NOT NULL THEN
    RETURN 'ended';
  ELSIF fence.number > lease_number THEN
    RETURN 'lost';
  END IF;
  SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f;
  IF is_new AND (floor_now <> known_floor OR fairlead.epoch() <> known_epoch) THEN
    DELETE FROM fairlead.fences f WHERE f.run = this_run;
    RETURN 'ask';
  END IF;
  UPDATE fairlead.fences f SET number = lease_number WHERE f.run = this_run;
  RETURN 'raised';
END $$;

-- The entries of a segment of a run behind one of them, in the order of their names.
CREATE OR REPLACE FUNCTION fairlead.steps_behind(this_run uuid, this_segment int, after_name text, after_nth int, n int)
  RETURNS TABLE (name text, occurrence int, entry bytea) LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT s.name, s.occurrence, s.entry FROM fairlead.steps s
    WHERE s.run = this_run AND s.segment = this_segment AND (s.name, s.occurrence) > (after_name COLLATE "C", after_nth)
    ORDER BY s.name, s.occurrence LIMIT n;
END $$;

-- Clear what a run that has ended keeps here, and leave a tombstone. Waits for steps that are under way. May run twice.
CREATE OR REPLACE FUNCTION fairlead.clean_up_run(this_run uuid) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  INSERT INTO fairlead.fences (run, number) VALUES (this_run, 0) ON CONFLICT DO NOTHING;
  PERFORM FROM fairlead.fences f WHERE f.run = this_run FOR UPDATE;
  DELETE FROM fairlead.steps s WHERE s.run = this_run;
  UPDATE fairlead.fences f SET ended_under = (SELECT l.floor FROM fairlead.floor l) WHERE f.run = this_run AND f.ended_under IS NULL;
END $$;

-- Raise FLOOR by one if there are tombstones, and clear those that were written before, `n` at most. Returns whether some are
-- left: a second call clears them. A tombstone that is locked stays for the next time.
CREATE OR REPLACE FUNCTION fairlead.raise_floor(n int) RETURNS boolean LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  floor_now bigint;
  gone bigint[];
BEGIN
  SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f FOR UPDATE;
  WITH cleared AS (
    DELETE FROM fairlead.fences f WHERE f.run = ANY(ARRAY(
      SELECT t.run FROM fairlead.fences t WHERE t.ended_under <= floor_now ORDER BY t.ended_under LIMIT n FOR UPDATE SKIP LOCKED))
      RETURNING f.ended_under)
  SELECT array_agg(c.ended_under) INTO gone FROM cleared c;
  IF floor_now = ANY(gone) THEN
    UPDATE fairlead.floor SET floor = floor_now + 1;
  END IF;
  RETURN coalesce(array_length(gone, 1), 0) = n;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairlead FROM PUBLIC;
