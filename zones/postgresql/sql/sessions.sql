-- Sessions of workers that claim items. A claim is a lease of minutes that ends early if the session of its worker does. A
-- session whose row is gone has ended for good: a claim locks the row, so none is made after the row was deleted.

-- Claim items for a session, or renew claims. `begins`: it is the session's first claim. No row: the session has ended, and
-- nothing is claimed. `outcome`: see `outcomes`.
CREATE OR REPLACE FUNCTION fairlead.claim(
  session_id uuid, worker bytea, begins boolean, ids uuid[], lease_ids uuid[], term_us bigint, OUT ord int, OUT outcome smallint
) RETURNS SETOF record LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  held uuid[];
BEGIN
  IF begins THEN
    INSERT INTO fairlead.sessions (id, worker) VALUES (session_id, claim.worker) ON CONFLICT DO NOTHING;
  END IF;
  PERFORM FROM fairlead.sessions s WHERE s.id = session_id FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  held := fairlead.hold(ids, lease_ids);
  RETURN QUERY SELECT * FROM fairlead.extended(ids, lease_ids, held, term_us, NULL, session_id);
END $$;

-- Keep a session alive, and return what it claims: the ids of items and leases. `is_alive`: false: it has ended.
CREATE OR REPLACE FUNCTION fairlead.beat(session_id uuid, OUT is_alive boolean, OUT ids uuid[], OUT lease_ids uuid[])
  LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  UPDATE fairlead.sessions s SET beat = s.beat + 1 WHERE s.id = session_id;
  is_alive := FOUND;
  SELECT array_agg(i.id), array_agg(i.lease_id) INTO ids, lease_ids FROM fairlead.items i WHERE i.session = session_id;
END $$;

-- End a session, unless a heartbeat came after `silent_since` (NULL: in any case). Says whether it has ended now.
CREATE OR REPLACE FUNCTION fairlead.end_session(session_id uuid, silent_since bigint) RETURNS boolean LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
  DELETE FROM fairlead.sessions s WHERE s.id = session_id AND (silent_since IS NULL OR s.beat = silent_since);
  RETURN FOUND;
END $$;

-- Let up to `n` items vest now that sessions claim which have ended. They keep their lease ids, so the next lease of each
-- counts an expiry. The reader sees them as arrivals. Returns how many.
CREATE OR REPLACE FUNCTION fairlead.release_ended(n int) RETURNS int LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  one uuid := '00000000-0000-0000-0000-000000000000';
  changed int;
  released int := 0;
BEGIN
  WHILE released < n LOOP               -- a loose index scan: there are few sessions, with many items perhaps
    SELECT i.session INTO one FROM fairlead.items i WHERE i.session > one ORDER BY i.session LIMIT 1;
    EXIT WHEN NOT FOUND;
    CONTINUE WHEN EXISTS (SELECT FROM fairlead.sessions s WHERE s.id = one);
    UPDATE fairlead.items i SET leased_until_us = 0, session = NULL, xid = pg_current_xact_id() WHERE i.id = ANY(ARRAY(
      SELECT x.id FROM fairlead.items x WHERE x.session = one LIMIT n - released FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS changed = ROW_COUNT;
    released := released + changed;
  END LOOP;
  IF released > 0 THEN
    PERFORM fairlead.ring();
  END IF;
  RETURN released;
END $$;

-- Let items vest now that a session claims, and whose worker goes on without them.
CREATE OR REPLACE FUNCTION fairlead.release(session_id uuid, ids uuid[], lease_ids uuid[]) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  held uuid[] := fairlead.hold(ids, lease_ids);
BEGIN
  UPDATE fairlead.items i SET leased_until_us = 0, session = NULL, xid = pg_current_xact_id()
    WHERE i.id = ANY(held) AND i.session IS NOT DISTINCT FROM session_id;  -- so items_claimed is no choice
  PERFORM fairlead.ring();
END $$;

-- Delete up to `n` ended items whose ids and results are kept no longer, and forget up to `n` cancellations of more than
-- an hour ago; returns how many, of what there was more.
CREATE OR REPLACE FUNCTION fairlead.expire(n int) RETURNS int LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  now_us bigint := fairlead.now_us();
  changed int;
  forgotten int;
BEGIN
  DELETE FROM fairlead.items i WHERE i.id = ANY(ARRAY(
    SELECT x.id FROM fairlead.items x WHERE x.state = 1 AND x.keep_until_us <= now_us
    ORDER BY x.keep_until_us LIMIT n FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS changed = ROW_COUNT;
  DELETE FROM fairlead.cancelled c WHERE c.ctid = ANY(ARRAY(
    SELECT x.ctid FROM fairlead.cancelled x WHERE x.cancelled_us <= now_us - 3600000000
    ORDER BY x.cancelled_us LIMIT n FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  RETURN greatest(changed, forgotten);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairlead FROM PUBLIC;
