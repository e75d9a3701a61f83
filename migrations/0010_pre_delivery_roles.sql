-- Two more duties without login: who carries results to Kafka, and who writes down what was used.
DO $roles$
DECLARE
  duty text;
BEGIN
  FOREACH duty IN ARRAY ARRAY['tcl_relay', 'tcl_meter'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', duty);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;
    END;
  END LOOP;
END
$roles$;

SET LOCAL ROLE tcl_owner;
GRANT USAGE ON SCHEMA tcl TO tcl_relay, tcl_meter;
RESET ROLE;
