-- One role per duty. They cannot log in and have no password: a platform team grants them to its own
-- login roles (GRANT tcl_executor TO orders_executor). Roles belong to the cluster, so this file must
-- also pass when another database of the same cluster has created them.
DO $roles$
DECLARE
  duty text;
BEGIN
  FOREACH duty IN ARRAY ARRAY['tcl_owner', 'tcl_executor', 'tcl_approver', 'tcl_operator',
                              'tcl_application', 'tcl_reader'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', duty);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;
    END;
  END LOOP;
  -- A migrator that is no superuser acts as the owner below, and the owner must be allowed to take
  -- the schema over.
  IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('GRANT tcl_owner TO %I', current_user);
  END IF;
  EXECUTE format('GRANT CREATE ON DATABASE %I TO tcl_owner', current_database());
  ALTER SCHEMA tcl OWNER TO tcl_owner;
  EXECUTE format('REVOKE CREATE ON DATABASE %I FROM tcl_owner', current_database());
END
$roles$;

GRANT USAGE ON SCHEMA tcl TO tcl_executor, tcl_approver, tcl_operator, tcl_application, tcl_reader;

-- A function is callable by PUBLIC from birth unless its owner's defaults say otherwise.
ALTER DEFAULT PRIVILEGES FOR ROLE tcl_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
