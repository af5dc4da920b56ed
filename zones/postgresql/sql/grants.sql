-- Whoever may end items runs a fleet, and may use all that this version has added, or made again. Whoever may enqueue
-- many items may enqueue one.
DO $$
DECLARE
  consumer text;
  producer text;
BEGIN
  FOR consumer IN
    SELECT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.pronamespace = 'fairlead'::regnamespace AND p.proname = 'complete' AND a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fairlead TO %s', consumer);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fairlead TO %s', consumer);
  END LOOP;
  FOR producer IN
    SELECT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.pronamespace = 'fairlead'::regnamespace AND p.proname = 'put' AND a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION fairlead.put_one TO %s', producer);
  END LOOP;
END $$;
